"""Parameters of a profile that are read off its fitted models: rates of links and memory, starts of copies, latencies.

A parameter comes from the model of its own op. Where that was not measured, another op stands in, and the spread grows:
`READ_OFF` lists both. Parameters that need two models are made by the functions at the end; each says its formula.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import hypot, log2
from typing import Any

import numpy as np

from ...simulator.hardware import Cluster, Limits
from ...simulator.profile import READ_OFF, Entry, Model
from ...simulator.profile.forms import BUS_FACTOR
from ...simulator.profile.parameters import bounds
from .owners import entry

Models = Mapping[str, Mapping[str, Entry]]
Entries = dict[str, dict[str, Any]]


def read_off(models: Models, limits: Limits, hardware: Cluster) -> Entries:
    """Entries of a profile's parameters, for those models that there are and values that may be."""
    first = {kind: next(iter(variants.values())) for kind, variants in models.items()}
    fitted = {kind: model for kind, model in first.items() if isinstance(model, Model)}
    link = min((hardware.links[link] for link in hardware.h2d_route(0)), key=lambda link: link.bytes_per_s).kind
    singles = {template.format(host_link=link): rule for template, rule in _SINGLES.items()}
    found = {name: _single(name, rule, fitted, limits) for name, rule in singles.items()}
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
    """How a parameter is read off a model, how that is told, and the spread (in squares) that serving another op adds."""

    value: Callable[[Model, Limits], float | None]
    how: str
    another_op: float = 0.0


def _single(name: str, rule: _Single, models: Mapping[str, Model], limits: Limits) -> dict[str, Any] | None:
    own = READ_OFF[name][0]
    for kind in READ_OFF[name]:
        value = rule.value(models[kind], limits) if kind in models else None
        if value is not None:
            return _entry(value, [models[kind]], f"{rule.how} of {kind}", rule.another_op if kind != own else 0.0)
    return None


def _coefficient(name: str) -> Callable[[Model, Limits], float | None]:
    return lambda model, _limits: model.coefficients[name]


def _nic_fraction(model: Model, _limits: Limits) -> float | None:
    """The rate over more than two nodes, where samples tell it: two are not the general case."""
    return model.coefficients["e"] if model.range["nodes"][1] > 2 else None


def _ring_fraction(model: Model, limits: Limits) -> float | None:
    """What the largest measured message on the most GPUs reaches of the link, by bus bandwidth."""
    if not model.curves:
        return None
    gpus = max(model.curves)
    size, seconds = model.curves[gpus].bytes[-1], model.curves[gpus].seconds[-1]
    bus = float(BUS_FACTOR[model.kind](np.array([gpus]))[0])
    return float(size * bus / seconds / limits.link_bytes_per_s)


_SINGLES = {
    "link_fraction.{host_link}": _Single(_coefficient("e"), "rate of long copies"),
    "link_fraction.hbm": _Single(_coefficient("e"), "traffic of long sums of two tensors, over the peak bandwidth,"),
    "link_fraction.nvlink": _Single(_ring_fraction, "bus bandwidth at the largest size", 0.05),
    "link_fraction.nic": _Single(_nic_fraction, "bus bandwidth from three nodes", 0.1),
    "copy.hbm_fraction": _Single(_coefficient("e"), "traffic of long copies, which read and write"),
    "copy.p2p_fraction": _Single(_coefficient("e"), "rate of long copies"),
    "broadcast.latency_s": _Single(_coefficient("a_s"), "constant term", 0.3),
    "broadcast.hop_s": _Single(_coefficient("h_s"), "one step of the ring", 0.3),
}


# ---- several models


@dataclass(frozen=True)
class _Composed:
    """A parameter made of several models: seconds or a ratio from them and the wires' latency in seconds."""

    kinds: tuple[str, ...]
    value: Callable[..., float]
    how: str


def _composed(rule: _Composed, models: Mapping[str, Model], wire_s: float) -> dict[str, Any] | None:
    if any(kind not in models for kind in rule.kinds):
        return None
    used = [models[kind] for kind in rule.kinds]
    return _entry(rule.value(*used, wire_s=wire_s), used, rule.how)


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


def _smallest(model: Model, **nodes: float) -> float:
    """Seconds of the smallest message that was measured, on the most ranks."""
    ranks = model.range["gpus"][1] if not nodes else nodes["nodes"] * model.range["gpus_per_node"][1]
    features = {"bytes": model.range["bytes"][0], "gpus": ranks, **nodes}
    return float(model.estimate(features).seconds[0])


def _agree(all_reduce: Model, wire_s: float) -> float:
    return _smallest(all_reduce)


def _doubling(node: Model, network: Model, wire_s: float) -> float:
    """(T over N nodes - T in one) / log2 N, less two messages on the wires, which predictions add."""
    nodes = network.range["nodes"][1]
    return (_smallest(network, nodes=nodes) - _smallest(node)) / log2(nodes) - 2 * wire_s


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


def _entry(value: float, used: list[Model], how: str, another_op: float = 0.0) -> dict[str, Any]:
    """An entry with the errors of its models; `another_op` is the spread that serving another op adds, in squares."""
    scored = [one.held_out for one in used if one.held_out.rows]
    told = ", ".join(f"held out {error.median:.1%} / {error.p90:.1%}" for error in scored)
    more = f"; {another_op:g} more for another op" if another_op else ""
    spread = min(hypot(another_op, *(one.bands[-1].spread for one in used)), 5.0)
    models = "; ".join(f"{one.library}, {one.source}" for one in used)
    source = f"{how}; {models}; {told or 'too few rows to leave any out'}{more}"
    return entry(min(value, 1.0), spread, "fitted" if scored else "measured", source)
