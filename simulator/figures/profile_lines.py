"""What a Profile predicts over size, as tables for figures: rates of what moves bytes, shares of peak of what computes.

Sizes go somewhat beyond the measured range, as plans do; `outside` says where. Beside it the errors by band of sizes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..base.errors import UserError
from ..profile import PROVENANCE, Z90, Model, Profile
from ..profile.forms import BUS_FACTOR, Columns, Floats, band_name
from ..profile.forms.gemm import peak
from .profile import Axis
from .theme import digits

FAMILIES = {
    "Collectives in one node": tuple(BUS_FACTOR),
    "Collectives over nodes": tuple(f"{op}.network" for op in BUS_FACTOR),
    "Copies and point to point": ("send_recv", "send_recv.", "copy.", "nic."),
    "Matrix products": ("gemm.",),
    "Attention": ("attention.",),
    "Experts": ("grouped_gemm.",),
    "Memory-bound kernels": ("memory.",),
    "Host": ("host.",),
}
"""Which classes are drawn together: by full name, or by how the name begins where that ends in a dot."""

BYTES = Axis("bytes", binary=True)
_BUS, _RATE = Axis("bus bandwidth", "B/s"), Axis("bytes over time", "B/s")
_SHARE = Axis("share of peak", "%", log=False)
_BEYOND = 16
"""Lines end at so many times the largest measured size, and begin at so many times below the smallest."""

_GPUS_PER_NODE = 8
_WEIGHTS = ((4096, 4096), (7168, 2048), (28672, 8192))
_HEADS = ((32, 8, 128), (64, 8, 128), (16, 16, 64))
_EXPERTS = {
    "8 experts of 4096 × 14336, 2 per token": {"hidden": 4096, "inter": 14336, "topk": 2, "experts": 8},
    "128 of 4096 × 1536, 8 per token": {"hidden": 4096, "inter": 1536, "topk": 8, "experts": 128},
    "256 of 7168 × 2048, 8 per token": {"hidden": 7168, "inter": 2048, "topk": 8, "experts": 256},
}

_LINES = "bands are 90 % intervals"
_AXES = {
    "Collectives in one node": (f"one line per number of GPUs; {_LINES}", BYTES, _BUS),
    "Collectives over nodes": (f"one line per number of nodes, each with {_GPUS_PER_NODE} GPUs; {_LINES}", BYTES, _BUS),
    "Matrix products": (f"one line per weight, n × k; {_LINES}", Axis("m, rows of the result"), _SHARE),
    "Attention": (f"one sequence per call, heads / key-value heads / width; {_LINES}", Axis("tokens"), _SHARE),
    "Experts": (f"all on one rank with balanced load; {_LINES}", Axis("tokens"), _SHARE),
}

Work = Callable[[Columns], Floats]


def _bytes(x: Columns) -> Floats:
    return x["bytes"]


class Drawn(NamedTuple):
    """What `figures.profile.predicted_lines` draws, and how its axes are called."""

    table: pd.DataFrame
    subtitle: str
    x: Axis
    y: Axis


def size_axis(rows: pd.DataFrame) -> Axis:
    """The axis that samples of a family are sized by; its name stands in their `size_axis`."""
    axis = str(rows["size_axis"].iloc[0])
    return {"bytes": BYTES, "flop": Axis("FLOP", "FLOP")}.get(axis, Axis(axis))


def family(kind: str) -> str:
    """Which family a class belongs to."""
    return next(name for name, members in FAMILIES.items() if any(_is(kind, member) for member in members))


def _is(kind: str, member: str) -> bool:
    return kind.startswith(member) if member.endswith(".") else kind == member


def models_of(profile: Profile) -> list[tuple[Model, bool]]:
    """All fitted models by class and library, and whether each is the default one of several."""
    return [
        (entry, i == 0 and len(variants) > 1)
        for _, variants in sorted(profile.models.items())
        for i, entry in enumerate(variants.values())
        if isinstance(entry, Model)
    ]


def label(model: Model) -> str:
    """How figures call a model."""
    return f"{model.kind} · {model.library}"


def bands(profile: Profile, kind: str | None = None) -> pd.DataFrame:
    """Errors by band of sizes, as `figures.profile.residual_bands` draws them, of all classes or of one."""
    rows = [
        (family(model.kind), label(model), band, count, median, p90, bias, Z90 * spread)
        for model, _ in models_of(profile)
        if kind in (None, model.kind)
        for band, count, median, p90, bias, spread in bands_of(model)
    ]
    return pd.DataFrame(rows, columns=["family", "model", "band", "rows", "median", "p90", "bias", "reach"])


def bands_of(model: Model) -> Iterator[tuple[str, int, float, float, float, float]]:
    """Of each band of sizes that was scored: its name, rows, median, p90, bias and stated spread."""
    starts = [band.size for band in model.bands]
    for band, end in zip(model.bands, [*starts[1:], None], strict=True):
        spread = float((band.spread**2 + model.wider**2) ** 0.5)
        if band.rows:
            name = band_name(model.cost_class.size, band.size, end)
            yield name, band.rows, band.median, band.p90, band.bias, spread


def lines(profile: Profile, kind: str | None = None) -> dict[str, Drawn]:
    """A table per family that the profile has models of, or that of one class."""
    found: dict[str, list[pd.DataFrame]] = {}
    for model, _ in models_of(profile):
        if kind not in (None, model.kind):
            continue
        found.setdefault(family(model.kind), []).extend(_tables(profile, model))
    return {
        name: Drawn(pd.concat(found[name], ignore_index=True), *_AXES.get(name, (_LINES, BYTES, _RATE)))
        for name in FAMILIES
        if found.get(name)
    }


def _tables(profile: Profile, model: Model) -> Iterator[pd.DataFrame]:
    kind = model.kind
    if kind in BUS_FACTOR or kind.removesuffix(".network") in BUS_FACTOR:
        yield from _collective(profile, model)
    elif kind.startswith("gemm."):
        shapes = {f"{n} × {k}": {"n": n, "k": k} for n, k in _WEIGHTS}
        yield from _shares(profile, model, "m", shapes, kind.split(".")[1])
    elif kind.startswith("attention."):
        one = {"batch": 1, "causal": 1}
        heads = {f"{h} / {kv} / {d}": {**one, "heads": h, "kv_heads": kv, "head_dim": d} for h, kv, d in _HEADS}
        yield from _shares(profile, model, "seq", heads, "bf16")
    elif kind.startswith("grouped_gemm."):
        alone = {"tp": 1, "ep": 1, "skew": 0, "matrices": 2 if "nongated" in model.library else 3}
        shapes = {name: {**alone, **shape} for name, shape in _EXPERTS.items()}
        yield from _shares(profile, model, "tokens", shapes, kind.split(".")[1])
    elif model.cost_class.size == "bytes":
        yield _line(profile, model, {"bytes": _sizes(model, "bytes")}, "bytes", kind.partition(".")[0], label(model))


def _collective(profile: Profile, model: Model) -> Iterator[pd.DataFrame]:
    """A line per number of GPUs with a curve, or per power of two of the measured numbers of nodes."""
    op, over_nodes = model.kind.removesuffix(".network"), model.kind.endswith(".network")
    measured = model.range["nodes" if over_nodes else "gpus"]
    for count in [] if over_nodes else sorted(model.curves):
        yield _bus(profile, model, op, {"gpus": count}, f"{count:g} GPUs")
    for count in _powers(*measured) if over_nodes or not model.curves else ():
        given = {"nodes": count, "gpus": _GPUS_PER_NODE * count} if over_nodes else {"gpus": count}
        yield _bus(profile, model, op, given, f"{count:g} {'nodes' if over_nodes else 'GPUs'}")


def _bus(profile: Profile, model: Model, op: str, given: Mapping[str, float], name: str) -> pd.DataFrame:
    factor = BUS_FACTOR[op](np.array([given["gpus"]], float))[0]
    sizes = {**given, "bytes": _sizes(model, "bytes")}
    return _line(profile, model, sizes, "bytes", label(model), name, lambda x: x["bytes"] * factor)


def _shares(
    profile: Profile, model: Model, axis: str, shapes: Mapping[str, Mapping[str, float]], dtype: str
) -> Iterator[pd.DataFrame]:
    """FLOP over what the peak would do in the time, for a few shapes; none where the device has no such peak."""
    try:
        at_peak = peak(profile.limits or model.limits, dtype)
    except UserError:
        return
    flop = model.cost_class.axes["flop"]
    for name, shape in shapes.items():
        given = {**shape, axis: _sizes(model, axis)}
        yield _line(profile, model, given, axis, label(model), name, lambda x: flop(x) / at_peak)


def _line(
    profile: Profile, model: Model, given: Mapping[str, object], axis: str, panel: str, name: str, work: Work = _bytes
) -> pd.DataFrame:
    """Work over predicted seconds along an axis."""
    x = model.cost_class.columns(given, profile.limits or model.limits)
    estimate = profile.estimate(model.kind, given, library=model.library)
    y, reach = work(x) / estimate.seconds, np.exp(Z90 * estimate.spread)
    outside = estimate.provenance == PROVENANCE.index("extrapolated")
    numbers = {key: digits(values, 5) for key, values in {"y": y, "low": y / reach, "high": y * reach}.items()}
    return pd.DataFrame({"panel": panel, "line": name, "x": x[axis], **numbers, "outside": outside})


def _sizes(model: Model, axis: str) -> Floats:
    """Along an axis, from below the measured range to above; three to an octave, and both ends of the range."""
    low, high = model.range[axis]
    start, end = max(low / _BEYOND, 1.0), high * _BEYOND
    between = np.geomspace(start, end, max(int(3 * np.log2(end / start)), 2)).round()
    return np.union1d(between, [low, high])


def _powers(low: float, high: float) -> Sequence[float]:
    """Powers of two from low to high, and both ends."""
    between = 2.0 ** np.arange(np.ceil(np.log2(low)), np.floor(np.log2(high)) + 1)
    return sorted({low, *between.tolist(), high})
