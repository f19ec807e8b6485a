"""The model of error: what the seconds of ops may be off by, and which of them are off together.

The time of an op is off by the product of
- the factor of its phase, one error per parameter of software and device (`factors`);
- the error of its cost class, one for all ops of the class, each as far as its own spread says (`of_class`);
- its own error (`of_op`), independent from op to op.
Steps of the ledger fitted the factors, and so took in what kernels of a device share; there what is left of a spread
differs from op to op, but for what awkward shapes add, which no step of the ledger had. A device that no step ran on,
phases without a factor, and updates have no such fit: there a spread is shared by the class.

Beside that the uneven load of experts is one error of their phases, and the step as a whole is off by `floor`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..costs import PHASES, Costs

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Errors:
    """One entry per op unless said otherwise. `by_phase` and `floor` are of logarithms, `of_class` and `of_op` relative
    standard deviations about a mean of 1.

    `by_phase` is the covariance of the factors of phases, shape [len(PHASES), len(PHASES)]. `phase` indexes PHASES; an
    op that is a whole action has its number in `part`, others -1, and `mix` the shares of phases in the time of each
    part, shape [parts, len(PHASES)]. `of_class` is shared by ops of one `cost_class`, `of_op` by none. `floor` is of
    the whole.
    """

    by_phase: Floats
    phase: NDArray[np.int64]
    part: NDArray[np.int64]
    mix: Floats
    of_class: Floats
    cost_class: NDArray[np.int64]
    of_op: Floats
    floor: float

    def seconds_by_phase(self, ops: NDArray[np.int64], seconds: Floats) -> Floats:
        """Seconds of some ops by phase, whole actions by their mix."""
        part = self.part[ops]
        found = np.bincount(self.phase[ops], seconds * (part < 0), minlength=len(PHASES))
        mixed: Floats = found + seconds[part >= 0] @ self.mix[part[part >= 0]]
        return mixed

    def factor_of_op(self, factor: Floats) -> Floats:
        """How many times as long each op takes if phases take so many times as long."""
        found = factor[self.phase]
        whole = self.part >= 0
        found[whole] = (self.mix @ factor)[self.part[whole]]
        return found


def of_spreads(costs: Costs) -> Errors:
    """Of costs alone: ops of a class share one error, each as far as its own spread says."""
    ops = len(costs.spread)
    return Errors(
        by_phase=np.zeros((len(PHASES), len(PHASES))),
        phase=np.zeros(ops, np.int64),
        part=np.full(ops, -1, np.int64),
        mix=np.zeros((0, len(PHASES))),
        of_class=costs.spread,
        cost_class=costs.cost_class,
        of_op=np.zeros(ops),
        floor=0.0,
    )
