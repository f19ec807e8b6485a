"""The interval of a prediction by Monte Carlo: errors are drawn, and the same Program is simulated with each draw.

Unlike the first order it follows the critical path where it moves: the slower of two equal branches is late more often
than either.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from .. import engine
from ..base.errors import UserError, fault
from ..costs import Costs
from ..program import Program, Ragged
from ..timeline import Timeline
from .errors import Errors, Interval

Floats = NDArray[np.float64]

MOST = 100_000


@dataclass(frozen=True, eq=False)
class Draws:
    """Seconds of each draw, in the order in which they were drawn."""

    makespans_s: Floats

    def quantile_s(self, share: float) -> float:
        """Seconds that this share of the draws stay below."""
        return float(np.quantile(self.makespans_s, share))

    @property
    def interval(self) -> Interval:
        """Seconds between which nine of ten draws lie."""
        return Interval(self.quantile_s(0.05), self.quantile_s(0.95))


def draw(
    program: Program, costs: Costs, errors: Errors, draws: int, seed: int,
    answer: Callable[[Timeline], float] = lambda run: run.makespan_s,
) -> Draws:  # fmt: skip
    """Simulate a Program so many times, each with other errors; equal seeds give equal draws.

    `answer` are the seconds that a Timeline stands for: those that a report leads with. A UserError for fewer than 2
    draws, or more than 100,000, or a seed below 0.
    """
    if not 2 <= draws <= MOST:
        raise UserError(fault("--draws", "", draws, f"expected a number of simulations, 2 to {MOST:,}"))
    if seed < 0:
        raise UserError(fault("--seed", "", seed, "expected a whole number, 0 or above"))
    random, found = np.random.default_rng(seed), np.empty(draws)
    for turn in range(draws):
        factor, floor = _draw_factors(errors, random)
        found[turn] = answer(engine.simulate(program, slow_down(costs, program, factor))) * floor
    return Draws(found)


def _draw_factors(errors: Errors, random: Generator) -> tuple[Floats, float]:
    """How many times as long each op takes in one draw, and beside that the whole."""
    phases = random.multivariate_normal(np.zeros(len(errors.by_phase)), errors.by_phase, method="eigh")
    classes = random.standard_normal(int(errors.cost_class.max(initial=-1)) + 1)
    alone = random.standard_normal(len(errors.of_op))
    own = _about_one(errors.of_class, classes[errors.cost_class]) * _about_one(errors.of_op, alone)
    return own * errors.factor_of_op(np.exp(phases)), float(np.exp(errors.floor * random.standard_normal()))


def _about_one(spread: Floats, normal: Floats) -> Floats:
    """A lognormal of mean 1 whose standard deviation is the spread."""
    variance = np.log1p(spread**2)
    drawn: Floats = np.exp(np.sqrt(variance) * normal - variance / 2)
    return drawn


def slow_down(costs: Costs, program: Program, factor: Floats) -> Costs:
    """Costs with the time of each op multiplied, and what it asks of links lowered to match."""
    asking = np.diff(costs.demand.start)[costs.row] > 0
    ops = np.flatnonzero(asking)
    place, of = costs.demand.positions(costs.row[ops])
    row = np.zeros(len(program), np.int64)
    row[ops] = np.arange(1, len(ops) + 1)
    counts = np.concatenate(([0], np.diff(costs.demand.start)[costs.row[ops]]))
    return replace(
        costs,
        latency_s=costs.latency_s * factor,
        work_s=costs.work_s * factor,
        row=row,
        demand=Ragged(np.concatenate(([0], np.cumsum(counts))), costs.demand.values[place]),
        rate_bytes_per_s=costs.rate_bytes_per_s[place] / factor[ops][of],
    )
