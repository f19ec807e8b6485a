"""The cost classes: what each is, which features it reads, its formula, and what counts as its size.

A class is named by dots, from the general to the particular: `gemm.bf16.dgrad`, `all_reduce.network`, `memory.add`.
Some families are open: any `memory.<kernel>`, `compress.<part>`, `copy.<direction>`, `nic.<verb>` and `host.<call>`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter

import numpy as np

from ...base.arrays import Floats
from ...base.errors import UserError, fault
from ...base.units import format_bytes, format_rate
from ...hardware import DTYPES, Limits
from . import attention, gemm
from .collective import BUS_FACTOR, all_reduce_network, all_to_all_network, node_form, over_more_than_two, ring_network
from .form import Columns, Form, Rows
from .simple import WIDE_ROW, calls, passes, stream, transfer

FEATURES = {
    "bytes": "message or traffic, as the class counts it",
    "gpus": "ranks of a collective",
    "nodes": "nodes that they lie on",
    "link_bytes_per_s": "line rate of the link that is crossed; the hardware's if not given",
    "network_bytes_per_s": "line rate of all NICs of a node together; the hardware's if not given",
    "width": "elements of a row that a memory-bound kernel works on; wide if not given",
    "m": "rows of the result",
    "n": "columns of the result",
    "k": "summed dimension",
    "batch": "sequences",
    "seq": "tokens of a sequence",
    "heads": "query heads",
    "kv_heads": "key and value heads",
    "head_dim": "width of a head",
    "causal": "1 if a token sees earlier ones only, else 0",
    "tokens": "tokens of the expert-parallel group",
    "hidden": "width of the model",
    "inter": "width of an expert",
    "topk": "experts per token",
    "experts": "experts in all",
    "tp": "ranks that share one expert",
    "ep": "ranks that share the experts",
    "skew": "exponent of the power law of the load on experts; 0 is balanced",
    "matrices": "matrices of an expert: 3 with a gate, else 2",
    "count": "items of one call",
}
"""Every feature of a sample, and what it means; all are numbers."""

BEYOND_SAMPLES = {"hop_s": "seconds that a message between nodes takes beyond one on the network that was measured"}
"""Features that only questions have; 0 if not given."""

ZERO_BASED = ("causal", "skew")
"""Features that may be zero; their ranges have no doublings."""

WHOLE = ("gpus", "nodes", "heads", "kv_heads", "topk", "experts", "tp", "ep")
"""Features that count what cannot be divided."""

AT_MOST = (("nodes", "gpus"), ("kv_heads", "heads"))
"""Pairs of features of which the first is at most the second."""

HOLD_ALTERNATE, HOLD_GROUPS = "every second size", "whole groups"

Axis = Callable[[Columns], Floats]
Rate = Callable[[Limits], float]
Rates = Callable[[Limits], tuple[float, ...]]

_LINK: tuple[str, Rate] = ("link_bytes_per_s", attrgetter("link_bytes_per_s"))
_NETWORK: tuple[str, Rate] = ("network_bytes_per_s", attrgetter("network_bytes_per_s"))
_NIC: Rate = attrgetter("nic_bytes_per_s")


@dataclass(frozen=True)
class CostClass:
    """One kind of op. `axes` are what must lie in a fit's range, the first of them is its size.

    `filled` names a feature that need not be given, and what stands for it on some hardware.
    `hold_out` says how its error is measured, and `core` (all, if None) on which rows the headline error is quoted;
    with `fit_core` the coefficients are fitted to those rows alone. `asked` are features that only questions have.
    With `curves` there is a measured curve over bytes per number of GPUs. `rates` are the chip's own that a form reads.
    """

    meaning: str
    features: tuple[str, ...]
    form: Form
    axes: Mapping[str, Axis]
    filled: tuple[str, Rate] | None = None
    hold_out: str = HOLD_GROUPS
    curves: bool = False
    core: Rows | None = None
    fit_core: bool = False
    rates: Rates = lambda _limits: ()
    asked: tuple[str, ...] = ()

    @property
    def size(self) -> str:
        """The axis by which errors are listed."""
        return next(iter(self.axes))

    @property
    def names(self) -> tuple[str, ...]:
        """All features, with the one that need not be given."""
        return self.features if self.filled is None else (*self.features, self.filled[0])

    def columns(self, given: Mapping[str, object], limits: Limits) -> Columns:
        """Every feature as an array of one common length, what is not given filled in.

        Raises:
            UserError: a feature is missing, or a value is impossible.
        """
        missing = [name for name in self.features if name not in given]
        if missing:
            raise UserError(f"{self.meaning}: {missing[0]}: missing; expected {', '.join(self.features)}")
        stated = {name: given.get(name, np.nan) for name in self.names} | {n: given.get(n, 0.0) for n in self.asked}
        x = _arrays(stated)
        if self.filled is not None:
            name, rate = self.filled
            x[name] = np.where(np.isnan(x[name]), rate(limits), x[name])
        self._check(x)
        return x

    def _check(self, x: Columns) -> None:
        every = np.stack(list(x.values()))
        usual = ((every > 0) & np.isfinite(every)).all()  # one look at all: this is asked for every op
        for name, values in x.items() if not usual else ():
            good = np.isfinite(values) & ((values > 0) | (name in self.asked) | (values == 0) & (name in ZERO_BASED))
            if not good.all():
                raise UserError(fault(self.meaning, name, float(values[~good][0]), "expected a number above zero"))
        for fewer, more in AT_MOST:
            if {fewer, more} <= set(x) and (x[fewer] > x[more]).any():
                raise UserError(f"{self.meaning}: {fewer}: more than {more}")


def _arrays(values: Mapping[str, object]) -> dict[str, Floats]:
    """The values as arrays of one common length."""
    if all(isinstance(value, int | float) for value in values.values()):  # numpy takes long over a single op
        return {name: np.array([value], np.float64) for name, value in values.items()}
    arrays = np.broadcast_arrays(*(np.asarray(value, np.float64) for value in values.values()))
    return {name: np.atleast_1d(array) for name, array in zip(values, arrays, strict=True)}


@cache
def cost_class(name: str) -> CostClass | None:
    """The class of this name, or None."""
    family, _, rest = name.partition(".")
    return _CLASSES.get(name) or (_FAMILIES[family](rest) if family in _FAMILIES and rest else None)


def bus_bytes_ratio(
    kind: str, like: str, x: Mapping[str, object], asked: Mapping[str, object] | None = None
) -> float | Floats:
    """The factor from the seconds of one collective to those of another one.

    That is the ratio of the bytes that each puts through the busiest link; 1 for what is no collective. The other one
    is `asked` with these features, where they are not the same.
    """
    mine, theirs = (BUS_FACTOR.get(name.partition(".")[0]) for name in (kind, like))
    if mine is None or theirs is None:
        return 1.0
    gpus, theirs_gpus = (np.atleast_1d(np.asarray(of["gpus"], np.float64)) for of in (x, asked or x))
    return mine(gpus) / theirs(theirs_gpus)


def class_and_features(kind: str, x: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """The class and features that are meant: a collective over several nodes is a class of its own.

    Raises:
        UserError: a feature that the class does not have, or ops inside and across nodes at once.
    """
    if kind in BUS_FACTOR and "nodes" in x:
        several = np.asarray(x["nodes"], np.float64) > 1
        if several.any() != several.all():
            raise UserError(f"{kind}: nodes: some are 1 and some more; ask for {kind} and {kind}.network apart")
        kind, x = (f"{kind}.network", x) if several.all() else (kind, {k: v for k, v in x.items() if k != "nodes"})
    found = cost_class(kind)
    unknown = [name for name in x if found is not None and name not in (*found.names, *found.asked)]
    if found is not None and unknown:
        raise UserError(f"{kind}: {unknown[0]}: unknown feature; expected {', '.join(found.names)}")
    return kind, x


def known_classes() -> list[str]:
    """Names of all classes, open families as `family.<name>`."""
    return [*_CLASSES, *(f"{family}.<name>" for family in _FAMILIES)]


def _columns(*names: str) -> dict[str, Axis]:
    return {name: lambda x, name=name: x[name] for name in names}  # type: ignore[misc]


def _chip(dtype: str) -> Rates:
    return lambda limits: (gemm.peak(limits, dtype), limits.memory_bytes_per_s, limits.sms)


def _collective(op: str) -> CostClass:
    axes = _columns("bytes", "gpus", "link_bytes_per_s")
    return CostClass(
        f"{op} in one node", ("bytes", "gpus"), node_form(op), axes, _LINK, hold_out=HOLD_ALTERNATE, curves=True
    )


def _network(op: str) -> CostClass:
    forms = {"all_reduce": all_reduce_network, "all_to_all": all_to_all_network}
    form = forms.get(op) or ring_network(op)
    axes = {**_columns("bytes", "nodes", "network_bytes_per_s"), "gpus_per_node": lambda x: x["gpus"] / x["nodes"]}
    features, asked = ("bytes", "gpus", "nodes"), tuple(BEYOND_SAMPLES)
    return CostClass(f"{op} over nodes", features, form, axes, _NETWORK, core=over_more_than_two, asked=asked)


def _gemm(dtype: str, layout: str) -> CostClass:
    axes = {"flop": gemm.flop, **_columns("m", "n", "k")}
    meaning, form = f"matrix product in {dtype}, {layout}", gemm.gemm_form(dtype)
    return CostClass(meaning, ("m", "n", "k"), form, axes, core=gemm.is_layer_shape, fit_core=True, rates=_chip(dtype))


def _attention(direction: str, dtype: str) -> CostClass:
    features = ("batch", "seq", "heads", "kv_heads", "head_dim", "causal")
    axes = {"flop": attention.flop, **_columns(*features)}
    form = attention.attention_form(dtype)
    return CostClass(f"attention in {dtype}, {direction}", features, form, axes, rates=_chip(dtype))


def _grouped(dtype: str) -> CostClass:
    features = ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "skew", "matrices")
    axes = {"flop": gemm.experts_flop, **_columns(*features)}
    form = gemm.grouped_gemm_form(dtype)
    return CostClass(f"experts' feed-forward in {dtype}", features, form, axes, rates=_chip(dtype))


def _link(meaning: str, rate: Rate, asked: tuple[str, ...] = ()) -> CostClass:
    axes, filled = _columns("bytes", "link_bytes_per_s"), ("link_bytes_per_s", rate)
    return CostClass(meaning, ("bytes",), transfer, axes, filled, hold_out=HOLD_ALTERNATE, asked=asked)


def _memory(kernel: str) -> CostClass:
    axes = _columns("bytes", "width")
    filled: tuple[str, Rate] = ("width", lambda _limits: WIDE_ROW)
    return CostClass(
        f"memory-bound kernel, {kernel}",
        ("bytes",),
        stream,
        axes,
        filled,
        rates=lambda limits: (limits.memory_bytes_per_s,),
    )


def _copy(direction: str) -> CostClass:
    """A copy on the device reads and writes, so its line rate is half the memory's."""
    rates: dict[str, Rate] = {"d2d": lambda limits: limits.memory_bytes_per_s / 2, "p2p": _LINK[1]}
    return _link(f"copy, {direction}", rates.get(direction.partition(".")[0], attrgetter("host_bytes_per_s")))


