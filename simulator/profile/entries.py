"""Profiles and stacks as files: what a file may say, read with every fault named, and models written the same way."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from ..base.errors import UserError, did_you_mean, fault, unknown_key
from ..base.schema import Section, count, number, one_of, validate
from ..hardware import Limits, networks
from .forms import CostClass, cost_class, known_classes
from .model import Entry, Errors, Model, Ratio, Stated
from .parameters import FACTORS, FACTORS_OF_TYPES

SCHEMA = 2
"""Version of the file form; it changes when an older file could be misread."""


class _Samples(Section):
    """A file that a profile was fitted to."""

    file: str
    sha256: str
    rows: Annotated[int, count(0, 10**12)]


class _Variants(Section):
    default: str
    variants: dict[str, dict[str, Any]]


def _without_cluster(limits: Any) -> Any:
    """`cluster` only says where the numbers come from."""
    return {key: x for key, x in limits.items() if key != "cluster"} if isinstance(limits, Mapping) else limits


class _Covariance(Section):
    """What runs of one's own leave open of the factors `of` phases, and of data types if they had several.

    root @ root.T is the covariance of the logarithms of these factors.
    `terms` are the parameters, as (owner, name), that were in these runs: only others add to it.
    """

    of: tuple[Annotated[str, one_of(lambda: (*FACTORS, *FACTORS_OF_TYPES))], ...]
    root: tuple[tuple[Annotated[float, number(-3, 3)], ...], ...]
    terms: tuple[tuple[str, str], ...]

    @model_validator(mode="after")
    def _square(self) -> Self:
        if len({*self.of}) < len(self.of) or {*FACTORS} - {*self.of}:
            raise ValueError(f"expected each phase once in `of`: {', '.join(FACTORS)}")
        if [len(row) for row in self.root] != [len(self.of)] * len(self.of):
            raise ValueError(f"expected {len(self.of)} rows of {len(self.of)} numbers in `root`")
        return self


class ProfileFile(Section):
    """The schema of a profile or stack file; everything else comes from its `base`."""

    version: Annotated[int, one_of(lambda: (SCHEMA,))] = Field(alias="schema")
    name: str | None = None
    base: str | None = None
    wider: Annotated[float, number(0, 2)] = 0.0
    network: Annotated[str, one_of(networks)] | None = None
    devices: tuple[str, ...] | None = None
    date: Any = None
    source: str | None = None
    command: str | None = None
    samples: tuple[_Samples, ...] = ()
    environment: dict[str, Any] = Field({})
    limits: Annotated[Limits, BeforeValidator(_without_cluster)] | None = None
    parameters: dict[str, Any] = Field({})
    models: dict[str, _Variants] = Field({})
    defaults: dict[str, Any] = Field({})
    covariance: _Covariance | None = None


def write_limits(limits: Limits, cluster: str) -> dict[str, Any]:
    """Limits as a file has them; `cluster` says where the numbers come from."""
    return {"cluster": cluster, **vars(limits), "flop_per_s": dict(limits.flop_per_s)}


@dataclass(frozen=True)
class Measured:
    """What the models of a file were measured on: a device's limits, and a kind of network between nodes."""

    limits: Limits | None
    network: str


def read_models(models: Mapping[str, _Variants], file: str, on: Measured) -> dict[str, dict[str, Entry]]:
    """The models of a file by cost class and library, the default library first.

    Raises:
        UserError: an unknown class, a missing or impossible number, or another form than this version's.
    """
    return {kind: _read_variants(kind, variants, file, on) for kind, variants in models.items()}


def write_models(models: Mapping[str, Mapping[str, Entry]]) -> dict[str, Any]:
    """The models in the form that `read_models` reads."""
    return {
        kind: {"default": next(iter(variants)), "variants": {name: _write(m) for name, m in variants.items()}}
        for kind, variants in models.items()
    }


def _read_variants(kind: str, said: _Variants, file: str, on: Measured) -> dict[str, Entry]:
    known, where = cost_class(kind), f"models.{kind}"
    if known is None:
        near = did_you_mean(kind, known_classes()) or f"known: {', '.join(known_classes())}"
        raise UserError(f"{file}: {where}: unknown cost class; {near}")
    if said.default not in said.variants:
        allowed = f"expected one of {', '.join(said.variants) or 'none'}"
        raise UserError(fault(file, f"{where}.default", said.default, allowed))
    order = sorted(said.variants, key=lambda name: name != said.default)
    return {library: _read(kind, known, library, said.variants[library], file, on) for library in order}


