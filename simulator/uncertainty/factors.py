"""The covariance of the factors of phases: the remaining uncertainty of each stack and device after the fit.

The file beside the ledger holds the covariance of the fitted parameters, the typical distance of stacks and devices
from their bases, and the widths of the other errors. `runcast calibrate errors` writes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..base.arrays import Floats
from ..base.files import digest, read_json
from ..costs import PHASES
from ..profile import ATTENTION, ATTENTION_OF


@dataclass(frozen=True)
class Term:
    """The seconds of a phase are proportional to the parameter `name` of a stack or profile (`of`), to this `power`.

    `stated` is the relative standard deviation in a user's own file; for shipped files the fit determines it. `kind` is
    what a stated one is.
    """

    phase: int
    of: str
    name: str
    power: float
    stated: float | None = None
    kind: str = "stated"


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of the fit of errors of training steps. All widths are standard deviations of logarithms.

    `covariance` is that of ln(parameter), shape [parameters, parameters]; `index` maps (stack or profile, parameter) to
    its rows. `apart` is, by parameter (`kin_of`), the typical distance between a stack or device and its base, and
    `novelty` the part of it that a step of a new one is off by. `heard` are the stacks, profiles and devices with rows
    in the ledger, `sources` those of a stack on a device, and `ranges` the least and the most of these rows.

    `site` is the error that all runs of a source share, `routing` that of experts and their exchanges because tokens
    choose experts unevenly, and `data_sheet` that of all steps on a device of a data sheet (`runcast calibrate
    data-sheets`). `floor` is the distance of a configuration from its stack's factors. Of that, `twin` is what a
    configuration has alone even beside one that spends its time alike, and `alike` how much of their time two spend
    otherwise when the rest of it is common to a part of 1/e. `run_to_run` is the spread of repeated runs. `differences`
    are the shares of pairs of rows in 90 % intervals, with groups or sources left out.
    """

    covariance: Floats
    index: Mapping[tuple[str, str], int]
    apart: Mapping[str, float]
    heard: frozenset[str]
    sources: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    site: float = 0.0
    novelty: float = 1.0
    routing: float = 0.0
    floor: float = 0.0
    twin: float = 0.0
    alike: float = 0.0
    run_to_run: float = 0.0
    data_sheet: float = 0.0
    about: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    differences: Mapping[str, float] = field(default_factory=dict)
    name: str = ""

    @cached_property
    def root(self) -> Floats:
        """A root of the covariance, shape [parameters, parameters]: its columns are independent errors."""
        return np.asarray(np.linalg.cholesky(self.covariance), np.float64)

    def sites(self, stack: str, devices: Iterable[str]) -> int:
        """How many sources ran this stack on these devices; of several devices, on the one with the fewest."""
        return min((len(self.sources.get((stack, device), ())) for device in devices), default=0)

    def site_weight(self, stack: str, devices: Iterable[str], source: str) -> float:
        """How many times site^2 the variance of a run of `source` is.

        A source that ran the stack for the fit has none: its own runs are what it says. Another one is a new site, and
        what is known of the stack is the mean of m sites, which is off by site^2 / m. No rows tell no more than those
        of one site.
        """
        if any(source in known for (of, _), known in self.sources.items() if of == stack):
            return 0.0
        return 1.0 + 1.0 / max(self.sites(stack, devices), 1)


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
    sources = {(of, on): frozenset(names) for of, every in found["sources"].items() for on, names in every.items()}
    ranges = {name: (least, most) for name, (least, most) in found["ranges"].items()}
    differences = {name: float(of["held"]) for name, of in found["differences"].items()}
    fit = Fit(root @ root.T, index, found["apart"], frozenset(found["heard"]), sources, ranges, **widths,
              about=found["about"], left_out=found["left_out"], differences=differences,
              name=digest(Path(str(file)))[:8])  # fmt: skip
    vars(fit)["root"] = root  # one made again has other last bits in a process with other threads of BLAS
    return fit


@dataclass(frozen=True, eq=False)
class PhaseErrors:
    """Independent errors of phases: ln(seconds) per standard deviation, by `names`, shape [names, len(PHASES)].

    Predictions that have an error of the same name share it. What stands before ": " in a name is its kind.
    """

    names: tuple[str, ...]
    sizes: Floats

    @cached_property
    def covariance(self) -> Floats:
        """The covariance of ln(seconds) of phases, shape [len(PHASES), len(PHASES)]."""
        found: Floats = self.sizes.T @ self.sizes
        return found

    def join(self, other: "PhaseErrors") -> "PhaseErrors":
        """These and other errors; no name may be in both."""
        return PhaseErrors((*self.names, *other.names), np.concatenate((self.sizes, other.sizes)))


