"""Parameters of software stacks, fitted to the ledger of weight updates.

Every free parameter has a prior from outside the ledger: its value and relative spread in the stack's own file. Rows
update it: the fit minimises, over u = log(parameter / prior),

    sum_rows w (log(predicted / measured) / SIGMA)^2 + sum_parameters (u / spread)^2

with weights w of Student's t (NU degrees of freedom), so that a row which the model misses by far counts little. So a
stack with few rows stays near what is known from elsewhere, and one without any keeps it. Predictions are simulations;
steps are Gauss-Newton with numeric derivatives. Leaving out is honest: a model's or a system's rows are taken out of
the sum, everything is fitted again, and those rows are simulated with what came out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

from ...simulator.answers.validate.updates import UpdateCase, free_parameters, read_cases
from ...simulator.base.arrays import Floats
from ...simulator.base.errors import UserError
from ...simulator.base.files import digest
from ...simulator.profile import load_stack, stack_chain
from .owners import Entry, Tables, entry, statements

SIGMA = 0.08
"""Relative scatter of rows about a good model: published times are single runs, to two or three digits."""

NU = 4.0
_STEP = 0.05
_STEPS = 4


def student_weights(error: Floats, sigma: float, of_rows: Floats | float = 1.0) -> Floats:
    """What each row's log error is multiplied by: Student's t about `sigma`, times the root of the row's own weight."""
    weight: Floats = np.sqrt(of_rows * (NU + 1) / (NU + (error / sigma) ** 2)) / sigma
    return weight


def least_squares(
    error: Floats, slopes: Floats, weight: Floats, u: Floats, spread: Floats, lowest: Floats | float = -np.inf
) -> Floats:
    """The parameters, each at least its `lowest`, by weighted least squares, linearised at u; priors are rows."""
    matrix = np.vstack([slopes * weight[:, None], np.diag(1 / spread)])
    aim = np.concatenate([(slopes @ u - error) * weight, np.zeros(len(u))])
    solved: Floats = lsq_linear(matrix, aim, (lowest, np.inf), method="bvls").x
    return solved


def deviations(slopes: Floats, weight: Floats, spread: Floats) -> Floats:
    """Standard deviation of each parameter that such a fit leaves."""
    weighted = slopes * weight[:, None]
    return np.sqrt(np.diag(np.linalg.inv(weighted.T @ weighted + np.diag(1 / spread**2))))


def fit_content(
    command: str, path: Path, parameters: int, sigma: float, tables: Tables, keys: Sequence[str],
    left_out: Mapping[str, Floats],
) -> dict[str, Any]:  # fmt: skip
    """What a fit to the rows with these keys of a ledger is written as; `left_out` are their errors, by what was out of
    the fit with each.
    """
    return {
        "about": {
            "command": f"runcast calibrate stacks{command}",
            "file": path.name,
            "sha256": digest(path),
            "rows": len(keys),
            "parameters": parameters,
            "sigma": sigma,
            "nu": NU,
        },
        **tables,
        "stated": statements(tables),
        "left_out": {
            key: {name: round(float(errors[row]), 4) for name, errors in left_out.items()}
            for row, key in enumerate(keys)
        },
    }


@dataclass(frozen=True, eq=False)
class Fitted:
    """What came out: `u` by free parameter, its standard deviations, the log error of each row, and its
    slopes `[row, parameter]`."""

    u: Floats
    deviation: Floats
    log_error: Floats
    slopes: Floats


