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
from numpy.typing import NDArray

from ...simulator.answers.validate.updates import UpdateCase, free_in_ledger, read_cases
from ...simulator.base.errors import UserError
from ...simulator.base.files import digest
from ...simulator.profile import Parameter, load_stack, stack_chain
from .owners import statements

SIGMA = 0.08
"""Relative scatter of rows about a good model: published times are single runs, to two or three digits."""

NU = 4.0
_STEP = 0.05
_STEPS = 4

Floats = NDArray[np.float64]
Free = tuple[tuple[str, str], ...]
"""(stack, parameter) of each free parameter."""


@dataclass(frozen=True)
class Fitted:
    """What came out: `u` by free parameter, its standard deviations, the log error of each row, and its
    slopes `[row, parameter]`."""

    free: Free
    priors: tuple[Parameter, ...]
    u: Floats
    deviation: Floats
    log_error: Floats
    slopes: Floats


def free_parameters(wanted: Mapping[str, Sequence[str]]) -> tuple[Free, tuple[Parameter, ...]]:
    """The free parameters and their priors."""
    free = tuple((stack, name) for stack, names in wanted.items() for name in names)
    priors = {stack: load_stack(stack, fitted=False) for stack in wanted}
    return free, tuple(priors[stack][name] for stack, name in free)


def fit(
    cases: Sequence[UpdateCase], chains: Mapping[str, Sequence[str]], wanted: Mapping[str, Sequence[str]]
) -> Fitted:
    """Fit all free parameters to all cases; `chains` are the stacks that each stack rests on, itself first."""
    free, priors = free_parameters(wanted)
    spread = np.array([prior.spread for prior in priors])
    u = np.zeros(len(free))
    for _ in range(_STEPS):
        error, slopes = _linear(cases, chains, free, priors, u)
        u = _solved(error, slopes, u, spread)
    error, slopes = _linear(cases, chains, free, priors, u)
    return Fitted(free, priors, u, deviations(slopes, student_weights(error, SIGMA), spread), error, slopes)


def left_out(
    cases: Sequence[UpdateCase], chains: Mapping[str, Sequence[str]], found: Fitted, groups: Sequence[str]
) -> Floats:
    """Predicted over measured, less one, of each row with all rows of its group out of the fit.

    The other rows are taken as linear in u about the full fit; the rows left out are simulated.
    """
    spread = np.array([prior.spread for prior in found.priors])
    errors = np.zeros(len(cases))
    for group in dict.fromkeys(groups):
        kept = np.array([of != group for of in groups])
        u = found.u
        for _ in range(20):
            error = found.log_error + found.slopes @ (u - found.u)
            u = _solved(error[kept], found.slopes[kept], u, spread)
        for row in np.flatnonzero(~kept).tolist():
            errors[row] = np.exp(_log_error(cases[row], chains, found.free, found.priors, u)) - 1
    return errors


def _linear(
    cases: Sequence[UpdateCase], chains: Mapping[str, Sequence[str]], free: Free, priors: Sequence[Parameter], u: Floats
) -> tuple[Floats, Floats]:
    """Log error of each row, and its derivative by each free parameter."""
    error = np.array([_log_error(case, chains, free, priors, u) for case in cases])
    slopes = np.zeros((len(cases), len(free)))
    for column, (stack, name) in enumerate(free):
        moved = u.copy()
        moved[column] += _STEP
        for row, case in enumerate(cases):
            if _nearest(chains[case.stack], name, free) == stack:
                slopes[row, column] = (_log_error(case, chains, free, priors, moved) - error[row]) / _STEP
    return error, slopes


def _nearest(chain: Sequence[str], name: str, free: Free) -> str | None:
    """The stack of a chain whose free parameter of this name counts."""
    return next((stack for stack in chain if (stack, name) in free), None)


def _log_error(
    case: UpdateCase, chains: Mapping[str, Sequence[str]], free: Free, priors: Sequence[Parameter], u: Floats
) -> float:
    answer = case.answer(_values(free, priors, u, chains[case.stack]))
    return float(np.log(answer.seconds / case.seconds))


