"""What happened in a run: where its time went, what failed, how stale gradients were, and spans for charts.

Every way of training (steps that all wait for, a parameter server, federated rounds, a queue of jobs) writes a History.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

CAUSES: Mapping[str, str] = {
    "compute": "computing, in steps that are kept",
    "exchange": "workers wait for gradients, parameters or models that travel",
    "wait": "workers wait for slower ones",
    "encode": "gradients are compressed and restored",
    "input": "workers wait for samples",
    "pause": "training stands for something planned, such as an evaluation",
    "checkpoint": "training stands for a checkpoint",
    "lost": "steps whose work a failure undid",
    "unfinished": "a step that the end of the run cuts off",
    "detect": "a failure has happened, and nobody has noticed",
    "start": "the job starts for the first time",
    "restart": "the job is placed, starts, reads its checkpoint and warms up",
    "resize": "the job takes another number of workers",
    "repair": "the job waits for nodes that are repaired",
    "setup": "keys are exchanged, clients chosen",
    "idle": "no job runs on the GPUs",
}
"""Where the time of a run goes; the seconds of a History by these names add up to its time."""

KEPT = ("compute", "exchange", "wait", "encode", "input")
"""Those of CAUSES of which steps that are kept consist."""

OF_FAILURES = ("lost", "detect", "restart", "resize", "repair")
"""Those of CAUSES that a run of workers has only where something fails or turns slow."""

DISTURBANCES = ("failures", "stops", "speed")
"""Counts of what only a run has in which something fails or turns slow."""

_TINY = 1e-11
"""Of a run's time: less is rounding, and no cause."""

MOST_SPANS = 20_000
"""Spans that a History keeps for charts; the first ones. Sums count all of them."""


@dataclass(frozen=True)
class Span:
    """What a lane of a run did: `kind` is one of CAUSES."""

    lane: str
    kind: str
    start_s: float
    end_s: float
    name: str = ""


@dataclass(frozen=True)
class Happening:
    """Something that happened at a time: `what` is a word such as "failure", `detail` says which or how."""

    at_s: float
    what: str
    detail: str = ""


@dataclass(frozen=True)
class History:
    """A run from its start to its end.

    `steps` are the updates of the model that were kept, `samples` what they trained on (tokens, images, updates of
    clients), `breakdown_s` seconds by cause, the mean over workers, which add up to `wall_s`. `staleness` counts
    gradients by how many updates of the model happened between the reading of the parameters and their application;
    {0: steps} where workers wait for each other. `counts` are other numbers of what happened, by name, `notes` lines
    for the report, such as what `spans` leave out.
    """

    wall_s: float
    steps: int
    samples: float
    breakdown_s: Mapping[str, float]
    staleness: Mapping[int, int]
    events: tuple[Happening, ...] = ()
    spans: tuple[Span, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def staleness_mean(self) -> float:
        """Updates that a gradient is behind, on average."""
        total = sum(self.staleness.values())
        return self.behind / total if total else 0.0

    @property
    def behind(self) -> int:
        """Updates that gradients are behind, the sum."""
        return sum(age * count for age, count in self.staleness.items())


class Recorder:
    """Writes a History down while it happens."""

    def __init__(self, most_spans: int = MOST_SPANS) -> None:
        self._most_spans = most_spans
        self.breakdown_s: dict[str, float] = {}
        self.events: list[Happening] = []
        self.spans: list[Span] = []
        self.counts: dict[str, float] = {}
        self.notes: list[str] = []

    def spend(self, cause: str, seconds: float) -> None:
        """Count seconds for a cause, without a span."""
        assert cause in CAUSES, cause
        self.breakdown_s[cause] = self.breakdown_s.get(cause, 0.0) + seconds

    def span(self, lane: str, kind: str, start_s: float, end_s: float, name: str = "") -> None:
        """Note a span for charts; it counts no seconds."""
        if start_s < end_s and len(self.spans) < self._most_spans:
            self.spans.append(Span(lane, kind, start_s, end_s, name))

    def turn(self, lane: str, kind: str, seconds: float, into: str) -> None:
        """The last seconds of this kind on a lane turn into another kind, if all spans are kept."""
        if len(self.spans) >= self._most_spans:
            return
        for i in range(len(self.spans) - 1, -1, -1):
            one = self.spans[i]
            if seconds <= 0:
                return
            if (one.lane, one.kind) != (lane, kind):
                continue
            middle_s = max(one.end_s - seconds, one.start_s)
            seconds -= one.end_s - one.start_s
            self.spans[i : i + 1] = [replace(one, end_s=middle_s)] * (middle_s > one.start_s) + [
                replace(one, kind=into, start_s=middle_s)
            ]

    def note(self, line: str) -> None:
        """Say something in the report, once."""
        if line not in self.notes:
            self.notes.append(line)

    def happen(self, at_s: float, what: str, detail: str = "") -> None:
        """Note an event, and count it."""
        self.events.append(Happening(at_s, what, detail))
        self.count(what)

    def count(self, what: str, by: float = 1.0) -> None:
        """Count something."""
        self.counts[what] = self.counts.get(what, 0.0) + by

    def history(self, wall_s: float, steps: int, samples: float, staleness: Mapping[int, int]) -> History:
        """Everything that was recorded. What no cause holds of `wall_s` is a defect of whoever records."""
        return History(
            wall_s=wall_s,
            steps=steps,
            samples=samples,
            breakdown_s={
                cause: self.breakdown_s[cause] for cause in CAUSES if self.breakdown_s.get(cause, 0.0) > _TINY * wall_s
            },
            staleness=dict(staleness),
            events=tuple(self.events),
            spans=tuple(self.spans),
            counts=dict(self.counts),
            notes=tuple(self.notes),
        )


def mean_breakdown(each: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean over workers of their seconds by cause."""
    workers = list(each)
    found = {cause: sum(one.get(cause, 0.0) for one in workers) / len(workers) for cause in CAUSES}
    return {cause: seconds for cause, seconds in found.items() if seconds}