class UpdateFit:
    """Rows of weight updates, and the parameters of stacks that they may move, with their priors.

    `free` are (stack, parameter), of which in a row that of the nearest stack counts that the row's own rests on.
    """

    def __init__(self, cases: Sequence[UpdateCase], wanted: Mapping[str, Sequence[str]]):
        self.cases = cases
        self.free = [(stack, name) for stack, names in wanted.items() for name in names]
        stacks = {stack: load_stack(stack, fitted=False) for stack in wanted}
        self.priors = [stacks[stack][name] for stack, name in self.free]
        self.spread = np.array([prior.spread for prior in self.priors])
        self._columns = [self._columns_of(stack_chain(case.stack)) for case in cases]

    def _columns_of(self, chain: Sequence[str]) -> dict[str, int]:
        """The index in `free` of each parameter of a chain."""
        return {name: at for stack in reversed(chain) for at, (of, name) in enumerate(self.free) if of == stack}

    def fit(self) -> Fitted:
        """All free parameters fitted to all rows."""
        u = np.zeros(len(self.free))
        for _ in range(_STEPS):
            u = self._solve(*self._linear(u), u)
        error, slopes = self._linear(u)
        return Fitted(u, deviations(slopes, student_weights(error, SIGMA), self.spread), error, slopes)

    def leave_groups_out(self, found: Fitted, groups: Sequence[str]) -> Floats:
        """Predicted over measured, less one, of each row with all rows of its group out of the fit.

        The other rows are taken as linear in u about the full fit; the rows left out are simulated.
        """
        errors = np.zeros(len(self.cases))
        for group in dict.fromkeys(groups):
            kept = np.array([of != group for of in groups])
            u = found.u
            for _ in range(20):
                error = found.log_error + found.slopes @ (u - found.u)
                u = self._solve(error[kept], found.slopes[kept], u)
            for row in np.flatnonzero(~kept).tolist():
                errors[row] = np.exp(self._log_error(row, u)) - 1
        return errors

    def _linear(self, u: Floats) -> tuple[Floats, Floats]:
        """Log error of each row, and its derivative by each free parameter."""
        error = np.array([self._log_error(row, u) for row in range(len(self.cases))])
        slopes = np.zeros((len(self.cases), len(self.free)))
        for row, columns in enumerate(self._columns):
            for column in columns.values():
                moved = u.copy()
                moved[column] += _STEP
                slopes[row, column] = (self._log_error(row, moved) - error[row]) / _STEP
        return error, slopes

    def _log_error(self, row: int, u: Floats) -> float:
        values = {name: self.priors[at].value * float(np.exp(u[at])) for name, at in self._columns[row].items()}
        return float(np.log(self.cases[row].answer_s(values) / self.cases[row].seconds))

    def _solve(self, error: Floats, slopes: Floats, u: Floats) -> Floats:
        solved = least_squares(error, slopes, student_weights(error, SIGMA), u, self.spread)
        return np.clip(solved, u - 1.0, u + 1.0)  # at most by e in one step


def fit_ledger(path: Path) -> dict[str, Any]:
    """The content of data/validation/weight_update_fit.json for a table of weight updates.

    Raises:
        UserError: the table cannot be read, or none of its rows can be predicted.
    """
    cases = [case for case in read_cases(path) if case.scenario is not None]
    if not cases:
        raise UserError(f"{path}: no row can be predicted")
    fit = UpdateFit(cases, free_parameters())
    found = fit.fit()
    left_out = {
        "model": fit.leave_groups_out(found, [case.model for case in cases]),
        "system": fit.leave_groups_out(found, [case.cells["system"] for case in cases]),
    }
    keys, tables = [case.key for case in cases], {"stacks": _entries(fit, found)}
    return fit_content("", path, len(fit.free), SIGMA, tables, keys, left_out)


def _entries(fit: UpdateFit, found: Fitted) -> dict[str, dict[str, Entry]]:
    """Each fitted parameter as a stack file has it; its source says what it was before and which rows moved it."""
    entries: dict[str, dict[str, Entry]] = {}
    for (stack, name), prior, u, deviation, slopes in zip(
        fit.free, fit.priors, found.u, found.deviation, found.slopes.T, strict=True
    ):
        mine = np.abs(slopes) > 0.01
        median = f"{np.median(np.abs(np.expm1(found.log_error[mine]))):.1%}" if mine.any() else "no rows"
        source = (
            f"{mine.sum()} rows of the ledger (median error {median}) "
            f"about {prior.value:g} with spread {prior.spread:g}: {prior.source}"
        )
        entries.setdefault(stack, {})[name] = entry(prior.value * np.exp(u), deviation, "fitted", source)
    return entries
