"""Parameters of a profile that are read off its fitted models: rates of links and memory, starts of copies, latencies.

A parameter comes from the model of its own op. Where that was not measured, another op stands in, and the spread grows:
`READ_OFF` lists both. Parameters that need two models are made by the functions below; each says its formula.
`experts_rate` compares samples of experts with what their products would take as dense ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, hypot, log, log2
from statistics import median, pstdev
from typing import Any

import numpy as np
import pandas as pd

from ...simulator.costs import Kernels
from ...simulator.hardware import Cluster, Limits
from ...simulator.profile import READ_OFF, Entry, Model, Profile
from ...simulator.profile.forms import BUS_FACTOR
from ...simulator.profile.parameters import bounds
from .errors import LIKE
from .owners import entry

Models = Mapping[str, Mapping[str, Entry]]
Entries = dict[str, dict[str, Any]]


def read_off(models: Models, table: pd.DataFrame, limits: Limits, hardware: Cluster) -> Entries:
    """Entries of a profile's parameters, for those models of samples that there are, and values that may be."""
    first = {kind: next(iter(variants.values())) for kind, variants in models.items()}
    fitted = {kind: model for kind, model in first.items() if isinstance(model, Model)}
    link = min((hardware.links[link] for link in hardware.h2d_route(0)), key=lambda link: link.bytes_per_s).kind
    ring = "link_fraction.nvlink" if "nvlink" in hardware.links.columns["kind"] else "broadcast.link_fraction"
    singles = {template.format(host_link=link, ring=ring): rule for template, rule in _SINGLES.items()}
    samples = _Samples(table, limits)
    found = {name: _single(name, rule, fitted, samples) for name, rule in singles.items()}
    found |= {name: _composed(rule, fitted, _wire_s(hardware)) for name, rule in _COMPOSED.items()}
    return {name: one for name, one in found.items() if one is not None and one["value"] >= _least(name)}


def _least(name: str) -> float:
    low, _, _ = bounds(name) or (0.0, 1.0, "")
    return low


def _wire_s(hardware: Cluster) -> float:
    """Seconds of a message on the catalogue's wires between two nodes; predictions add these themselves."""
    nics = hardware.nics_of(0)
    return sum(
        hardware.links[link].latency_s for nic in nics[:1] for link in (hardware.nic_tx(nic), hardware.nic_rx(nic))
    )


# ---- one model


@dataclass(frozen=True)
class _Single:
    """How a parameter is read off a model, how that is told, and what spread serving another op adds, in squares.

    `more` is the spread that samples of few nodes add, in squares.
    """

    value: Callable[[Model, "_Samples"], float | None]
    how: str
    another_op: float = 0.0
    more: Callable[[Model], float] = lambda model: 0.0


@dataclass(frozen=True)
class _Samples:
    """The samples that models were fitted to, and the limits of the device."""

    table: pd.DataFrame
    limits: Limits

    def largest(self, model: Model) -> tuple[float, float]:
        """(bytes, median seconds) of the largest ops that a model was fitted to."""
        rows = self.table[(self.table["cost_class"] == model.kind) & (self.table["library"] == model.library)]
        size = float(rows["bytes"].max())
        return size, float(rows["seconds"][rows["bytes"] == size].median())


def _single(name: str, rule: _Single, models: Mapping[str, Model], samples: _Samples) -> dict[str, Any] | None:
    own = READ_OFF[name][0]
    for kind in READ_OFF[name]:
        value = rule.value(models[kind], samples) if kind in models else None
        if value is not None:
            another_op = rule.another_op if kind != own else 0.0
            return _entry(value, [models[kind]], f"{rule.how} of {kind}", another_op, rule.more(models[kind]))
    return None


def _coefficient(name: str) -> Callable[[Model, _Samples], float | None]:
    return lambda model, _samples: model.coefficients[name]


def _long_rate(model: Model, samples: _Samples) -> float:
    """The coefficient e, such that the largest op that was measured takes what it took.

    A CPU's caches hold small copies, which then are faster than long ones; that a formula without caches does not say.
    """
    size, seconds = samples.largest(model)
    expected = float(model.estimate({"bytes": size}).seconds[0])
    return model.coefficients["e"] * expected / seconds


