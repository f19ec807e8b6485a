"""How sure the factors of phases are: what the fit of training steps left open of each stack and device.

The file beside the ledger holds the covariance of what was fitted, how far stacks and devices are from what they rest
on, and the widths of what no factor says. `runcast calibrate errors` writes it.
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
    """ln(seconds of a phase) goes with `power` times ln of the parameter `name` of a stack or profile.

    `stated` is the relative standard deviation that a user's own file gives it; shipped files leave that to the fit.
    """

    phase: int
    of: str
    name: str
    power: float
    stated: float | None = None


@dataclass(frozen=True, eq=False)
class Fit:
    """What is known of errors of training steps.

    `covariance` is that of ln(parameter) by `index` of (stack or profile, parameter), shape [parameters, parameters];
    `apart` is how far ln(parameter) of a stack or device is from that of what it rests on, by parameter. `heard` are
    the stacks, profiles and devices that rows of the ledger ran with. `scale` multiplies what the fit left open,
    `routing` is how far the time of experts and their exchanges is off because tokens choose experts unevenly, `floor`
    is how far a configuration is from its stack's factors, and `run_to_run` how far from itself when it is run again.
    """

    covariance: Floats
    index: Mapping[tuple[str, str], int]
    apart: Mapping[str, float]
    heard: frozenset[str]
    scale: float = 1.0
    routing: float = 0.0
    floor: float = 0.0
    run_to_run: float = 0.0
    about: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@cache
def shipped_fit() -> Fit:
    """What ships with runcast; of nothing, if nothing was fitted."""
    file = files("runcast.data") / "validation" / "training_errors.json"
    if not file.is_file():
        return Fit(np.zeros((0, 0)), {}, {}, frozenset())
    found = read_json(file)
    index = {(of, name): at for at, (of, name) in enumerate(found["parameters"])}
    root = np.zeros((len(index), len(index)))  # the lower triangle of Cholesky: however it is rounded, none is negative
    root[np.tril_indices(len(index))] = found["root"]
    widths = {name: float(width["value"]) for name, width in found["widths"].items()}
    return Fit(root @ root.T, index, found["apart"], frozenset(found["heard"]), about=found["about"],
               left_out=found["left_out"], **widths)  # fmt: skip


def factor_covariance(terms: Sequence[Term], fit: Fit) -> Floats:
    """Covariance of ln(seconds) of phases by what software and device may be off, shape [len(PHASES), len(PHASES)]."""
    known, new = split_covariance(terms, fit)
    return fit.scale**2 * known + new


def split_covariance(terms: Sequence[Term], fit: Fit) -> tuple[Floats, Floats]:
    """The same in two: of what the fit knows, not scaled, and of what it has not seen.

    What no row told is, parameter by parameter, apart from what it rests on: one error of all phases behind it.
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
    """A base that no row ran with is what others rest on: software, or a device, of its kind is apart from it too."""
    first: dict[str, str] = {}
    for term in terms:
        first.setdefault(term.name, term.of)
    bases = [term for term in seen if term.of == first[term.name] and term.of not in fit.heard]
    return [replace(term, of=f"like {term.of}") for term in bases]
