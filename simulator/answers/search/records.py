"""What a search asks of plans and what it finds, as plain values; and what it must know of a kind of scenario."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import StringIO
from typing import TYPE_CHECKING, Any

from ...base.memo import Memo
from ...base.units import format_seconds
from ...hardware import cluster
from ...report.answer import Answer
from ...scenario import Changes, change, check_question, value_at
from ...systems.machines import inputs_of, stamp
from ...uncertainty import Budget, Difference, difference
from .chances import probabilities_of_best
from .space import Space, Wanted

if TYPE_CHECKING:
    import pandas as pd

ANY = "any"
"""Any tool may run a plan."""
REFUSED, MEMORY, BEATEN, SIMULATED, LEFT = "refused", "memory", "beaten", "simulated", "left"
UNSEEN = "unseen"
"""What becomes of a plan: the scenario's checks refuse it, it does not fit device memory, a simulated plan is at least
as good as its lower bounds in everything, it is simulated, or left out as the budget is spent. UNSEEN: nobody looked.
"""


@dataclass(frozen=True)
class Amounts:
    """The amounts to minimise: seconds per token (or update), bytes of device memory, USD per token (or update)."""

    time_s: float
    memory_bytes: float
    cost_usd: float | None

    def no_better_than(self, other: "Amounts") -> bool:
        """Whether nothing of this is smaller than of the other."""
        cheaper = self.cost_usd is not None and other.cost_usd is not None and self.cost_usd < other.cost_usd
        return self.time_s >= other.time_s and self.memory_bytes >= other.memory_bytes and not cheaper


@dataclass(frozen=True)
class Measured:
    """The result of a plan's simulation, at the coarser level or kernel by kernel.

    `amounts` are per token; `time_s` is of the whole step or update; `terms` are what it is made of, in seconds.
    `fits_probability` is that of fitting whole devices, without headroom; None where memory has no interval. `budget`
    are the errors of the time, `interval_s` its 90 % interval, where it has one. `mfu` is None of what
    has none.
    """

    amounts: Amounts
    time_s: float
    tokens: int
    fits: bool
    memory_bytes: float
    cost_usd: float | None
    terms: Mapping[str, float]
    budget: Budget
    interval_s: tuple[float, float] | None
    fits_probability: float | None = None
    mfu: float | None = None
    not_in_interval: tuple[str, ...] = ()

    @property
    def tokens_per_s(self) -> float:
        """Tokens of the step over its time."""
        return self.tokens / self.time_s

    @property
    def speed(self) -> str:
        """Tokens per second in words, or the time of what has none."""
        return f"{self.tokens_per_s:,.0f} tokens/s" if self.tokens else format_seconds(self.time_s)

    @property
    def speed_interval(self) -> str:
        """The 90 % interval of `speed`, in words; empty where it has none."""
        if self.interval_s is None:
            return ""
        low, high = self.interval_s
        if self.tokens:
            return f"{self.tokens / high:,.0f} to {self.tokens / low:,.0f}"
        return f"{format_seconds(low)} to {format_seconds(high)}"


@dataclass(frozen=True)
class Row:
    """One plan: its changes to the scenario, what became of it and why.

    `floor` is what its amounts cannot be below, where that was computed.
    """

    changes: Changes
    status: str = UNSEEN
    reason: str = ""
    floor: Amounts | None = None
    measured: Measured | None = None


def no_level(table: Mapping[str, Any], changes: Changes, finest: bool) -> str:
    """Of predictions that have no levels."""
    return ""


def scenario_value(resolved: Any, key: str) -> Any:
    """What a scenario says of a key, or its default."""
    return value_at(resolved.scenario.model_dump(mode="json", by_alias=True), key)


def _as_it_is(target: str, changes: Changes) -> Changes:
    return changes


@dataclass(frozen=True)
class Subject:
    """A kind of scenario that can be searched.

    `objectives` may be asked for, the first one is the default. `title` is what a cost is of. `level` is that of a
    plan's prediction, the coarsest or the finest, empty where predictions have none. `speed_name` heads the column of
    speeds. `resolve` finds what a scenario's names stand for, `space` makes the space of plans of that. `complete` adds
    to a plan what follows from it for the tool that is to run it. `own` is what a resolved scenario says of a key
    (None: nothing). `states_bytes` is what a plan needs at least, before its scenario is made (None: not known);
    `screen` says what is known of that scenario without a simulation, given these; `measure` what a report says of it.
    `export` gives it as the recipe of a tool, to be printed; a UserError if the tool cannot run it.
    """

    objectives: tuple[str, ...]
    title: str
    level: Callable[[Mapping[str, Any], Changes, bool], str]
    speed_name: str
    resolve: Callable[[Any, str], Any]
    space: Callable[[Mapping[str, Any], Any, Wanted], Space]
    states_bytes: "Callable[[Question, Changes, Memo], float] | None"
    screen: "Callable[[Question, Changes, Any, float, Memo], Row]"
    measure: "Callable[[Question, Any], Measured]"
    complete: Callable[[str, Changes], Changes] = _as_it_is
    own: Callable[[Any, str], Any] = scenario_value
    export: Callable[[Any, str, str], object] | None = None


@dataclass(frozen=True)
class Question:
    """A scenario as a table and where it stands, what is wanted of its plans, and the memory that one may take.

    `target` is the tool that is to run a plan, or ANY.
    """

    subject: Subject
    table: Mapping[str, Any]
    where: str
    objective: str
    memory_bytes: float = 0.0
    target: str = ANY

    def plan(self, changes: Changes, finest: bool = False) -> dict[str, Any]:
        """The table of a plan's scenario, at the coarsest level or at the finest."""
        level = self.subject.level(self.table, changes, finest)
        return change(self.table, [changes, {"level": level}] if level else changes, self.where)

    def scenario(self, changes: Changes, finest: bool = False) -> Any:
        """The scenario of a plan, at the coarsest level or at the finest; a UserError if it is not allowed."""
        return check_question(self.plan(changes, finest), self.where)

    def check_target(self, changes: Changes) -> None:
        """Raise UserError if the tool that is to run it cannot be told a plan."""
        if self.target != ANY and self.subject.export is not None:
            self.subject.export(self.scenario(changes), self.target, self.where)

    @property
    def gpus(self) -> int:
        """All GPUs of the scenario."""
        return cluster(self.table["cluster"], self.table.get("nodes", 1), self.where).n_gpus

    def value(self, one: Measured | Amounts) -> tuple[float, ...]:
        """A sort key: the objective's amount, then the others to break ties."""
        of = one.amounts if isinstance(one, Measured) else one
        cost = float("inf") if of.cost_usd is None else of.cost_usd
        if self.objective == "memory":
            return (of.memory_bytes, of.time_s)
        return (cost, of.time_s, of.memory_bytes) if self.objective == "cost" else (of.time_s, of.memory_bytes)