def _two_alone(model: Model) -> float:
    """The spread of a rate over more nodes if two were measured alone: they are not the general case."""
    return LIKE if model.range["nodes"][1] == 2 else 0.0


def _ring_fraction(model: Model, samples: _Samples) -> float | None:
    """What the largest measured message on the most GPUs reaches of the link, by bus bandwidth; None of short ones."""
    if not model.curves:
        return None
    gpus = max(model.curves)
    size, seconds = model.curves[gpus].bytes[-1], model.curves[gpus].seconds[-1]
    if size < _LONG:
        return None
    bus = float(BUS_FACTOR[model.kind](np.array([gpus]))[0])
    return float(size * bus / seconds / samples.limits.link_bytes_per_s)


_SHORT, _LONG = 2**16, 2**24
"""Bytes up to which the latency of a message can be told from its rate, and from which its rate from the latency."""

_SINGLES = {
    "link_fraction.{host_link}": _Single(_long_rate, "rate of long copies"),
    "link_fraction.hbm": _Single(_long_rate, "traffic of long sums of two tensors, over the peak bandwidth,"),
    "{ring}": _Single(_ring_fraction, "bus bandwidth at the largest size", 0.05),
    "link_fraction.nic": _Single(_coefficient("e"), "bus bandwidth from three nodes", 0.1, _two_alone),
    "copy.hbm_fraction": _Single(_long_rate, "traffic of long copies, which read and write"),
    "copy.p2p_fraction": _Single(_long_rate, "rate of long copies"),
    "broadcast.latency_s": _Single(_coefficient("a_s"), "constant term", 0.3),
    "broadcast.hop_s": _Single(_coefficient("h_s"), "one step of the ring", 0.3),
}


# ---- several models


@dataclass(frozen=True)
class _Composed:
    """A parameter made of several models: seconds or a ratio from them and the wires' latency in seconds."""

    kinds: tuple[str, ...]
    value: Callable[..., float | None]
    how: str


def _composed(rule: _Composed, models: Mapping[str, Model], wire_s: float) -> dict[str, Any] | None:
    if any(kind not in models for kind in rule.kinds):
        return None
    used = [models[kind] for kind in rule.kinds]
    value = rule.value(*used, wire_s=wire_s)
    return None if value is None else _entry(value, used, rule.how)


def _copy_start(copy: Model, synchronize: Model, wire_s: float) -> float:
    return copy.coefficients["a_s"] + synchronize.coefficients["item_s"]


def _way_back(back: Model, there: Model, wire_s: float) -> float:
    return back.coefficients["e"] / there.coefficients["e"]


def _node_hop(node: Model, network: Model, wire_s: float) -> float:
    """Of the n - 1 steps of a ring over N nodes, N - 1 lead to another node and N (g - 1) to the next of g GPUs.

    The model over nodes has one time for both: (n - 1) h = N (g - 1) hop + (N - 1) (node hop + wire).
    """
    nodes, gpus = network.range["nodes"][1], network.range["gpus_per_node"][1]
    inside = nodes * (gpus - 1) * node.coefficients["h_s"]
    return ((nodes * gpus - 1) * network.coefficients["h_s"] - inside) / (nodes - 1) - wire_s


def _short_s(size: float, model: Model, **nodes: float) -> float:
    """Seconds of a message of this size on the most ranks that were measured."""
    ranks = model.range["gpus"][1] if not nodes else nodes["nodes"] * model.range["gpus_per_node"][1]
    return float(model.estimate({"bytes": size, "gpus": ranks, **nodes}).seconds[0])


def _smallest(*models: Model) -> float | None:
    """Bytes of the smallest message that all of them measured; None where it is too long to tell its latency."""
    size = max(model.range["bytes"][0] for model in models)
    return size if size <= _SHORT else None


def _agree(all_reduce: Model, wire_s: float) -> float | None:
    size = _smallest(all_reduce)
    return None if size is None else _short_s(size, all_reduce)


