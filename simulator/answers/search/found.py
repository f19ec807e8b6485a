"""What a search finds, as plain values: a row per plan, what was pruned by what, the Pareto set, the winner."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...scenario import Changes
from .space import Space

REFUSED, MEMORY, BEATEN, SIMULATED, LEFT = "refused", "memory", "beaten", "simulated", "left"
UNSEEN = "unseen"
"""What becomes of a plan: the scenario's checks refuse it, it does not fit device memory, a simulated plan is at least
as good as its lower bounds in everything, it is simulated, or left out as the budget is spent. UNSEEN: nobody looked.
"""


@dataclass(frozen=True)
class Amounts:
    """What is to be small: seconds per token (or of the update), bytes of device memory, USD per token (or update)."""

    time_s: float
    memory_bytes: float
    cost_usd: float | None

    def no_better_than(self, other: "Amounts") -> bool:
        """Whether nothing of this is smaller than of the other."""
        cheaper = self.cost_usd is not None and other.cost_usd is not None and self.cost_usd < other.cost_usd
        return self.time_s >= other.time_s and self.memory_bytes >= other.memory_bytes and not cheaper


@dataclass(frozen=True)
class Measured:
    """What a simulation said of a plan, at the coarser level or kernel by kernel.

    `amounts` are per token; `time_s` is of the whole step or update; `terms` are what it is made of, in seconds.
    """

    amounts: Amounts
    time_s: float
    tokens: int
    fits: bool
    memory_bytes: float
    cost_usd: float | None
    terms: Mapping[str, float]

    @property
    def tokens_per_s(self) -> float:
        """Tokens of the step over its time."""
        return self.tokens / self.time_s


@dataclass(frozen=True)
class Row:
    """One plan: its changes to the scenario, what became of it and why.

    `floor` is what its amounts cannot be below, where that was computed.
    """

    changes: Changes
    status: str
    reason: str = ""
    floor: Amounts | None = None
    measured: Measured | None = None


@dataclass(frozen=True)
class Progress:
    """How far a search is: `done` of `total` plans are through a phase, and the best one yet, if there is one."""

    phase: str  # "screening" or "simulating"
    done: int
    total: int
    best: Row | None = None


Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Found:
    """The result of a search.

    `cuts` counts points of the space by the rule that cut them, before they were rows; with `counts`, which counts rows
    by status, they add up to `space.size`. `pareto` and `best` number rows: nothing simulated is better in all amounts,
    and the best ones by the objective, best first.
    `checked` are predictions of the first ones kernel by kernel, whether they fit or not. `stopped`: a user ended the
    search early.
    """

    objective: str
    gpus: int
    space: Space
    rows: tuple[Row, ...]
    cuts: Counter[str]
    pareto: tuple[int, ...]
    best: tuple[int, ...]
    device_bytes: float
    headroom: float
    table: Mapping[str, Any]
    where: str
    proved: bool = True
    checked: Mapping[int, Measured] = field(default_factory=dict)
    notes: Sequence[str] = ()
    stopped: bool = False

    @property
    def counts(self) -> Counter[str]:
        """Rows by status."""
        return Counter(row.status for row in self.rows)

    @property
    def best_left(self) -> Amounts | None:
        """The best bound of those that were left out: no plan of the space is better than that and than the winner."""
        floors = [row.floor for row in self.rows if row.status == LEFT and row.floor]
        return min(floors, key=lambda floor: value(self.objective, floor), default=None)

    @property
    def tokens(self) -> int:
        """Tokens of a step, of plans that do not change the batch; 0 of a weight update."""
        batch = self.table.get("batch", {})
        return int(batch.get("global", 0) * batch.get("seq_len", 0))

    @property
    def winner(self) -> int | None:
        """The best row, as far as the finest predictions of the best ones say; None where none fits."""
        return self._best_of(self.best)

    @property
    def runner_up(self) -> int | None:
        """The best one behind the winner, by the same predictions where there are some."""
        return self._best_of([number for number in self.best if number != self.winner])

    def _best_of(self, numbers: Sequence[int]) -> int | None:
        """The best of those that are checked and fit, else the first that is not checked: one that does not is out."""
        fit = [number for number in numbers if number in self.checked and self.checked[number].fits]
        if fit:
            return min(fit, key=lambda number: value(self.objective, self.checked[number]))
        return next((number for number in numbers if number not in self.checked), None)


def value(objective: str, one: Measured | Amounts) -> tuple[float, ...]:
    """What an objective wants small, then the others to break ties."""
    of = one.amounts if isinstance(one, Measured) else one
    cost = float("inf") if of.cost_usd is None else of.cost_usd
    if objective == "memory":
        return (of.memory_bytes, of.time_s)
    return (cost, of.time_s, of.memory_bytes) if objective == "cost" else (of.time_s, of.memory_bytes)


def pareto(rows: Sequence[Row]) -> tuple[int, ...]:
    """The rows that were simulated and fit, and that no other equals or beats in everything; fastest first.

    Of rows with equal amounts the first one stands for all.
    """
    simulated = [(row.measured, number) for number, row in enumerate(rows) if row.status == SIMULATED]
    known = [(one.amounts, number) for one, number in simulated if one]
    known.sort(key=lambda one: (one[0].time_s, one[0].memory_bytes, one[0].cost_usd or 0.0, one[1]))
    front: list[tuple[Amounts, int]] = []
    for amounts, number in known:
        if not any(amounts.no_better_than(other) for other, _ in front):
            front.append((amounts, number))
    return tuple(number for _, number in front)
