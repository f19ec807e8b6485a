"""What becomes of each plan: screened, beaten by a bound, or simulated, best bound first.

Branch and bound: a plan is beaten when one that was simulated is no worse in every amount than the plan's lower bounds
are. What it would turn out to be is then no better, so the values of the Pareto set and the best value are those of all
plans.

Where more plans are left than may be simulated, Optuna's tree-structured Parzen estimator proposes which. Refused and
too large plans are infeasible to it, beaten ones have their bound; only simulations count. What it leaves of the
budget, and all of it where Optuna is not installed, goes to the best bounds.
"""

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from ...base.errors import UserError
from ...base.memo import Memo
from ...predict import simulate
from ...runner import Died, Runner
from ...scenario import Changes
from .records import (
    BEATEN,
    LEFT,
    MEMORY,
    REFUSED,
    SIMULATED,
    UNSEEN,
    Amounts,
    Measured,
    Progress,
    Question,
    Row,
    Watch,
    best_first,
    pareto,
)
from .space import Space

_CHUNK, _CHUNK_OF_WORKER = 16, 64  # plans between two looks at progress; neighbours in the space have most in common
_BATCH = 16
_PROPOSALS = 2_000  # each one looks at all before it, so that the last of so many take some 50 ms
_IDLE = 320  # proposals in a row of plans that are all known, refused or beaten, after which there is no more to learn
_FIRST = 0.25  # share of the budget that goes to the best bounds before anything is proposed


def screen(question: Question, row: Row, memo: Memo) -> Row:
    """Screen a plan without a simulation: refused, too large, or still possible with lower bounds."""
    changes = row.changes
    try:
        subject = question.subject
        states_bytes = subject.states_bytes(question, changes, memo) if subject.states_bytes else 0.0
        if states_bytes > question.memory_bytes:
            return Row(changes, MEMORY, floor=Amounts(0.0, states_bytes, None))
        return subject.screen(question, changes, question.scenario(changes), states_bytes, memo)
    except UserError as error:
        return Row(changes, REFUSED, error.reasons(question.where)[0])


def measure(question: Question, row: Row, memo: Memo) -> Row:
    """The row with what a simulation says of it."""
    try:
        question.check_target(row.changes)
        one = predict(question, row.changes, memo)
    except UserError as error:
        return replace(row, status=REFUSED, reason=error.reasons(question.where)[0])
    return replace(row, status=SIMULATED if one.fits else MEMORY, measured=one)


def predict(question: Question, changes: Changes, memo: Memo, finest: bool = False) -> Measured:
    """Simulate a plan; a UserError if it is not allowed."""
    report = simulate(question.scenario(changes, finest), memo=memo, where=question.where).report
    return question.subject.measure(question, report)


Look = Callable[[Question, Row, Memo], Row]
"""`screen` or `measure`."""


def _look_at(look: Look, question: Question, item: tuple[int, Row], memo: Memo) -> Row:
    """Run `look` in a worker, on a row that comes with its number."""
    return look(question, item[1], memo)


def has_optuna() -> bool:
    """Whether Optuna is installed, which the [search] extra brings."""
    return find_spec("optuna") is not None