def _read(kind: str, known: CostClass, library: str, said: Mapping[str, Any], file: str, on: Measured) -> Entry:
    prefix, where = f"models.{kind}.", f"models.{kind}.{library}"
    entry: Entry
    if "like" in said:
        entry = validate(dict[str, Ratio], {library: said}, file, prefix)[library]
        faults = list(_misfits_of_ratio(entry, kind, known, file, where))
    elif "seconds" in said:
        entry = validate(dict[str, Stated], {library: said}, file, prefix)[library]
        allowed = "seconds may be stated of calls that are counted only, such as host.launch"
        faults = [] if known.features == ("count",) else [f"{file}: {where}: {allowed}"]
    elif on.limits is None:
        raise UserError(f"{file}: limits: missing; models need the data-sheet numbers of the device that was measured")
    elif said.get("form") != known.form.name:
        allowed = f"expected {known.form.name!r}, the form of this version of runcast; fit the profile again"
        raise UserError(fault(file, f"{where}.form", said.get("form"), allowed))
    else:
        numbers = {key: value for key, value in said.items() if key != "form"}
        whole = {**numbers, "kind": kind, "library": library, **vars(on)}
        entry = validate(dict[str, Model], {library: whole}, file, prefix)[library]
        faults = list(_misfits(entry, known, file, where))
    if faults:
        raise UserError(*faults)
    return entry


def _misfits_of_ratio(ratio: Ratio, kind: str, known: CostClass, file: str, where: str) -> Iterator[str]:
    lender = cost_class(ratio.like)
    if lender is None or ratio.like == kind:
        yield fault(file, f"{where}.like", ratio.like, "expected another cost class")
    elif {*lender.features} - {*known.features}:
        yield fault(file, f"{where}.like", ratio.like, f"has other features than {kind}")
    else:
        yield from _unknown(ratio.least, lender.features, file, f"{where}.least")


def _misfits(model: Model, known: CostClass, file: str, where: str) -> Iterator[str]:
    """Errors in the numbers of a model, given its class."""
    bounds = {c.name: (c.low, c.high) for c in known.form.coefficients}
    tables = {"coefficients": (model.coefficients, bounds), "range": (model.range, known.axes)}
    for key, (table, names) in {**tables, "growth": (model.growth, known.axes)}.items():
        yield from (f"{file}: {where}.{key}.{name}: is missing" for name in names if name not in table)
        yield from _unknown(table, names, file, f"{where}.{key}")
    for name, (low, high) in bounds.items():
        if not low <= model.coefficients.get(name, low) <= high:
            value = model.coefficients[name]
            yield fault(file, f"{where}.coefficients.{name}", value, f"expected {low:g} to {high:g}")
    for axis, (low, high) in model.range.items():
        if low > high:
            yield fault(file, f"{where}.range.{axis}", [low, high], "expected the smaller number first")
    sizes = [band.size for band in model.bands]
    if sizes != sorted(set(sizes)):
        yield fault(file, f"{where}.bands", sizes, "expected sizes that rise")
    if model.curves and not known.curves:
        yield f"{file}: {where}.curves: not allowed; this class has a formula alone"
    for gpus, curve in model.curves.items():
        if len(curve.bytes) != len(curve.seconds):
            yield f"{file}: {where}.curves.{gpus:g}: {len(curve.bytes)} sizes but {len(curve.seconds)} times"


def _unknown(table: Mapping[str, Any], known: Iterable[str], file: str, where: str) -> Iterator[str]:
    for name in table:
        if name not in known:
            yield unknown_key(file, f"{where}.{name}", known)


def _write(model: Entry) -> dict[str, Any]:
    if not isinstance(model, Model):
        return {key: value for key, value in vars(model).items() if value != {}}
    curves = {
        f"{gpus:.0f}": {"bytes": _digits(curve.bytes, 12), "seconds": _digits(curve.seconds)}
        for gpus, curve in model.curves.items()
    }
    return {
        "form": model.cost_class.form.name,
        "coefficients": dict(zip(model.coefficients, _digits(model.coefficients.values()), strict=True)),
        "range": {axis: list(ends) for axis, ends in model.range.items()},
        "growth": dict(zip(model.growth, _digits(model.growth.values(), 3), strict=True)),
        "fitted": _write_errors(model.fitted),
        "held_out": _write_errors(model.held_out),
        "groups": model.groups,
        "bands": [
            {"size": band.size, **_write_errors(band), "spread": _digits([band.spread], 3)[0]} for band in model.bands
        ],
        **({"curves": curves} if curves else {}),
        **({"wider": model.wider} if model.wider else {}),
        "left_out": model.left_out,
        "source": model.source,
    }


def _write_errors(errors: Errors) -> dict[str, Any]:
    median, p90, bias = _digits([errors.median, errors.p90, errors.bias], 3)
    return {"rows": errors.rows, "median": median, "p90": p90, "bias": bias}


def _digits(values: Any, digits: int = 6) -> list[float]:
    """Round values to this many significant digits."""
    return [float(f"{value:.{digits}g}") for value in values]