def _values(free: Free, priors: Sequence[Parameter], u: Floats, chain: Sequence[str]) -> dict[str, float]:
    values: dict[str, float] = {}
    for stack in reversed(chain):
        values |= {name: prior.value * float(np.exp(x))
                   for (of, name), prior, x in zip(free, priors, u, strict=True) if of == stack}  # fmt: skip
    return values


def student_weights(error: Floats, sigma: float, of_rows: Floats | float = 1.0) -> Floats:
    """What each row's log error is multiplied by: Student's t about `sigma`, times the root of the row's own weight."""
    weight: Floats = np.sqrt(of_rows * (NU + 1) / (NU + (error / sigma) ** 2)) / sigma
    return weight


def least_squares(error: Floats, slopes: Floats, weight: Floats, u: Floats, spread: Floats) -> Floats:
    """Where weighted least squares, linear about u, put the parameters; their priors are further rows."""
    matrix = np.vstack([slopes * weight[:, None], np.diag(1 / spread)])
    aim = np.concatenate([(slopes @ u - error) * weight, np.zeros(len(u))])
    solved: Floats = np.linalg.lstsq(matrix, aim, rcond=None)[0]
    return solved


def deviations(slopes: Floats, weight: Floats, spread: Floats) -> Floats:
    """Standard deviation of each parameter that such a fit leaves."""
    weighted = slopes * weight[:, None]
    return np.sqrt(np.diag(np.linalg.inv(weighted.T @ weighted + np.diag(1 / spread**2))))


def _solved(error: Floats, slopes: Floats, u: Floats, spread: Floats) -> Floats:
    solved = least_squares(error, slopes, student_weights(error, SIGMA), u, spread)
    return np.clip(solved, u - 1.0, u + 1.0)  # at most by e in one step


def fit_ledger(path: Path) -> dict[str, Any]:
    """The content of data/validation/weight_update_fit.json for a table of weight updates.

    Raises:
        UserError: the table cannot be read, or none of its rows can be predicted.
    """
    cases = [case for case in read_cases(path) if case.scenario is not None]
    if not cases:
        raise UserError(f"{path}: no row can be predicted")
    chains = {case.stack: stack_chain(case.stack) for case in cases}
    found = fit(cases, chains, free_in_ledger())
    by_model = left_out(cases, chains, found, [case.model for case in cases])
    tables = {"stacks": _entries(cases, chains, found)}
    by_system = left_out(cases, chains, found, [case.cells["system"] for case in cases])
    return {
        "about": {
            "command": "runcast calibrate stacks",
            "file": path.name,
            "sha256": digest(path),
            "rows": len(cases),
            "parameters": len(found.free),
            "sigma": SIGMA,
            "nu": NU,
        },
        **tables,
        "stated": statements(tables),
        "left_out": {
            case.key: {"model": round(float(model), 4), "system": round(float(system), 4)}
            for case, model, system in zip(cases, by_model, by_system, strict=True)
        },
    }


def _entries(
    cases: Sequence[UpdateCase], chains: Mapping[str, Sequence[str]], found: Fitted
) -> dict[str, dict[str, dict[str, Any]]]:
    """Each fitted parameter as a stack file has it; its source says what it was before and which rows moved it."""
    entries: dict[str, dict[str, dict[str, Any]]] = {}
    columns = zip(found.free, found.priors, found.u, found.deviation, found.slopes.T, strict=True)
    for (stack, name), prior, u, deviation, slopes in columns:
        rows = int((np.abs(slopes) > 0.01).sum())
        entries.setdefault(stack, {})[name] = {
            "value": float(f"{prior.value * np.exp(u):.4g}"),
            "spread": float(f"{deviation:.3g}"),
            "provenance": "fitted",
            "source": f"{rows} rows of the ledger (median error {_median(found, slopes)}) "
            f"about {prior.value:g} with spread {prior.spread:g}: {prior.source}",
        }
    return entries


def _median(found: Fitted, slopes: Floats) -> str:
    """The median absolute error of the rows that a parameter moves."""
    mine = np.abs(slopes) > 0.01
    return f"{np.median(np.abs(np.expm1(found.log_error[mine]))):.1%}" if mine.any() else "no rows"
