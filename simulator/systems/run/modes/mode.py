"""A mode: how a run is simulated, what its numbers are called, and which keys it refuses. Each has a file of its own.

What several modes share is here, too: keys that they refuse together, failures that take a node away.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....base.errors import UserError, fault
from ....base.units import format_count, format_seconds
from ..history import History
from ..training.failures import Failure

if TYPE_CHECKING:
    from ..resolve import ResolvedRun
    from ..scenario import RunScenario

_MOST_UPDATES = 50_000_000

OF_STEP = (
    "parallel", "schedule", "batch", "recompute", "offload", "overlap", "experts", "lora", "freeze", "collectives"
)  # fmt: skip
"""Keys of a step that is predicted, beside its model."""
OF_WORKERS = (
    "sync", "compress", "speed", "target", "slow", "run.steps", "run.samples", "run.wall", "run.deadline", "step.time",
    "step.samples",
)  # fmt: skip
"""Keys of workers of the cluster."""
OF_ROUNDS = (
    "checkpoint", "input", "pause", "elastic", "speed.turn", "speed.throttle", "speed.balance", "speed.rebalance",
    "speed.detect", "run.wall", "run.start", "failures.spares",
)  # fmt: skip
"""Keys of training in which all wait for all."""


def question_of_workers(resolved: "ResolvedRun") -> str:
    """One line that says who trains."""
    devices = " and ".join(dict.fromkeys(node.device.name for node in resolved.cluster.nodes))
    model = f"{resolved.spec.name}, " if resolved.spec is not None else ""
    spares = f" and {resolved.spares} spare nodes" if resolved.spares else ""
    many = f"{format_count(resolved.workers, 'worker')} of {resolved.worker_gpus:,} x {devices}{spares}"
    return f"{model}{resolved.mode.name.replace('_', ' ')}: {many}, steps of {format_seconds(resolved.step_s)}"


def _no_notes(_: "ResolvedRun") -> list[str]:
    return []


def _together(_: "RunScenario") -> bool:
    return False


def _fresh(_: "ResolvedRun") -> float:
    return 0.0


def _is_among(key: str, keys: Iterable[str]) -> bool:
    """Whether a key, or a table around it, is one of these."""
    return any(f"{key}.".startswith(f"{one}.") for one in keys)


@dataclass(frozen=True)
class Mode:
    """How a run is simulated: a value of sync.mode, or the table of that name that stands instead of workers.

    `simulate(resolved, seed)` plays it; a UserError if the scenario says what this mode cannot do. `question` is one
    line that says what was simulated, `unit` what samples are, `steps` what its steps are called; goodput is the share
    of the time in `useful`. `own` are keys that no other mode has, `refuses` those (with all keys below) that it does
    not simulate. `in_step`: all workers wait for all, after each step or after several. `updates_alone(scenario)` tells
    whether each gradient is an update of the model by itself, `staleness(resolved)` how many updates a gradient is
    behind in the long run. `undisturbed(resolved, seed)` plays the run in which nothing fails or turns slow; None where
    workers never do.
    """

    name: str
    simulate: Callable[["ResolvedRun", int], History]
    question: Callable[["ResolvedRun"], str] = question_of_workers
    unit: str = "tokens"
    steps: str = "steps"
    useful: str = "steps that are kept, with what they wait for"
    own: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    in_step: bool = False
    updates_alone: Callable[["RunScenario"], bool] = _together
    staleness: Callable[["ResolvedRun"], float] = _fresh
    notes: Callable[["ResolvedRun"], list[str]] = _no_notes
    undisturbed: Callable[["ResolvedRun", int], History] | None = None

    def takes(self, key: str) -> bool:
        """Whether it simulates what a key says: neither the key nor a table around it is refused."""
        return not _is_among(key, self.refuses)

    def owns(self, key: str) -> bool:
        """Whether no other mode has the key."""
        return _is_among(key, self.own)

    @property
    def has_workers(self) -> bool:
        """Whether workers of the cluster make steps."""
        return self.takes("sync")


def updates(resolved: "ResolvedRun") -> int:
    """Updates of the model that the scenario asks for, each simulated."""
    steps = resolved.steps
    if steps > _MOST_UPDATES:
        allowed = f"at most {_MOST_UPDATES:,} updates are simulated one by one: give fewer run.steps or run.samples"
        raise UserError(fault(resolved.where, "run.steps", round(steps), allowed))
    return int(steps)


def failures_of_nodes(resolved: "ResolvedRun", seed: int) -> Iterator[Failure]:
    """Failures where each takes a node away; a UserError for those that do not."""
    resolved.check_places()
    said = resolved.scenario.failures
    for i, cause in enumerate(said.cause if said is not None else ()):
        for key, value, allowed in (
            ("part", cause.part, ("gpu", "nic", "link", "node")),
            ("effect", cause.effect, ("stop",)),
            ("notice", cause.notice, (0.0,)),
        ):
            if value not in allowed:
                words = f"expected {' or '.join(map(str, allowed))}: nothing else is simulated here"
                raise UserError(fault(resolved.where, f"failures.cause.{i}.{key}", value, words))
    for i, one in enumerate(said.trace if said is not None else ()):
        if one.effect != "stop":
            words = "expected stop: nothing else is simulated here"
            raise UserError(fault(resolved.where, f"failures.trace.{i}.effect", one.effect, words))
    return resolved.failures(seed)
