"""The interval of a prediction by Monte Carlo: sample errors, and simulate the same Program with each sample.

Unlike the first-order interval it includes changes of the critical path: the slower of two equal branches is late more
often than each branch alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from .. import engine
from ..base.arrays import Floats
from ..base.errors import UserError, fault
from ..costs import Costs
from ..program import Program, Ragged
from ..timeline import Timeline
from .errors import Errors, Interval

MOST = 100_000


@dataclass(frozen=True, eq=False)
class Draws:
    """The simulated seconds of each draw, in the order of the draws."""

    makespans_s: Floats

    def quantile_s(self, share: float) -> float:
        """The quantile in seconds: this share of the draws is below it."""
        return float(np.quantile(self.makespans_s, share))

    @property
    def interval(self) -> Interval:
        """The 90 % interval of the draws, in seconds."""
        return Interval(self.quantile_s(0.05), self.quantile_s(0.95))


def draw(
    program: Program, costs: Costs, errors: Errors, draws: int, seed: int,
    answer: Callable[[Timeline], float] = lambda run: run.makespan_s,
) -> Draws:  # fmt: skip
    """Simulate a Program `draws` times, each time with new sampled errors. Equal seeds give equal draws.

    `answer` reads the reported seconds from a Timeline.

    Raises:
        UserError: fewer than 2 or more than 100,000 draws, or a seed below 0.
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
    """Sample the factors of one draw: (the factor of each op's time, the factor of the total)."""
    covariance = errors.of_phases.covariance
    phases = random.multivariate_normal(np.zeros(len(covariance)), covariance, method="eigh")
    classes = random.standard_normal(int(errors.cost_class.max(initial=-1)) + 1)
    alone = random.standard_normal(len(errors.of_op))
    own = _about_one(errors.of_class, classes[errors.cost_class]) * _about_one(errors.of_op, alone)
    return own * errors.factor_of_op(np.exp(phases)), float(np.exp(errors.floor * random.standard_normal()))


def _about_one(spread: Floats, normal: Floats) -> Floats:
    """Lognormal factors with mean 1 and standard deviation `spread`, from standard normal numbers."""
    variance = np.log1p(spread**2)
    drawn: Floats = np.exp(np.sqrt(variance) * normal - variance / 2)
    return drawn


def slow_down(costs: Costs, program: Program, factor: Floats) -> Costs:
    """The costs with the time of each op multiplied by its factor, and its rates on links divided by it."""
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
