"""Models and limits as they stand in a profile file: read with every fault named, and written the same way."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.errors import UserError, did_you_mean, fault
from ..hardware import Limits
from ..hardware.checks import MOST, Check, anything, checked, count, number, table, text
from .forms import CostClass, Curve, cost_class, known_classes
from .model import Band, Entry, Errors, Model, Ratio, Stated
from .parameters import within

_HUGE = 1e30
_RATE = number(0, _HUGE)

_LIMITS: dict[str, Check] = {
    "cluster": text,
    "flop_per_s": table,
    "memory_bytes_per_s": number(1, _HUGE),
    "sms": count(1),
    "l2_bytes": _RATE,
    "link_bytes_per_s": _RATE,
    "host_bytes_per_s": _RATE,
    "nic_bytes_per_s": _RATE,
    "nics": count(0),
}

_ROWS = count(0, 10**12)
_ERRORS: dict[str, Check] = {
    "rows": _ROWS,
    "median": number(0, _HUGE),
    "p90": number(0, _HUGE),
    "bias": number(-1, _HUGE),
}
_BAND: dict[str, Check] = {"size": number(0, _HUGE), **_ERRORS, "spread": number(0, 5)}

_MODEL: dict[str, Check] = {
    "form": text,
    "coefficients": table,
    "range": table,
    "growth": table,
    "fitted": table,
    "held_out": table,
    "groups": _ROWS,
    "bands": anything,
    "curves": table,
    "wider": number(0, 5),
    "left_out": text,
    "source": text,
}
_RATIO: dict[str, Check] = {
    "like": text,
    "factor": number(1e-3, 1e3),
    "spread": number(0, 5),
    "least": table,
    "source": text,
}
_LEAST = number(0, _HUGE)
_STATED: dict[str, Check] = {"seconds": number(1e-12, 1e3), "spread": number(0, 5), "source": text}
_VARIANTS: dict[str, Check] = {"default": text, "variants": table}


def read_limits(raw: Any, file: str) -> Limits:
    """The data-sheet numbers of the device that a profile was measured on.

    Raises:
        UserError: a key is missing or a value not allowed; one line each.
    """
    known = checked(_table(raw, file, "limits"), _LIMITS, file, "limits.", optional=("cluster",))
    known.pop("cluster", None)
    peaks = {dtype: number(1, _HUGE) for dtype in known["flop_per_s"]}
    return Limits(**{**known, "flop_per_s": checked(known["flop_per_s"], peaks, file, "limits.flop_per_s.")})


def write_limits(limits: Limits, cluster: str) -> dict[str, Any]:
    """What `read_limits` reads; `cluster` says where the numbers come from."""
    return {"cluster": cluster, **vars(limits), "flop_per_s": dict(limits.flop_per_s)}


def read_models(raw: Mapping[str, Any], file: str, limits: Limits | None) -> dict[str, dict[str, Entry]]:
    """The models of a file by cost class and library, the default library first.

    Raises:
        UserError: an unknown class, a missing or impossible number, or another form than this version's.
    """
    return {kind: _read_variants(kind, entry, file, limits) for kind, entry in raw.items()}


def write_models(models: Mapping[str, Mapping[str, Entry]]) -> dict[str, Any]:
    """What `read_models` reads."""
    return {
        kind: {"default": next(iter(variants)), "variants": {name: _write(m) for name, m in variants.items()}}
        for kind, variants in models.items()
    }


def _read_variants(kind: str, raw: Any, file: str, limits: Limits | None) -> dict[str, Entry]:
    known = cost_class(kind)
    if known is None:
        near = did_you_mean(kind, known_classes()) or f"known: {', '.join(known_classes())}"
        raise UserError(f"{file}: models.{kind}: unknown cost class; {near}")
    where = f"models.{kind}"
    entry = checked(_table(raw, file, where), _VARIANTS, file, f"{where}.")
    variants, default = entry["variants"], entry["default"]
    if default not in variants:
        raise UserError(fault(file, f"{where}.default", default, f"expected one of {', '.join(variants) or 'none'}"))
    order = sorted(variants, key=lambda name: name != default)
    return {name: _read(kind, known, name, variants[name], file, limits) for name in order}


def _read(kind: str, known: CostClass, library: str, raw: Any, file: str, limits: Limits | None) -> Entry:
    where = f"models.{kind}.{library}"
    raw = _table(raw, file, where)
    if "like" in raw:
        return _ratio(kind, raw, file, where)
    if "seconds" in raw:
        return _stated(known, raw, file, where)
    if limits is None:
        raise UserError(f"{file}: limits: missing; models need the data-sheet numbers of the device that was measured")
    entry = checked(raw, _MODEL, file, f"{where}.", optional=("curves", "wider"))
    if entry["form"] != known.form.name:
        allowed = f"expected {known.form.name!r}, the form of this version of runcast; fit the profile again"
        raise UserError(fault(file, f"{where}.form", entry["form"], allowed))
    bounds = {c.name: number(c.low, c.high) for c in known.form.coefficients}
    growth: dict[str, Check] = {axis: number(0, 5) for axis in known.axes}
    return Model(
        kind=kind,
        library=library,
        coefficients=checked(entry["coefficients"], bounds, file, f"{where}.coefficients."),
        range=_ranges(known, entry["range"], file, where),
        growth=checked(entry["growth"], growth, file, f"{where}.growth."),
        fitted=Errors(**checked(entry["fitted"], _ERRORS, file, f"{where}.fitted.")),
        held_out=Errors(**checked(entry["held_out"], _ERRORS, file, f"{where}.held_out.")),
        groups=entry["groups"],
        bands=_bands(entry["bands"], file, where),
        limits=limits,
        source=entry["source"],
        curves=_curves(known, entry.get("curves", {}), file, f"{where}.curves"),
        wider=entry.get("wider", 0.0),
        left_out=entry["left_out"],
    )


def _ratio(kind: str, raw: Mapping[str, Any], file: str, where: str) -> Ratio:
    ratio = Ratio(**checked(raw, _RATIO, file, f"{where}.", optional=("least",)))
    lender, borrower = cost_class(ratio.like), cost_class(kind)
    if lender is None or borrower is None or ratio.like == kind:
        raise UserError(fault(file, f"{where}.like", ratio.like, "expected another cost class"))
    if {*lender.features} - {*borrower.features}:
        raise UserError(fault(file, f"{where}.like", ratio.like, f"has other features than {kind}"))
    checked(ratio.least, dict.fromkeys(lender.features, _LEAST), file, f"{where}.least.", optional=lender.features)
    return ratio


def _stated(known: CostClass, raw: Mapping[str, Any], file: str, where: str) -> Stated:
    if known.features != ("count",):
        raise UserError(f"{file}: {where}: seconds may be stated of calls that are counted only, such as host.launch")
    return Stated(**checked(raw, _STATED, file, f"{where}."))


def _ranges(known: CostClass, raw: Mapping[str, Any], file: str, where: str) -> dict[str, tuple[float, float]]:
    checked(raw, dict.fromkeys(known.axes, anything), file, f"{where}.range.")
    return {axis: _range(raw, axis, file, where) for axis in known.axes}


def _range(ranges: Mapping[str, Any], axis: str, file: str, where: str) -> tuple[float, float]:
    pair = ranges.get(axis)
    if not isinstance(pair, list) or len(pair) != 2:
        raise UserError(fault(file, f"{where}.range.{axis}", pair, "expected [smallest, largest] measured value"))
    ends = checked(dict(zip("01", pair, strict=True)), dict.fromkeys("01", _RATE), file, f"{where}.range.{axis}.")
    if ends["0"] > ends["1"]:
        raise UserError(fault(file, f"{where}.range.{axis}", pair, "expected the smaller number first"))
    return ends["0"], ends["1"]


def _bands(raw: Any, file: str, where: str) -> tuple[Band, ...]:
    if not isinstance(raw, list) or not raw:
        raise UserError(fault(file, f"{where}.bands", raw, "expected a list of bands, at least one"))
    bands = tuple(_band(band, file, f"{where}.bands[{i}]") for i, band in enumerate(raw))
    sizes = [band.size for band in bands]
    if sizes != sorted(set(sizes)):
        raise UserError(fault(file, f"{where}.bands", sizes, "expected sizes that rise"))
    return bands


def _band(raw: Any, file: str, where: str) -> Band:
    band = checked(_table(raw, file, where), _BAND, file, f"{where}.")
    return Band(band.pop("size"), spread=band.pop("spread"), errors=Errors(**band))


def _curves(known: CostClass, raw: Mapping[str, Any], file: str, where: str) -> dict[float, Curve]:
    if raw and not known.curves:
        raise UserError(f"{file}: {where}: not allowed; this class has a formula alone")
    curves = {}
    for gpus, points in raw.items():
        sizes, seconds = (_rising(points, key, file, f"{where}.{gpus}") for key in ("bytes", "seconds"))
        if not gpus.isdecimal() or gpus[0] == "0" or not 1 < int(gpus) <= MOST:
            raise UserError(fault(file, where, gpus, "expected a number of GPUs, at least 2"))
        if len(sizes) != len(seconds):
            raise UserError(f"{file}: {where}.{gpus}: {len(sizes)} sizes but {len(seconds)} times")
        curves[float(gpus)] = Curve(sizes, seconds)
    return curves


def _rising(points: Any, key: str, file: str, where: str) -> np.ndarray:
    values = points.get(key) if isinstance(points, Mapping) else None
    good = isinstance(values, list) and len(values) > 1 and all(within(v, 0, _HUGE) for v in values)
    array = np.array(values if good else [np.nan, np.nan], np.float64)
    steps = np.diff(array)
    # sizes rise; seconds may stand still, but never fall
    if not (np.isfinite(array).all() and array[0] > 0 and ((steps > 0) | ((steps == 0) & (key == "seconds"))).all()):
        raise UserError(f"{file}: {where}.{key}: expected at least two rising numbers greater than zero")
    return array


def _write(model: Entry) -> dict[str, Any]:
    if not isinstance(model, Model):
        return {key: value for key, value in vars(model).items() if value != {}}
    curves = {f"{gpus:.0f}": _write_curve(curve) for gpus, curve in model.curves.items()}
    return {
        "form": model.cost_class.form.name,
        "coefficients": dict(zip(model.coefficients, _digits(model.coefficients.values()), strict=True)),
        "range": {axis: list(ends) for axis, ends in model.range.items()},
        "growth": dict(zip(model.growth, _digits(model.growth.values(), 3), strict=True)),
        "fitted": _write_errors(model.fitted),
        "held_out": _write_errors(model.held_out),
        "groups": model.groups,
        "bands": [_write_band(band) for band in model.bands],
        **({"curves": curves} if curves else {}),
        **({"wider": model.wider} if model.wider else {}),
        "left_out": model.left_out,
        "source": model.source,
    }


def _write_curve(curve: Curve) -> dict[str, Any]:
    return {"bytes": _digits(curve.bytes, 12), "seconds": _digits(curve.seconds)}


def _write_band(band: Band) -> dict[str, Any]:
    return {"size": band.size, **_write_errors(band.errors), "spread": _digits([band.spread], 3)[0]}


def _write_errors(errors: Errors) -> dict[str, Any]:
    median, p90, bias = _digits([errors.median, errors.p90, errors.bias], 3)
    return {"rows": errors.rows, "median": median, "p90": p90, "bias": bias}


def _digits(values: Any, digits: int = 6) -> list[float]:
    """As many significant digits as a fit deserves."""
    return [float(f"{value:.{digits}g}") for value in values]


def _table(raw: Any, file: str, where: str) -> Mapping[str, Any]:
    if not isinstance(raw, Mapping):
        raise UserError(fault(file, where, raw, "expected an object"))
    return raw