@dataclass(frozen=True)
class Progress:
    """The progress of a search: `done` of `total` plans of a phase, and the best plan so far, if any."""

    phase: str  # "screening" or "simulating"
    done: int
    total: int
    best: Row | None = None


_MOST_CANDIDATES = 64
Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class SearchResult(Answer):
    """The result of a search.

    `cuts` counts points of the space by the rule that cut them, before they were rows; with `counts`, which counts rows
    by status, they add up to `space.size`, and one if the space lacks `own`. `headroom` is the share of device memory
    that is kept free. `checked` are predictions of the best rows kernel by kernel, whether they fit or not. `stopped`:
    a user ended the search early. `own` is the row of the scenario's own plan, if it has one (the last row, where the
    space lacks it); `own_untold` is what is predicted of it where the tool that is to run a plan cannot be told it.
    """

    question: Question
    space: Space
    rows: Sequence[Row]
    cuts: Counter[str]
    headroom: float = 0.0
    checked: Mapping[int, Measured] = field(default_factory=dict)
    notes: Sequence[str] = ()
    stopped: bool = False
    own: int | None = None
    own_untold: Measured | None = None

    def to_json(self) -> dict[str, Any]:
        """The winner, the Pareto set and how many plans became what, as plain values; times in seconds."""
        question = self.question
        content = {
            "kind": "search",
            "of": question.table.get("kind", "weight_update"),
            "objective": question.objective,
            "gpus": question.gpus,
            "proved": self.proved,
            "stopped": self.stopped,
            "counts": dict(self.counts),
            "cuts": dict(self.cuts),
            "winner": None if self.winner is None else self._plan(self.winner),
            "own": None if self.own is None or self.rows[self.own].measured is None else self._plan(self.own),
            "pareto": [self._plan(number) for number in self.pareto],
            "notes": list(self.notes),
            "inputs": inputs_of(question.table, question.where),
        }
        return stamp("search", content)

    def _plan(self, number: int) -> dict[str, Any]:
        """A plan that was simulated, as the finest prediction of it says."""
        row = self.rows[number]
        one = self.checked.get(number) or row.measured
        assert one is not None
        own = ("time_s", "tokens", "fits", "fits_probability", "memory_bytes", "cost_usd")
        more = {"tokens_per_s": one.tokens_per_s if one.tokens else None, "not_in_interval": list(one.not_in_interval)}
        return {"changes": dict(row.changes)} | {name: getattr(one, name) for name in own} | more

    def frame(self) -> "pd.DataFrame":
        """A row per plan, as in plans.csv."""
        import pandas as pd

        from .outputs import plans_csv

        return pd.read_csv(StringIO(plans_csv(self, range(len(self.rows)))))

    def lines(self) -> Iterator[str]:
        """What `runcast search` prints."""
        from .outputs import lines

        return lines(self)

    @property
    def counts(self) -> Counter[str]:
        """Rows by status."""
        return Counter(row.status for row in self.rows)

    @property
    def proved(self) -> bool:
        """Whether every row was looked at to its end."""
        return not {LEFT, UNSEEN} & set(self.counts)

    @cached_property
    def pareto(self) -> tuple[int, ...]:
        """The rows that nothing simulated beats in all amounts."""
        return pareto(self.rows)

    @cached_property
    def best(self) -> tuple[int, ...]:
        """The rows that were simulated and fit, best first."""
        return best_first(self.question, self.rows)

    @property
    def best_left(self) -> Amounts | None:
        """The best bound of those that were left out: no plan of the space is better than that and than the winner."""
        floors = [row.floor for row in self.rows if row.status == LEFT and row.floor]
        return min(floors, key=self.question.value, default=None)

    @property
    def winner(self) -> int | None:
        """The best row, as far as the finest predictions of the best ones say; None where none fits."""
        return self._best_of(self.best)

    @property
    def runner_up(self) -> int | None:
        """The best one behind the winner, by the same predictions where there are some."""
        return self._best_of([number for number in self.best if number != self.winner])

    def difference_to_winner(self, number: int) -> Difference | None:
        """The time per token, or of an update, of a plan over the winner's; None for the winner itself.

        Both by the finest predictions if both have such, else both by the coarser ones.
        """
        if self.winner is None or number == self.winner:
            return None
        both = (self.winner, number)
        fine = all(one in self.checked for one in both)
        of = [self.checked[one] if fine else self.rows[one].measured for one in both]
        first, other = (one for one in of if one is not None)
        return difference(first.amounts.time_s, other.amounts.time_s, first.budget, other.budget)

    @cached_property
    def best_probabilities(self) -> Mapping[int, float]:
        """How likely each of the fastest rows is the fastest of all; of other rows it is next to nothing."""
        fastest = sorted(self.best, key=lambda number: self._finest(number).amounts.time_s)[:_MOST_CANDIDATES]
        times = [self._finest(number).amounts.time_s for number in fastest]
        chances = probabilities_of_best(times, [self._finest(number).budget for number in fastest])
        return dict(zip(fastest, chances, strict=True))

    def _finest(self, number: int) -> Measured:
        """Kernel by kernel if the row was checked so."""
        one = self.checked.get(number) or self.rows[number].measured
        assert one is not None
        return one

    def _best_of(self, numbers: Sequence[int]) -> int | None:
        """The best of those that are checked and fit, else the first that is not checked: one that does not is out."""
        fit = [number for number in numbers if number in self.checked and self.checked[number].fits]
        if fit:
            return min(fit, key=lambda number: self.question.value(self.checked[number]))
        return next((number for number in numbers if number not in self.checked), None)


def best_first(question: Question, rows: Sequence[Row]) -> tuple[int, ...]:
    """The rows that were simulated and fit, by the objective."""
    simulated = [(number, row.measured) for number, row in enumerate(rows) if row.status == SIMULATED]
    return tuple(number for _, number in sorted((question.value(one), number) for number, one in simulated if one))


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
