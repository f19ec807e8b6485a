"""Parameters of software stacks and devices, fitted to the ledger of training steps.

What is free is how much longer than its profile says a phase takes with some software (`time_factor.<phase>`), host
work per step and per layer, and how far a device's products fall behind once its clocks have settled. A stack rests on
another one: its factor is its base's times its own, and each has a prior, ln(factor / stated) ~ N(0, spread). So a
stack with few rows stays near its base, one without rows is its base, and leaving a stack out needs no rule of its own.

The fit minimises sum w (ln(predicted / measured) / SIGMA)^2 + sum (u / spread)^2 with weights w of Student's t and of
the source, so that large sources do not drown small ones. A step is the sum of its critical path, so between two
simulations of all rows it is taken as sum_phase seconds x factor: exact to first order, and convex. Rows that are left
out are simulated with what the others gave.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...simulator.costs import PHASES
from ...simulator.profile import FACTORS, load_stack, stack_chain
from ...simulator.validate.steps import Case

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SIGMA, NU = 0.05, 4.0
SOURCE_POWER = -0.35
"""Of the number of rows of a source, its rows' weight."""

SPREADS = {
    "gemm": 0.1, "attention": 0.35, "experts": 0.3, "memory": 0.35, "loss": 0.4, "optimizer": 0.6, "tp": 0.35,
    "cp": 0.4, "ep": 0.5, "dp": 0.5, "fsdp": 0.5, "pipeline": 0.5, "host": 1.0, "layer.tp_s": 1.0,
}  # fmt: skip
"""How far software is from its base, by phase; what profiles miss in short runs is a part of it."""

SUSTAINED_SPREAD = 0.2
_TYPES = {"fp8": ".fp8", "fp8-block": ".fp8", "mxfp8": ".fp8", "nvfp4": ".fp4"}
_SUSTAINED = "gemm.sustained_fraction"
_LAUNCHES_S = 1e-4
"""Launches of a pass over a layer, by profiles: only the slope of `layer.tp_s` rests on it."""


@dataclass(frozen=True)
class Free:
    """A free parameter: of which stack or profile, and what it is there before the fit."""

    of: str
    name: str
    spread: float
    stated: float


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

    def _terms(self, row: int, case: Case) -> list[tuple[int, int, int, float]]:
        """(row, phase, parameter, +1 or -1): what of a row's time goes with a parameter or its inverse."""
        chain, found = self.chains[case.stack], list[tuple[int, int, int, float]]()
        for phase in FACTORS:
            names = ["layer.tp_s"] if phase == "host" and blocked(case) else []
            for name in [f"time_factor.{phase}", *names]:
                found += [(row, PHASES.index(phase), self._at(of, name, phase), 1.0) for of in chain]
        settled = self._at(case.resolved.profile_name, _SUSTAINED + self._type(case), "")
        found += [(row, PHASES.index(phase), settled, -1.0) for phase in ("gemm", "experts")]
        return found

    @staticmethod
    def _type(case: Case) -> str:
        assert case.scenario is not None
        return _TYPES.get(case.scenario["precision"]["compute"], "")

    def _at(self, of: str, name: str, phase: str) -> int:
        key = (of, name)
        if key not in self._index:
            self._index[key] = len(self.free)
            spread = SPREADS.get(name, SPREADS.get(phase, SUSTAINED_SPREAD))
            self.free.append(Free(of, name, spread, 1.0))
        return self._index[key]

    @cached_property
    def spread(self) -> Floats:
        """Of each free parameter."""
        return np.array([free.spread for free in self.free])

    def values(self, row: int, u: Floats) -> dict[str, float]:
        """The parameters of a row's profile and stack."""
        case = self.cases[row]
        stack = load_stack(case.stack, fitted=False).parameters
        found = {}
        for name in {self.free[at].name for at in self.at[self.row == row]}:
            owners = [case.resolved.profile_name] if name.startswith(_SUSTAINED) else self.chains[case.stack]
            shift = sum(u[self._index[of, name]] for of in owners)
            default = 0.0 if name == "layer.tp_s" else 1.0
            stated = stack[name].value if name in stack else default
            found[name] = float(stated * np.exp(shift))
        return found

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

    def _step(self, rows: Rows, kept: NDArray[np.bool_], u: Floats) -> Floats:
        """Weighted least squares about u, with the priors as further rows."""
        seconds, by_phase = self.predicted(rows, u)
        error = np.log(seconds / self.measured)
        slopes = np.zeros((len(error), len(self.free)))
        np.add.at(slopes, (self.row, self.at), self.sign * (by_phase / seconds[:, None])[self.row, self.phase])
        weight = np.sqrt(self.weight * (NU + 1) / (NU + (error / SIGMA) ** 2)) / SIGMA * kept
        matrix = np.vstack([slopes * weight[:, None], np.diag(1 / self.spread)])
        aim = np.concatenate([(slopes @ u - error) * weight, np.zeros(len(u))])
        found: Floats = np.linalg.lstsq(matrix, aim, rcond=None)[0]
        return found


def blocked(case: Case) -> bool:
    """Whether a row has tensor parallelism in a pipeline over several nodes."""
    dims, nodes = case.resolved.dims, len(case.resolved.cluster.nodes)
    return dims.tp > 1 and dims.pp > 1 and nodes > 1
