"""Parameters of software stacks and devices, fitted to the ledger of training steps.

What is free is how much longer than its profile says a phase takes with some software (`time_factor.<phase>`), host
work per step and per layer, and how far a device's products fall behind once its clocks have settled. A stack rests on
another one: its factor is its base's times its own, and each has a prior, ln(factor / stated) ~ N(0, spread). So a
stack with few rows stays near its base, one without rows is its base, and leaving a stack out needs no rule of its own.

The fit minimises sum w (ln(predicted / measured) / SIGMA)^2 + sum (u / spread)^2 with weights w of Student's t and of
the source, so that large sources do not drown small ones. A step is the sum of its critical path, so between two
simulations of all rows it is taken as sum_phase seconds x factor: exact to first order for factors of phases. Host work
beside launches, and clocks behind products of experts, share a phase with other parameters: there it is a guess, which
the next simulation corrects. Rows that are left out are simulated with what the others gave.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...simulator.costs import PHASES, PRODUCT_TYPE
from ...simulator.profile import FACTORS, Parameter, load_profile, load_stack, stack_chain
from ...simulator.validate.steps import Case

Floats = NDArray[np.float64]
Term = tuple[int, int, int, float]
"""(row, phase, parameter, +1 or -1): what of a row's time goes with a parameter or its inverse."""

SIGMA, NU = 0.05, 4.0
SOURCE_POWER = -0.35
"""Of the number of rows of a source, its rows' weight."""

_BLOCKED = "layer.tp_s"

SPREADS = {
    "gemm": 0.07, "attention": 0.2, "experts": 0.2, "memory": 0.2, "loss": 0.25, "optimizer": 0.35, "tp": 0.2,
    "cp": 0.25, "ep": 0.25, "dp": 0.3, "fsdp": 0.3, "pipeline": 0.25, "host": 0.6, _BLOCKED: 0.6,
}  # fmt: skip
"""How far software is from its base, by phase: of three floors, 1.7 times as far from what is stated."""

SUSTAINED_SPREAD = 0.2
_MOVES = 0.01
"""The least slope with which a row counts as one that a parameter moves."""

_OWN_FRACTION = ("fp8", "fp4")
"""Types whose products settle at a fraction of their own."""


@dataclass(frozen=True)
class Free:
    """A free parameter: of which stack or profile, and how far it is from what is stated there."""

    of: str
    name: str
    spread: float


@dataclass(frozen=True, eq=False)
class Rows:
    """What all rows gave in one simulation with parameters `u`: seconds by row and phase of the critical path."""

    u: Floats
    seconds: Floats
    phase_s: Floats


