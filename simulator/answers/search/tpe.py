"""Where more plans are left than may be simulated: Optuna's tree-structured Parzen estimator proposes which.

Refused and too large plans are told to it as infeasible, beaten ones by their bound; only simulations count. What it
leaves of the budget, and all of it where Optuna is not installed, goes to the best bounds.
"""

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from .asking import screen
from .bound import best_yet, bounded, settle, simulated
from .found import BEATEN, LEFT, SIMULATED, UNSEEN, Progress, Row, Watch, value
from .space import Space
from .workers import Workers

_MOST = 2_000  # proposals: each one looks at all before it, so that the last of so many take some 50 ms
_IDLE = 320  # proposals in a row of plans that are all known, refused or beaten, after which there is no more to learn
_FIRST = 0.25  # share of the budget that goes to the best bounds before anything is proposed


def sampled(space: Space, known: list[Row], hands: Workers, budget: int, seed: int, watch: Watch) -> None:
    """`budget` of the rows that are left are simulated, in place: those with the best bounds, then as proposed.

    What is proposed and unseen is screened first. Equal seeds give equal rows, for equal batches of the workers.
    """
    before = _simulated(known)
    bounded(known, hands, watch, max(round(budget * _FIRST), 1) if has_optuna() else budget)
    if has_optuna():
        _propose(space, known, hands, before + budget, seed, watch)
        bounded(known, hands, watch, before + budget - _simulated(known))


def has_optuna() -> bool:
    """Whether Optuna is installed, which the [search] extra brings."""
    return find_spec("optuna") is not None


def _propose(space: Space, known: list[Row], hands: Workers, most: int, seed: int, watch: Watch) -> None:
    """Simulate what Optuna proposes, a batch at a time, until so many rows are simulated."""
    import optuna

    optuna.logging.set_verbosity(logging.WARNING)
    goal, places = hands.asked.objective, _Places(space)
    number_of = {places.of(row.changes): number for number, row in enumerate(known)}
    choices: dict[str, optuna.distributions.BaseDistribution] = {
        axis.key: optuna.distributions.CategoricalDistribution(range(len(axis.values))) for axis in space.axes
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in version 4 constraints are an experiment, in 5 they are an old way
        sampler = optuna.samplers.TPESampler(seed=seed, constraints_func=lambda trial: trial.user_attrs["over"])
    study = optuna.create_study(sampler=sampler)
    first = [number for number, row in enumerate(known) if row.status == SIMULATED]
    for number in first:
        study.enqueue_trial(dict(zip(choices, places.of(known[number].changes), strict=True)))
    worst = max((_told(known[number], goal) for number in first), default=1.0)
    asked = idle = 0
    while (done := _simulated(known)) < most and asked < len(first) + _MOST and idle < _IDLE:
        watch(Progress("proposing and simulating", done, most, best_yet(known, goal)))
        trials = [study.ask(choices) for _ in range(hands.batch)]
        numbers = [number_of.get(tuple(trial.params[key] for key in choices), -1) for trial in trials]
        _look(known, dict.fromkeys(number for number in numbers if number >= 0), hands, most - done)
        asked += len(trials)
        idle = 0 if _simulated(known) > done or asked <= len(first) else idle + len(trials)
        for trial, number in zip(trials, numbers, strict=True):
            fits = number >= 0 and known[number].status in (SIMULATED, BEATEN)
            trial.set_user_attr("over", (0.0 if fits else 1.0,))
            study.tell(trial, _told(known[number], goal) if fits else worst)
    settle(known, range(len(known)))


def _look(known: list[Row], numbers: Iterable[int], hands: Workers, most: int) -> None:
    """Screen those of the rows that nobody saw, and simulate up to `most` of those that are left and not beaten."""
    numbers = list(numbers)
    unseen = [number for number in numbers if known[number].status == UNSEEN]
    for number, row in zip(unseen, hands.over(screen, [known[number].changes for number in unseen]), strict=True):
        known[number] = row
    settle(known, numbers)
    simulated(known, [number for number in numbers if known[number].status == LEFT][:most], hands)


class _Places:
    """Where a plan stands on each axis; tables are looked up by how they are written."""

    def __init__(self, space: Space):
        self._at = {axis.key: {repr(value): i for i, value in enumerate(axis.values)} for axis in space.axes}

    def of(self, changes: Mapping[str, Any]) -> tuple[int, ...]:
        """A place per axis."""
        return tuple(at[repr(changes[key])] for key, at in self._at.items())


def _simulated(rows: Sequence[Row]) -> int:
    return sum(row.measured is not None for row in rows)


def _told(row: Row, objective: str) -> float:
    """What a sampler is to make small; of a beaten plan its bound."""
    of = row.measured or row.floor
    assert of is not None
    return value(objective, of)[0]
