"""The covariance of the factors of phases: the remaining uncertainty of each stack and device after the fit.

The file beside the ledger holds the covariance of the fitted parameters, the typical distance of stacks and devices
from their bases, and the widths of the other errors. `runcast calibrate errors` writes it.
"""

from collections.abc import Iterable, Mapping, Sequence
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
    parameter) to its rows. `apart` is, by parameter, the typical distance between a stack or device and its base, and
    `novelty` the part of it that a step of a new one is off by.
    `heard` are the stacks, profiles and devices with rows in the ledger, `sources` those of a stack on a device.
    `site` is the error that all runs of a source share. `routing` is the error of experts and their exchanges because
    tokens choose experts unevenly. `floor` is the distance of a configuration from its stack's factors, and
    `run_to_run` the spread of repeated runs.
    """

    covariance: Floats
    index: Mapping[tuple[str, str], int]
    apart: Mapping[str, float]
    heard: frozenset[str]
    sources: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    site: float = 0.0
    novelty: float = 1.0
    routing: float = 0.0
    floor: float = 0.0
    run_to_run: float = 0.0
    about: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def sites(self, stack: str, devices: Iterable[str]) -> int:
        """How many sources ran this stack on these devices; of several devices, on the one with the fewest."""
        return min((len(self.sources.get((stack, device), ())) for device in devices), default=0)

    def site_weight(self, stack: str, devices: Iterable[str], source: str) -> float:
        """How many times site^2 the variance of a run of `source` is.

        A source of the fit has none: its own runs are what it says. Another one is a new site, and what is known of the
        stack is the mean of m sites, which is off by site^2 / m. No rows tell no more than those of one site.
        """
        if any(source in known for known in self.sources.values()):
            return 0.0
        return 1.0 + 1.0 / max(self.sites(stack, devices), 1)


@cache
def shipped_fit() -> Fit:
    """The fit that ships with runcast; an empty one if there is no file."""
    file = files("runcast.data") / "validation" / "training_errors.json"
    if not file.is_file():
        return Fit(np.zeros((0, 0)), {}, {}, frozenset())
    found = read_json(file)
    index = {(of, name): at for at, (of, name) in enumerate(found["parameters"])}
    root = np.zeros((len(index), len(index)))  # Cholesky factor: rounding keeps eigenvalues >= 0
    root[np.tril_indices(len(index))] = found["root"]
    widths = {name: float(width["value"]) for name, width in found["widths"].items()}
    sources = {(of, on): frozenset(names) for of, every in found["sources"].items() for on, names in every.items()}
    return Fit(root @ root.T, index, found["apart"], frozenset(found["heard"]), sources, about=found["about"],
               left_out=found["left_out"], **widths)  # fmt: skip


def factor_covariance(terms: Sequence[Term], fit: Fit) -> Floats:
    """The covariance of ln(seconds) of phases from errors of the terms, shape [len(PHASES), len(PHASES)]."""
    known, new, stated = split_covariance(terms, fit)
    return known + fit.novelty**2 * new + stated


def split_covariance(terms: Sequence[Term], fit: Fit) -> tuple[Floats, Floats, Floats]:
    """The covariance of `factor_covariance` in parts: fitted parameters, new ones (for `novelty` 1), stated ones.

    A parameter without rows differs from its base by the typical distance: one error, common to all phases that use it.
    """
    stated = [(term, term.stated) for term in terms if term.stated is not None]
    free = [term for term in terms if term.stated is None]
    seen = [term for term in free if (term.of, term.name) in fit.index]
    unseen = [term for term in free if (term.of, term.name) not in fit.index]
    new = [(term, fit.apart.get(term.name, 0.0)) for term in (*unseen, *_unheard(seen, terms, fit))]
    return _of_fitted(seen, fit), _of_spreads(new), _of_spreads(stated)


def _of_fitted(seen: Sequence[Term], fit: Fit) -> Floats:
    at = list(dict.fromkeys(fit.index[term.of, term.name] for term in seen))
    power = np.zeros((len(PHASES), len(at)))
    for term in seen:
        power[term.phase, at.index(fit.index[term.of, term.name])] += term.power
    known: Floats = power @ fit.covariance[np.ix_(at, at)] @ power.T
    return known


def _of_spreads(spreads: Sequence[tuple[Term, float]]) -> Floats:
    """The covariance of phases from terms with their standard deviations; equal parameters share one error."""
    moved: dict[tuple[str, str], Floats] = {}
    for term, spread in spreads:
        moved.setdefault((term.of, term.name), np.zeros(len(PHASES)))[term.phase] += term.power * spread
    each = np.array([*moved.values()]).reshape(len(moved), len(PHASES))
    found: Floats = each.T @ each
    return found


def _unheard(seen: Sequence[Term], terms: Sequence[Term], fit: Fit) -> list[Term]:
    """Extra terms for bases without rows of their own: new software, or a new device, differs from its base too."""
    first: dict[str, str] = {}
    for term in terms:
        first.setdefault(term.name, term.of)
    bases = [term for term in seen if term.of == first[term.name] and term.of not in fit.heard]
    return [replace(term, of=f"like {term.of}") for term in bases]
