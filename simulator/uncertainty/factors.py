"""The covariance of the factors of phases: the remaining uncertainty of each stack and device after the fit.

The file beside the ledger holds the covariance of the fitted parameters, the typical distance of stacks and devices
from their bases, and the widths of the other errors. `runcast calibrate errors` writes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.files import read_json
from ..costs import PHASES

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Term:
    """The seconds of a phase are proportional to the parameter `name` of a stack or profile (`of`), to this `power`.

    `stated` is the relative standard deviation in a user's own file; for shipped files the fit determines it.
    """

    phase: int
    of: str
    name: str
    power: float
    stated: float | None = None


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of the fit of errors of training steps. All widths are standard deviations of logarithms.

    `covariance` is the covariance of ln(parameter), shape [parameters, parameters]; `index` maps (stack or profile,
    parameter) to its rows. `apart` is, by parameter, the typical distance between a stack or device and its base.
    `heard` are the stacks, profiles and devices with rows in the ledger. `scale` multiplies the fitted deviations.
    `routing` is the error of experts and their exchanges because tokens choose experts unevenly. `floor` is the
    distance of a configuration from its stack's factors, and `run_to_run` the spread of repeated runs. `data_sheet` is
    the error that all steps on a device of a data sheet have in common (`runcast calibrate data-sheets`).
    """

    covariance: Floats
    index: Mapping[tuple[str, str], int]
    apart: Mapping[str, float]
    heard: frozenset[str]
    scale: float = 1.0
    routing: float = 0.0
    floor: float = 0.0
    run_to_run: float = 0.0
    data_sheet: float = 0.0
    about: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@cache
def shipped_fit() -> Fit:
    """The fit that ships with runcast; an empty one if there is no file."""
    folder = files("runcast.data") / "validation"
    file, sheets = folder / "training_errors.json", folder / "data_sheet_errors.json"
    if not file.is_file():
        return Fit(np.zeros((0, 0)), {}, {}, frozenset())
    found = read_json(file)
    if sheets.is_file():
        found["widths"] |= read_json(sheets)["widths"]
    index = {(of, name): at for at, (of, name) in enumerate(found["parameters"])}
    root = np.zeros((len(index), len(index)))  # Cholesky factor: rounding keeps eigenvalues >= 0
    root[np.tril_indices(len(index))] = found["root"]
    widths = {name: float(width["value"]) for name, width in found["widths"].items()}
    return Fit(root @ root.T, index, found["apart"], frozenset(found["heard"]), about=found["about"],
               left_out=found["left_out"], **widths)  # fmt: skip


def factor_covariance(terms: Sequence[Term], fit: Fit) -> Floats:
    """The covariance of ln(seconds) of phases from errors of the terms, shape [len(PHASES), len(PHASES)]."""
    known, new = split_covariance(terms, fit)
    return fit.scale**2 * known + new


def split_covariance(terms: Sequence[Term], fit: Fit) -> tuple[Floats, Floats]:
    """The covariance of `factor_covariance` in two parts: from fitted parameters (not scaled), and from new ones.

    A parameter without rows differs from its base by the typical distance: one error, common to all phases that use it.
    """
    seen = [term for term in terms if term.stated is None and (term.of, term.name) in fit.index]
    at = list(dict.fromkeys(fit.index[term.of, term.name] for term in seen))
    power = np.zeros((len(PHASES), len(at)))
    for term in seen:
        power[term.phase, at.index(fit.index[term.of, term.name])] += term.power
    known: Floats = power @ fit.covariance[np.ix_(at, at)] @ power.T
    moved: dict[tuple[str, str], Floats] = {}
    unseen = [term for term in terms if term.stated is not None or (term.of, term.name) not in fit.index]
    for term in (*unseen, *_unheard(seen, terms, fit)):
        spread = term.stated if term.stated is not None else fit.apart.get(term.name, 0.0)
        moved.setdefault((term.of, term.name), np.zeros(len(PHASES)))[term.phase] += term.power * spread
    each = np.array([*moved.values()]).reshape(len(moved), len(PHASES))
    new: Floats = each.T @ each
    return known, new


def _unheard(seen: Sequence[Term], terms: Sequence[Term], fit: Fit) -> list[Term]:
    """Extra terms for bases without rows of their own: new software, or a new device, differs from its base too."""
    first: dict[str, str] = {}
    for term in terms:
        first.setdefault(term.name, term.of)
    bases = [term for term in seen if term.of == first[term.name] and term.of not in fit.heard]
    return [replace(term, of=f"like {term.of}") for term in bases]