NO_ERRORS = PhaseErrors((), np.zeros((0, len(PHASES))))


def phase_errors(terms: Sequence[Term], fit: Fit) -> PhaseErrors:
    """The errors of the terms; a root of the covariance (`Fit.root`) makes those of fitted parameters independent."""
    split = _split(terms, fit)
    fitted = fit.root[split.at].T @ split.power.T
    moved = np.flatnonzero(fitted.any(axis=1))
    new = {name: fit.novelty * sizes for name, sizes in split.new.items()}
    named = {f"fit: {fit.name} {at}": fitted[at] for at in moved.tolist()} | new | split.stated
    return PhaseErrors(tuple(named), np.array([*named.values()]).reshape(len(named), len(PHASES)))


def part_of(name: str) -> str:
    """Whose a parameter of this name is: device, network, architecture or software."""
    if name.startswith(("gemm.", "grouped_gemm.", "attention.")):
        return "device"
    head = name.partition(".")[0]
    return head if head in ("network", "architecture") else "software"


def kin_of(name: str) -> str:
    """The name of a parameter in `Fit.apart`, where all kinds of attention kernels share one."""
    return ATTENTION if name in ATTENTION_OF.values() else name


def split_covariance(terms: Sequence[Term], fit: Fit) -> tuple[Floats, Floats, Floats]:
    """The covariance of ln(seconds) in parts: of fitted parameters, of new ones for `novelty` 1, of stated ones."""
    split = _split(terms, fit)
    known: Floats = split.power @ fit.covariance[np.ix_(split.at, split.at)] @ split.power.T
    return known, _covariance(split.new), _covariance(split.stated)


class _Split(NamedTuple):
    """Terms by where their errors are known from.

    Powers of fitted parameters, shape [len(PHASES), parameters], and their rows in the fit; ln(seconds) of phases per
    standard deviation of new and of stated parameters.
    """

    power: Floats
    at: list[int]
    new: dict[str, Floats]
    stated: dict[str, Floats]


def _split(terms: Sequence[Term], fit: Fit) -> _Split:
    """A parameter without rows differs from its base by the typical distance: one error of all phases that use it."""
    stated = [(term.kind, term, term.stated) for term in terms if term.stated is not None]
    free = [term for term in terms if term.stated is None]
    seen = [term for term in free if (term.of, term.name) in fit.index]
    unseen = [term for term in free if (term.of, term.name) not in fit.index]
    strange = (*unseen, *_unheard(seen, terms, fit))
    new = [(f"new {part_of(term.name)}", term, fit.apart.get(kin_of(term.name), 0.0)) for term in strange]
    at = list(dict.fromkeys(fit.index[term.of, term.name] for term in seen))
    power = np.zeros((len(PHASES), len(at)))
    for term in seen:
        power[term.phase, at.index(fit.index[term.of, term.name])] += term.power
    return _Split(power, at, _by_name(new), _by_name(stated))


def _by_name(spreads: Iterable[tuple[str, Term, float]]) -> dict[str, Floats]:
    """Errors of phases by name, from (kind, term, standard deviation); a parameter's terms are one error."""
    moved: dict[str, Floats] = {}
    for kind, term, spread in spreads:
        name = f"{kind}: {term.of} {term.name}"
        moved.setdefault(name, np.zeros(len(PHASES)))[term.phase] += term.power * spread
    return moved


def _covariance(errors: Mapping[str, Floats]) -> Floats:
    each = np.array([*errors.values()]).reshape(len(errors), len(PHASES))
    found: Floats = each.T @ each
    return found


def _unheard(seen: Sequence[Term], terms: Sequence[Term], fit: Fit) -> list[Term]:
    """Extra terms for bases without rows of their own: new software, or a new device, differs from its base too."""
    first: dict[str, str] = {}
    for term in terms:
        first.setdefault(term.name, term.of)
    bases = [term for term in seen if term.of == first[term.name] and term.of not in fit.heard]
    return [replace(term, of=f"like {term.of}") for term in bases]
