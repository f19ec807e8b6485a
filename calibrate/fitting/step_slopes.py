"""What rows of the ledger say of the parameters of training steps: slopes of ln(seconds), and what a fit leaves open.

The covariance is that of the fit's own least squares: slopes by each parameter, rows weighed as the fit weighs them,
and parameters apart from what they rest on as priors. Rows that are left out of the fit are left out of it.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...simulator.answers.validate.steps import StepCase
from ...simulator.base.arrays import Floats
from ...simulator.systems.train_step.terms import terms_of
from ...simulator.uncertainty import Fit, Term, kin_of
from .ledger import NU
from .owners import OWNERS, owner_of
from .step_ledger import Crew, usable
from .steps import SIGMA, Bools, source_weights, spread_of

_MOVES = 0.01
"""The least slope with which a row tells of a parameter."""

Key = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Slopes:
    """Derivatives of ln(seconds) of rows, by phase (shape [rows, phases]) and by parameter; `weight` as in the fit.

    `error` is ln(predicted / measured), `others` the variance of what neither factors nor widths say.
    """

    cases: Sequence[StepCase]
    terms: Sequence[Sequence[Term]]
    keys: Sequence[Key]
    by_phase: Floats
    by_parameter: Floats
    error: Floats
    others: Floats
    weight: Floats


def slopes_of(path: Path) -> Slopes:
    """Simulate the rows of a ledger as shipped.

    Raises:
        UserError: the table cannot be read, or none of its rows can be predicted.
    """
    cases = usable(path)
    with Crew(path, [case.key for case in cases]) as crew:
        answers = crew.predict({row: {} for row in range(len(cases))})
    found = [answers[row] for row in range(len(cases))]
    seconds, measured = (np.array([one.seconds for one in every]) for every in (found, cases))
    by_phase = np.array([answer.phase_s for answer in found]) / seconds[:, None]
    terms = [terms_of(case.resolved) for case in cases]
    free = [(row, term) for row, its in enumerate(terms) for term in its if term.stated is None]
    keys = list(dict.fromkeys((term.of, term.name) for _, term in free))
    at = {key: place for place, key in enumerate(keys)}
    by_parameter = np.zeros((len(cases), len(keys)))
    for row, term in free:
        by_parameter[row, at[term.of, term.name]] += term.power * by_phase[row, term.phase]
    error = np.log(seconds / measured)
    weight = source_weights(cases) * (NU + 1) / (NU + (error / SIGMA) ** 2) / SIGMA**2
    others = np.array([answer.own_variance for answer in found])
    return Slopes(cases, terms, keys, by_phase, by_parameter, error, others, weight)


def fit_of(slopes: Slopes, kept: Bools, apart: Mapping[str, float]) -> Fit:
    """What these rows leave open, of the parameters that they tell about."""
    told = np.flatnonzero((np.abs(slopes.by_parameter[kept]) > _MOVES).any(axis=0))
    keys = [slopes.keys[at] for at in told.tolist()]
    moved = slopes.by_parameter[kept][:, told]
    prior = np.diag([1 / apart[kin_of(name)] ** 2 for _, name in keys])
    told_of = (moved * slopes.weight[kept][:, None]).T @ moved
    covariance = np.asarray(np.linalg.inv(told_of + prior), np.float64)
    heard: set[str] = set()
    sources: dict[Key, frozenset[str]] = {}
    for case in itertools.compress(slopes.cases, kept.tolist()):
        devices, source = devices_of(case), case.cells.text("source")
        heard |= {owner.of_case(case) for owner in OWNERS} | set(devices)
        sources |= {(case.stack, of): sources.get((case.stack, of), frozenset()) | {source} for of in devices}
    return Fit(covariance, {key: at for at, key in enumerate(keys)}, apart, frozenset(heard), sources)


def devices_of(case: StepCase) -> list[str]:
    """The names of a row's devices."""
    return [device.name for device in case.resolved.devices]


def apart_of(slopes: Slopes) -> dict[str, float]:
    """How far they turned out to be, by parameter: the root of the mean of ln(factor)^2 and of what the fit left open.

    That is one step of expectation maximisation from the fit's priors, which stand where no row tells.
    """
    found: dict[str, float] = {}  # how far the fit lets them be; of devices, the farthest
    for of, name in slopes.keys:
        found[kin_of(name)] = max(found.get(kin_of(name), 0.0), spread_of(of, name))
    first = fit_of(slopes, np.ones(len(slopes.cases), bool), found)
    seen: dict[str, list[float]] = {}
    for (of, name), at in first.index.items():
        seen.setdefault(kin_of(name), []).append(_own_factor(of, name) ** 2 + float(first.covariance[at, at]))
    return found | {name: float(np.sqrt(np.mean(squares))) for name, squares in seen.items()}


def _own_factor(of: str, name: str) -> float:
    """ln of a stack's, device's or network's own factor: what the fit found of it over what it found of its base."""
    owner = owner_of(name)
    of_both = [link.of for link in owner.links(of)[:2]]
    found = [(owner.load(one), owner.base_profile(one)) for one in of_both]
    logs = [np.log(fitted.value_or(name, 1.0) / base.value_or(name, 1.0)) for fitted, base in found]
    return float(logs[0] - sum(logs[1:]))