class Design:
    """Which free parameters stand behind which phase of which row."""

    def __init__(self, cases: Sequence[Case]):
        self.cases = cases
        self.measured = np.array([case.cells.number("iter_time_s") for case in cases])
        self.chains = {case.stack: stack_chain(case.stack) for case in cases}
        self._index: dict[tuple[str, str], int] = {}
        self.free: list[Free] = []
        self.weight = self._weights()
        terms = [term for row, case in enumerate(cases) for term in self._terms(row, case)]
        self.row, self.phase, self.at = np.array([term[:3] for term in terms], np.int64).T
        self.sign = np.array([term[3] for term in terms])

    def _weights(self) -> Floats:
        sources = [case.cells.text("source") for case in self.cases]
        many = np.array([sources.count(source) for source in sources], np.float64)
        return (many / np.median(many)) ** SOURCE_POWER

    def _terms(self, row: int, case: Case) -> list[Term]:
        found = list[Term]()
        for phase in FACTORS:
            name = f"time_factor.{phase}"
            found += [(row, PHASES.index(phase), self._at(of, name, phase), 1.0) for of in self.chains[case.stack]]
        if case.resolved.tp_in_far_pipeline and _BLOCKED in self.stated(case):
            found.append((row, PHASES.index("host"), self._at(case.stack, _BLOCKED, ""), 1.0))
        return found + list(self._of_device(row, case))

    def _of_device(self, row: int, case: Case) -> Iterator[Term]:
        device = case.resolved.profile_name
        yield row, PHASES.index("gemm"), self._at(device, "gemm.sustained_fraction" + self._type(case), ""), -1.0
        yield row, PHASES.index("experts"), self._at(device, "grouped_gemm.sustained_fraction", ""), -1.0
        if case.resolved.scenario.attention == "flash-2":
            yield row, PHASES.index("attention"), self._at(device, "attention.flash2_factor", ""), 1.0

    @staticmethod
    def _type(case: Case) -> str:
        computed = case.resolved.scenario.precision.compute
        kept = PRODUCT_TYPE.get(computed, computed)
        return f".{kept}" if kept in _OWN_FRACTION else ""

    def _at(self, of: str, name: str, phase: str) -> int:
        key = (of, name)
        if key not in self._index:
            self._index[key] = len(self.free)
            spread = SPREADS.get(name, SPREADS.get(phase, SUSTAINED_SPREAD))
            self.free.append(Free(of, name, spread))
        return self._index[key]

    @cached_property
    def spread(self) -> Floats:
        """Of each free parameter."""
        return np.array([free.spread for free in self.free])

    def values(self, row: int, u: Floats) -> dict[str, float]:
        """The parameters of a row's profile and stack."""
        case = self.cases[row]
        stated = self.stated(case)
        found = dict[str, float]()
        for at in set(self.at[self.row == row].tolist()):
            name = self.free[at].name
            before = stated[name].value if name in stated else 1.0
            found[name] = found.get(name, before) * float(np.exp(u[at]))
        return found

    @staticmethod
    def stated(case: Case) -> Mapping[str, Parameter]:
        """What the files of a row's profile and stack say, without what a fit has found."""
        profile = load_profile(case.resolved.profile_name, fitted=False)
        return {**profile.parameters, **load_stack(case.stack, fitted=False).parameters}

    def predicted(self, rows: Rows, u: Floats) -> tuple[Floats, Floats]:
        """Seconds of each row and phase, and by phase, with other parameters than those of the simulation."""
        shift = np.zeros_like(rows.phase_s)
        np.add.at(shift, (self.row, self.phase), self.sign * (u - rows.u)[self.at])
        by_phase = rows.phase_s * np.exp(shift)
        return by_phase.sum(axis=1), by_phase

    def solved(self, rows: Rows, kept: NDArray[np.bool_], start: Floats, steps: int = 20) -> Floats:
        """The parameters that fit the rows that are kept."""
        u = start
        for _ in range(steps):
            change = self._step(rows, kept, u) - u
            u = u + np.clip(change, -0.5, 0.5)
            if np.abs(change).max() < 1e-3:
                break
        return u

    def value(self, free: Free, u: Floats) -> float:
        """A parameter as the file of its stack or profile would have it: with all that it rests on."""
        if of_device(free.name):
            stated, chain = load_profile(free.of, fitted=False).parameters, [free.of]
        else:
            stated, chain = load_stack(free.of, fitted=False).parameters, stack_chain(free.of)
        before = stated[free.name].value if free.name in stated else 1.0
        places = [self._index[of, free.name] for of in chain if (of, free.name) in self._index]
        return before * float(np.exp(u[places].sum()))

    def moved(self, rows: Rows) -> list[tuple[int, float, float]]:
        """Of each parameter: how many rows it moves, its standard deviation, and the median error of those rows."""
        error, slopes, weight = self._linear(rows, rows.u)
        weighted = slopes * weight[:, None]
        deviation = np.sqrt(np.diag(np.linalg.inv(weighted.T @ weighted + np.diag(1 / self.spread**2))))
        size, mine = np.abs(np.expm1(error)), np.abs(slopes) > _MOVES
        median = [float(np.median(size[rows])) if rows.any() else 0.0 for rows in mine.T]
        return list(zip(mine.sum(axis=0).tolist(), deviation.tolist(), median, strict=True))

    def _linear(self, rows: Rows, u: Floats) -> tuple[Floats, Floats, Floats]:
        """Log error of each row, its slope by each parameter, and the weight of the row."""
        seconds, by_phase = self.predicted(rows, u)
        error = np.log(seconds / self.measured)
        slopes = np.zeros((len(error), len(self.free)))
        np.add.at(slopes, (self.row, self.at), self.sign * (by_phase / seconds[:, None])[self.row, self.phase])
        return error, slopes, np.sqrt(self.weight * (NU + 1) / (NU + (error / SIGMA) ** 2)) / SIGMA

    def _step(self, rows: Rows, kept: NDArray[np.bool_], u: Floats) -> Floats:
        """Weighted least squares about u, with the priors as further rows."""
        error, slopes, weight = self._linear(rows, u)
        weight = weight * kept
        matrix = np.vstack([slopes * weight[:, None], np.diag(1 / self.spread)])
        aim = np.concatenate([(slopes @ u - error) * weight, np.zeros(len(u))])
        found: Floats = np.linalg.lstsq(matrix, aim, rcond=None)[0]
        return found


def of_device(name: str) -> bool:
    """Whether a parameter belongs to a device, not to software."""
    return name.startswith(("gemm.", "grouped_gemm.", "attention."))