@dataclass
class Exploration:
    """The rows of a search, which change in place: whoever stops it has what is known so far."""

    question: Question
    rows: list[Row]
    runner: Runner
    workers: int
    watch: Watch

    @property
    def batch(self) -> int:
        """How many plans are simulated before bounds are looked at again: the same for up to eight workers, so that
        equal questions have equal answers, and two for each of more.
        """
        return max(_BATCH, 2 * self.workers)

    def screen(self, numbers: Sequence[int]) -> None:
        """Screen these rows."""
        self.watch(Progress("screening", 0, len(numbers)))
        self._look(screen, numbers, lambda done: self.watch(Progress("screening", done, len(numbers))))

    def simulate(self, number: int) -> None:
        """Simulate a row whatever its bounds say, unless it is known to be too large."""
        if self.rows[number].status != MEMORY:
            self._look(measure, [number])

    def simulate_left(self, most: int | None = None) -> None:
        """Each of the rows that are left becomes simulated or beaten.

        Where only so many may be simulated, those with the best bounds are; the rest stays left, if it is not beaten.
        """
        floors = {number: row.floor for number, row in enumerate(self.rows) if row.status == LEFT and row.floor}
        left = sorted(floors, key=lambda number: self.question.value(floors[number]))
        total, spent = len(left), 0
        while left:
            self.settle(left)
            left = [number for number in left if self.rows[number].status == LEFT]
            self._tell("simulating", total - len(left), total)
            now = left[: self.batch if most is None else min(self.batch, most - spent)]
            if not now:
                return
            self._look(measure, now)
            left, spent = left[len(now) :], spent + len(now)
        self._tell("simulating", total, total)

    def sample(self, space: Space, budget: int, seed: int) -> None:
        """Simulate rows that are left until `budget` are: those with the best bounds, then as proposed.

        What is proposed and unseen is screened first. Equal seeds give equal rows, for equal batches.
        """
        left = budget - self._simulated()
        self.simulate_left(min(max(round(left * _FIRST), 1), left) if has_optuna() else left)
        if has_optuna():
            self._propose(space, budget, seed)
            self.simulate_left(budget - self._simulated())

    def settle(self, numbers: Iterable[int]) -> None:
        """Mark the rows as beaten whose bounds are no better than a simulated row."""
        front = [row.measured.amounts for row in (self.rows[number] for number in pareto(self.rows)) if row.measured]
        for number in numbers:
            floor = self.rows[number].floor
            if self.rows[number].status == LEFT and floor and any(floor.no_better_than(one) for one in front):
                self.rows[number] = replace(self.rows[number], status=BEATEN)

    def _propose(self, space: Space, most: int, seed: int) -> None:
        """Simulate what Optuna proposes, a batch at a time, until so many rows are simulated."""
        import optuna

        optuna.logging.set_verbosity(logging.WARNING)
        places = {axis.key: {repr(value): i for i, value in enumerate(axis.values)} for axis in space.axes}

        def place_of(changes: Mapping[str, Any]) -> tuple[int, ...]:
            """The position of a plan on each axis (-1: it is on none); tables are compared by their text."""
            return tuple(at.get(repr(changes[key]), -1) for key, at in places.items())

        numbers_by_place = {place_of(row.changes): number for number, row in enumerate(self.rows)}
        choices: dict[str, optuna.distributions.BaseDistribution] = {
            axis.key: optuna.distributions.CategoricalDistribution(range(len(axis.values))) for axis in space.axes
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in version 4 constraints are an experiment, in 5 they are an old way
            sampler = optuna.samplers.TPESampler(seed=seed, constraints_func=lambda trial: trial.user_attrs["over"])
        study = optuna.create_study(sampler=sampler)
        simulated = [number for number, row in enumerate(self.rows) if row.status == SIMULATED]
        first = [number for number in simulated if -1 not in place_of(self.rows[number].changes)]
        for number in first:
            study.enqueue_trial(dict(zip(choices, place_of(self.rows[number].changes), strict=True)))
        worst = max((self._score(self.rows[number]) for number in first), default=1.0)
        proposed = idle = 0
        while (done := self._simulated()) < most and proposed < len(first) + _PROPOSALS and idle < _IDLE:
            self._tell("proposing and simulating", done, most)
            trials = [study.ask(choices) for _ in range(self.batch)]
            numbers = [numbers_by_place.get(tuple(trial.params[key] for key in choices), -1) for trial in trials]
            self._try(list(dict.fromkeys(number for number in numbers if number >= 0)), most - done)
            proposed += len(trials)
            idle = 0 if self._simulated() > done or proposed <= len(first) else idle + len(trials)
            for trial, number in zip(trials, numbers, strict=True):
                fits = number >= 0 and self.rows[number].status in (SIMULATED, BEATEN)
                trial.set_user_attr("over", (0.0 if fits else 1.0,))
                study.tell(trial, self._score(self.rows[number]) if fits else worst)
        self.settle(range(len(self.rows)))

    def _try(self, numbers: Sequence[int], most: int) -> None:
        """Screen those of the rows that nobody saw, and simulate up to `most` of those that are left and not beaten."""
        self._look(screen, [number for number in numbers if self.rows[number].status == UNSEEN])
        self.settle(numbers)
        self._look(measure, [number for number in numbers if self.rows[number].status == LEFT][:most])

    def _look(self, look: Look, numbers: Sequence[int], watch: Callable[[int], None] = lambda done: None) -> None:
        """Replace these rows by what `screen` or `measure` says of them; `watch` hears how many are done."""
        items = [(number, self.rows[number]) for number in numbers]
        most = _CHUNK if self.workers == 1 else _CHUNK_OF_WORKER
        size = max(1, min(most, -(-len(items) // self.workers)))
        chunks = (items[i : i + size] for i in range(0, len(items), size))
        done = 0
        for pairs in self.runner.run(partial(_look_at, look, self.question), chunks):
            for (number, row), result in pairs:
                if isinstance(result, Died):
                    result = replace(row, status=REFUSED, reason=result.reason)
                self.rows[number] = result
            done += len(pairs)
            watch(done)

    def _tell(self, phase: str, done: int, total: int) -> None:
        best = best_first(self.question, self.rows)[:1]
        self.watch(Progress(phase, done, total, self.rows[best[0]] if best else None))

    def _simulated(self) -> int:
        return sum(row.measured is not None for row in self.rows)

    def _score(self, row: Row) -> float:
        """The value that the sampler minimises; for a beaten plan its bound."""
        of = row.measured or row.floor
        assert of is not None
        return self.question.value(of)[0]