def _compress(part: str) -> CostClass:
    return CostClass(
        f"compression of gradients, {part}",
        ("bytes",),
        passes,
        _columns("bytes"),
        hold_out=HOLD_ALTERNATE,
        rates=lambda limits: (limits.memory_bytes_per_s,),
    )


_CLASSES: dict[str, CostClass] = {
    **{op: _collective(op) for op in BUS_FACTOR},
    **{f"{op}.network": _network(op) for op in BUS_FACTOR},
    "send_recv": _link("send and receive in one node", _LINK[1]),
    "send_recv.network": _link("send and receive between nodes", _NIC, tuple(BEYOND_SAMPLES)),
    **{
        f"gemm.{dtype}{suffix}": _gemm(dtype, layout)
        for dtype in DTYPES
        for suffix, layout in (("", "forward"), (".dgrad", "data gradient"), (".wgrad", "weight gradient"))
    },
    **{
        f"attention.{type_}{direction}": _attention(direction, dtype)
        for type_, dtype in (("", "bf16"), ("fp32.", "fp32"))
        for direction in ("forward", "backward")
    },
    **{f"grouped_gemm.{dtype}": _grouped(dtype) for dtype in ("bf16", "fp8")},
}

_FAMILIES: dict[str, Callable[[str], CostClass]] = {
    "memory": _memory,
    "compress": _compress,
    "copy": _copy,
    "nic": lambda verb: _link(f"RDMA {verb}", _NIC),
    "host": lambda call: CostClass(f"host, {call}", ("count",), calls, _columns("count")),
}

_SI = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def band_name(axis: str, low: float, high: float | None) -> str:
    """A band of sizes from `low` up to `high`, or without an end."""
    if high is None:
        return f"from {quantity(axis, low)}" if low else "all sizes"
    return f"{quantity(axis, low)} to {quantity(axis, high)}" if low else f"below {quantity(axis, high)}"


def quantity(axis: str, value: float) -> str:
    """A value of an axis as a reader says it."""
    if axis == "bytes":
        return format_bytes(value)
    if axis.endswith("bytes_per_s"):
        return format_rate(value)
    if axis != "flop":
        return f"{value:,g}" if value < 1e6 else f"{value:,.0f}"
    return next((f"{value / scale:.3g} {unit}FLOP" for scale, unit in _SI if value >= scale), f"{value:.3g} FLOP")
