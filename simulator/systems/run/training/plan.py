"""What a training process is given: its ranks and work, and what stops it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from ..speed import Crew, Speed
from ..spread import Spread, draw_times
from ..sync.rounds import Rounds
from ..target import Stage
from .elastic import Elastic
from .failures import Failure
from .input import Input
from .storage import Saving

_RESTARTS = 12  # the stream of random numbers of restarts; no other module has this number


@dataclass(frozen=True)
class Restart:
    """Seconds from when a failure is noticed until training goes on, nodes being there; `spread`: how they vary."""

    place_s: float = 0.0
    init_s: float = 0.0
    read_s: float = 0.0
    warmup_s: float = 0.0
    spread: Spread = field(default_factory=Spread)

    @property
    def seconds(self) -> float:
        """All phases, on average."""
        return self._phases_s * self.spread.mean

    def draw(self, seed: int) -> Iterator[float]:
        """All phases of one restart after the other."""
        return draw_times(self._phases_s, self.spread, np.random.default_rng((seed, _RESTARTS)))

    @property
    def _phases_s(self) -> float:
        return self.place_s + self.init_s + self.read_s + self.warmup_s


@dataclass(frozen=True)
class TrainingPlan:
    """A run of `steps` steps, of `enough` samples or of `wall_s` seconds, whichever ends first.

    `rounds_of(workers)` says how so many workers keep in step; they train on `samples` each per step. `crew` has the
    ranks in the order of workers and nodes. `failures` are in the order of time. `work_s` is the work between two
    checkpoints (None: none are made). `pauses` are (steps, seconds): after so many steps, and again after as many,
    training stands so long, at the end of a round. `batches`: until a step each has so many times the samples, and
    takes so many times longer without its exchange. `starts`: the run begins with the start of the job.
    `repair_s`: a rank of `speed.turn` that is replaced is away so long. `drawn`: spans are kept for charts.
    """

    rounds_of: Callable[[int], Rounds]
    crew: Crew
    workers: int
    nodes: int
    samples: float
    steps: float = inf
    enough: float = inf
    wall_s: float = inf
    saving: Saving | None = None
    work_s: float | None = None
    failures: Callable[[], Iterator[Failure]] = lambda: iter(())
    restart: Restart = Restart()
    spares: int = 0
    repair_s: float = 0.0
    speed: Speed = field(default_factory=Speed)
    input: Input | None = None
    elastic: Elastic | None = None
    pauses: Sequence[tuple[int, float]] = ()
    batches: Sequence[Stage] = ()
    starts: bool = False
    drawn: bool = True
    seed: int = 0