def _doubling(node: Model, network: Model, wire_s: float) -> float | None:
    """(T over N nodes - T in one) / log2 N, less two messages on the wires, which predictions add."""
    size, nodes = _smallest(node, network), network.range["nodes"][1]
    if size is None:
        return None
    return (_short_s(size, network, nodes=nodes) - _short_s(size, node)) / log2(nodes) - 2 * wire_s


_COMPOSED = {
    "h2d.latency_s": _Composed(
        ("copy.h2d", "host.synchronize"), _copy_start, "constant term of copy.h2d, and a host.synchronize"
    ),
    "copy.d2h_fraction": _Composed(
        ("copy.d2h", "copy.h2d"), _way_back, "rate of long copies of copy.d2h over copy.h2d"
    ),
    "broadcast.node_hop_s": _Composed(
        ("broadcast", "broadcast.network"), _node_hop, "step of broadcast.network's ring between nodes"
    ),
    "agree.latency_s": _Composed(("all_reduce",), _agree, "smallest message of all_reduce on the most ranks"),
    "agree.doubling_s": _Composed(
        ("all_reduce", "all_reduce.network"),
        _doubling,
        "smallest message of all_reduce.network, more per doubling of nodes",
    ),
}


# ---- samples beside models

_RATE = "grouped_gemm.training_rate"
_SUITE = "torch"
"""How the libraries of the suite's feed-forwards begin; published tables time kernels of serving, which do more."""


def experts_rate(table: pd.DataFrame, profile: Profile, limits: Limits) -> Entries:
    """The rate of experts' GEMMs over that of dense ones: what `profile` says of both, over what balanced experts took.

    A measured feed-forward also activates: what `profile` says of that is taken off it.
    """
    rows = table[(table["cost_class"] == "grouped_gemm.bf16") & table["library"].str.startswith(_SUITE)]
    rows = rows[rows["skew"] == 0] if len(rows) else rows
    if not len(rows) or not all(map(profile.is_measured, ("gemm.bf16", "memory.swiglu"))):
        return {}
    rows = rows[rows["library"] == rows["library"].iloc[0]]
    kernels = Kernels(profile.set_values({_RATE: 1.0, "gemm.training_rate": 1.0}, "as measured"), limits)
    logs = [log(_gemm_rate(kernels, row)) for row in rows.to_dict("records")]
    spread, library = (pstdev(logs) if len(logs) > 1 else _ONE_ROW), rows["library"].iloc[0]
    how = f"rate of experts' products over dense ones, median of {len(logs)} feed-forwards of {library}"
    return {_RATE: entry(exp(median(logs)), max(spread, _LEAST_SPREAD), "measured", how)}


_ONE_ROW, _LEAST_SPREAD = 0.3, 0.02


def _gemm_rate(kernels: Kernels, row: Mapping[str, Any]) -> float:
    """Predicted over measured seconds of a feed-forward's GEMMs, which are half of the measured time at least."""
    tokens, hidden, inter, topk, experts = (int(row[name]) for name in ("tokens", "hidden", "inter", "topk", "experts"))
    matrices, seconds = int(row["matrices"]), float(row["seconds"])
    shape = (tokens * topk, hidden, inter, topk, experts, 1, 1, matrices)
    activation_s = kernels.activation_s("", tokens * topk, inter, matrices)
    gemms_s = float(kernels.estimate("experts", shape, 0, "bf16").seconds[0]) - activation_s
    return gemms_s / max(seconds - activation_s, seconds / 2)


def _entry(
    value: float, used: list[Model], how: str, another_op: float = 0.0, two_alone: float = 0.0
) -> dict[str, Any]:
    """An entry with the errors of its models; the last two are spreads that are added in squares."""
    scored = [one.held_out for one in used if one.held_out.rows]
    told = ", ".join(f"held out {error.median:.1%} / {error.p90:.1%}" for error in scored)
    more = f"; {another_op:g} more for another op" if another_op else ""
    more += f"; {two_alone:g} more for two nodes alone" if two_alone else ""
    spread = min(hypot(another_op, two_alone, *(one.bands[-1].spread for one in used)), 5.0)
    models = "; ".join(f"{one.library}, {one.source}" for one in used)
    source = f"{how}; {models}; {told or 'too few rows to leave any out'}{more}"
    return entry(min(value, 1.0), spread, "fitted" if scored else "measured", source)
