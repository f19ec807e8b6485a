"""What a Profile predicts over size, as tables for figures: rates of what moves bytes, shares of peak of what computes.

Sizes go somewhat beyond the measured range, as plans do; `outside` says where. Beside it the errors by band of sizes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..base.arrays import Floats
from ..base.errors import UserError
from ..profile import PROVENANCE, Z90, Model, Profile
from ..profile.forms import BUS_FACTOR, band_name
from ..profile.forms.gemm import peak
from .profile import Axis
from .theme import digits

BYTES = Axis("bytes", binary=True)
_BUS, _RATE = Axis("bus bandwidth", "B/s"), Axis("bytes over time", "B/s")
_SHARE = Axis("share of peak", "%", log=False)
_BEYOND = 16
"""Lines end at so many times the largest measured size, and begin at so many times below the smallest."""
_GPUS_PER_NODE = 8
_ONE = {"batch": 1, "causal": 1}
_ALONE = {"tp": 1, "ep": 1, "skew": 0, "matrices": 3}


class Family(NamedTuple):
    """Classes that are drawn together: by full name, or by how the name begins where that ends in a dot.

    `says` is what a line is. What computes has a line for each of a few `shapes`, along an `axis`.
    """

    members: tuple[str, ...]
    says: str = ""
    x: Axis = BYTES
    y: Axis = _RATE
    axis: str = "bytes"
    shapes: Mapping[str, dict[str, int]] = {}


FAMILIES = {
    "Collectives in one node": Family(tuple(BUS_FACTOR), "one line per number of GPUs; ", y=_BUS),
    "Collectives over nodes": Family(
        tuple(f"{op}.network" for op in BUS_FACTOR),
        f"one line per number of nodes, each with {_GPUS_PER_NODE} GPUs; ", y=_BUS,
    ),
    "Copies and point to point": Family(("send_recv", "send_recv.", "copy.", "nic.")),
    "Matrix products": Family(
        ("gemm.",), "one line per weight, n × k; ", Axis("m, rows of the result"), _SHARE, "m",
        {f"{n} × {k}": {"n": n, "k": k} for n, k in ((4096, 4096), (7168, 2048), (28672, 8192))},
    ),
    "Attention": Family(
        ("attention.",), "one sequence per call, heads / key-value heads / width; ", Axis("tokens"), _SHARE, "seq",
        {f"{heads} / {kv} / {width}": _ONE | {"heads": heads, "kv_heads": kv, "head_dim": width}
         for heads, kv, width in ((32, 8, 128), (64, 8, 128), (16, 16, 64))},
    ),
    "Experts": Family(
        ("grouped_gemm.",), "all on one rank with balanced load; ", Axis("tokens"), _SHARE, "tokens",
        {
            "8 experts of 4096 × 14336, 2 per token":
                _ALONE | {"hidden": 4096, "inter": 14336, "topk": 2, "experts": 8},
            "128 of 4096 × 1536, 8 per token": _ALONE | {"hidden": 4096, "inter": 1536, "topk": 8, "experts": 128},
            "256 of 7168 × 2048, 8 per token": _ALONE | {"hidden": 7168, "inter": 2048, "topk": 8, "experts": 256},
        },
    ),
    "Memory-bound kernels": Family(("memory.",)),
    "Compression of gradients": Family(("compress.",)),
    "Host": Family(("host.",)),
}  # fmt: skip


class Drawn(NamedTuple):
    """The data of `figures.profile.predicted_lines`, and the names of its axes."""

    table: pd.DataFrame
    subtitle: str
    x: Axis
    y: Axis


def size_axis(rows: pd.DataFrame) -> Axis:
    """The axis that samples of a family are sized by; its name stands in their `size_axis`."""
    axis = str(rows["size_axis"].iloc[0])
    return {"bytes": BYTES, "flop": Axis("FLOP", "FLOP")}.get(axis, Axis(axis))


def family(kind: str) -> str:
    """The family of a cost class."""

    def is_member(name: str) -> bool:
        return kind.startswith(name) if name.endswith(".") else kind == name

    return next(name for name, of in FAMILIES.items() if any(map(is_member, of.members)))


def models_of(profile: Profile) -> list[tuple[Model, bool]]:
    """All fitted models by class and library, and whether each is the default one of several."""
    return [
        (entry, i == 0 and len(variants) > 1)
        for _, variants in sorted(profile.models.items())
        for i, entry in enumerate(variants.values())
        if isinstance(entry, Model)
    ]


def label(model: Model) -> str:
    """The name of a model in figures."""
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
    """(name, rows, median, p90, bias, stated spread) of each scored band of sizes."""
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
        name: Drawn(pd.concat(found[name], ignore_index=True), f"{of.says}bands are 90 % intervals", of.x, of.y)
        for name, of in FAMILIES.items()
        if found.get(name)
    }


def _tables(profile: Profile, model: Model) -> Iterator[pd.DataFrame]:
    of, panel = FAMILIES[family(model.kind)], label(model)
    if of.y is _BUS:
        yield from _collective(profile, model)
    elif of.shapes:
        try:
            dtype = "bf16" if of.axis == "seq" else model.kind.split(".")[1]
            at_peak = peak(profile.limits or model.limits, dtype)
        except UserError:  # the device has no such peak
            return
        matrices = {"matrices": 2} if "nongated" in model.library else {}
        for name, shape in of.shapes.items():
            yield _line(profile, model, shape | matrices, of.axis, panel, name, 1 / at_peak)
    elif model.cost_class.size == "bytes":
        yield _line(profile, model, {}, "bytes", model.kind.partition(".")[0], panel)


def _collective(profile: Profile, model: Model) -> Iterator[pd.DataFrame]:
    """A line per number of GPUs with a curve, or per power of two of the measured numbers of nodes."""
    op, over_nodes = model.kind.removesuffix(".network"), model.kind.endswith(".network")
    unit = "nodes" if over_nodes else "GPUs"
    for count in (not over_nodes and sorted(model.curves)) or _powers(*model.range[unit.lower()]):
        shape = {"nodes": count, "gpus": _GPUS_PER_NODE * count} if over_nodes else {"gpus": count}
        factor = BUS_FACTOR[op](np.array([shape["gpus"]], float))[0]
        yield _line(profile, model, shape, "bytes", label(model), f"{count:g} {unit}", factor)


def _line(
    profile: Profile, model: Model, shape: Mapping[str, float], axis: str, panel: str, name: str, times: float = 1.0
) -> pd.DataFrame:
    """Bytes, or else FLOP, over predicted seconds along an axis, `times` something."""
    given = {**shape, axis: _sizes(model, axis)}
    x = model.cost_class.columns(given, profile.limits or model.limits)
    estimate = profile.estimate(model.kind, given, library=model.library)
    work = x["bytes"] if axis == "bytes" else model.cost_class.axes["flop"](x)
    y, reach = work * times / estimate.seconds, np.exp(Z90 * estimate.spread)
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
