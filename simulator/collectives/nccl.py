"""NCCL's choices: an algorithm, a protocol and channels, by its own estimates of time (data/nccl.toml).

LL stores 4 bytes of data with a flag of 4, so that it reaches half of the rate and waits for little; LL128 stores 120
bytes with a flag of 8 and needs NVLink; Simple fills buffers and synchronises. What differs between them in latency is
added to the profile's own, which is that of small messages, LL. A channel is a block of threads, which holds one SM.

The estimate is `latency + bytes / rate`: a ring waits for 2(n - 1) steps of an all-reduce, 2(N - 1) of them between N
nodes; a tree for chains inside and log2 N steps between. The time of a way is not this estimate but its closed form,
in which a ring's latency counts as here: a message under way holds no port.
"""

from functools import cache
from importlib.resources import files
from math import ceil, inf, log2
from typing import Any

from ..base.files import read_toml
from .algorithms.hops import ClusterNet, Wire
from .backends import Asked, Way

PROTOCOLS = ("LL", "LL128", "Simple")
_MOST_CHANNELS = 64
_RINGS = {"all_reduce": "ring", "all_gather": "ring", "reduce_scatter": "ring", "broadcast": "chain", "reduce": "chain"}


class Nccl:
    """NCCL as a `Backend`."""

    def ways(self, asked: Asked) -> list[Way]:
        """As `Backend.ways`: what has a root and all-to-alls are sends, which have no protocol to choose."""
        if asked.op not in _RINGS:
            return [Way("direct")]
        protocols = [one for one in PROTOCOLS if one != "LL128" or asked.net.has_nvlink]
        ways = [_way(asked, _RINGS[asked.op], protocol) for protocol in protocols]
        if asked.op == "all_reduce":
            ways += [_way(asked, "tree", protocol) for protocol in protocols]
            ways += [_way(asked, name, "Simple") for name in _nvls(asked)]
        return ways

    def choose(self, asked: Asked, ways: list[Way]) -> Way:
        """As `Backend.choose`."""
        return min(ways, key=lambda way: _estimate_s(asked, way)) if len(ways) > 1 else ways[0]


def _nvls(asked: Asked) -> list[str]:
    """Inside a node NVLS; between nodes NVLS and trees, to which `two_level` is nearest."""
    if not (asked.group.nvls and asked.group.near > 1 and _generation(asked.net)["nvls"]):
        return []
    return ["nvls"] if asked.group.islands == 1 else ["two_level"]


def _way(asked: Asked, name: str, protocol: str) -> Way:
    p, data = PROTOCOLS.index(protocol), _data()
    channels = asked.channels or _channels(asked)
    if name in ("nvls", "two_level"):
        return Way(name, protocol, channels, Wire(call_s=max(data["nvls"]["call_s"] - asked.net.launch_s, 0.0)))
    kind, inside = ("tree" if name == "tree" else "ring"), _inside(asked)
    most = channels * _per_channel(asked, protocol)
    reached = _correction(asked.size, protocol) if kind == "tree" else 1.0
    wire = Wire(
        share=data["share"]["data"][p] * reached,
        inside_s=_more(data["step_s"][inside][kind], p),
        between_s=_more(data["step_s"]["network"][kind], p),
        call_s=_more(data["base_s"][kind], p),
        most_bytes_per_s=min(most, _ll(asked)) if protocol == "LL" else most,
        in_flight=True,
    )
    return Way(name, protocol, channels, wire)


def _more(by_protocol: list[float], p: int) -> float:
    return max(by_protocol[p] - by_protocol[0], 0.0)


def _per_channel(asked: Asked, protocol: str) -> float:
    """Bytes/s; of a ring as of a tree, which NCCL has numbers of. Half of LL's are flags."""
    rates = _generation(asked.net)
    if protocol == "LL":
        return float(rates["Simple"][_scale(asked)]) / 2
    return float(rates[protocol][_scale(asked)])


def _ll(asked: Asked) -> float:
    """The most that LL carries, over all channels."""
    return float(_generation(asked.net)["LL"][_scale(asked)])


def _channels(asked: Asked) -> int:
    """As many as fill the slowest hop."""
    return min(ceil(_bus(asked) / min(_per_channel(asked, "Simple"), _per_channel(asked, "LL128"))), _MOST_CHANNELS)


def _estimate_s(asked: Asked, way: Way) -> float:
    latency_s = _latency_s(asked, way)
    if _on_plateau(asked, way):
        latency_s *= _data()["plateau"]["factor"]
    return latency_s + asked.size / _rate(asked, way)


def _on_plateau(asked: Asked, way: Way) -> bool:
    """A ring of Simple over several nodes, whose messages are not tiny."""
    if (asked.op, way.algorithm, way.protocol) != ("all_reduce", "ring", "Simple") or asked.group.islands == 1:
        return False
    return asked.size >= _data()["plateau"]["bytes_per_channel_and_rank"] * (way.channels or 1) * asked.group.ranks


def _latency_s(asked: Asked, way: Way) -> float:
    group, data, p = asked.group, _data(), PROTOCOLS.index(way.protocol)
    if way.algorithm == "nvls":
        return float(data["nvls"]["call_s"])
    if way.algorithm == "two_level":
        return float(data["nvls"]["call_s"] + 2 * log2(group.islands) * data["nvls"]["tree_step_s"])
    kind = "tree" if way.algorithm == "tree" else "ring"
    inside, between = (data["step_s"][where][kind][p] for where in (_inside(asked), "network"))
    if group.islands > 1:
        inside = max(inside, data["overhead_s"]["protocol"][p])
    if kind == "tree":
        return float(data["base_s"][kind][p] + 2 * ((group.near - 1) * inside + log2(group.islands) * between))
    steps, crossings = _steps(asked), (2 if asked.op == "all_reduce" else 1) * (group.islands - 1)
    return float(data["base_s"][kind][p] + (steps - crossings) * inside + crossings * between)


def _rate(asked: Asked, way: Way) -> float:
    """Bytes/s of the whole collective."""
    group, bus, channels = asked.group, _bus(asked), way.channels or 1
    share, protocol = _data()["share"], way.protocol
    p = PROTOCOLS.index(protocol)
    if way.algorithm in ("nvls", "two_level"):
        return _nvls_rate(asked, channels) * group.ranks / _steps(asked)
    most = _ll(asked) if protocol == "LL" else channels * _per_channel(asked, protocol)
    if way.algorithm == "tree":
        shares = share["tree_one_node" if group.islands == 1 else "tree_more_nodes"]
        return 0.5 * _correction(asked.size, protocol) * min(shares[p] * bus, most)
    return min(share["ring"][p] * bus, most if protocol != "Simple" else inf) * group.ranks / _steps(asked)


def _nvls_rate(asked: Asked, channels: int) -> float:
    """One channel keeps the others in step."""
    rates, kinds, nodes = _generation(asked.net), asked.net.kinds, asked.group.islands
    inside = 2 * kinds["inside"].bytes_per_s * rates["nvls"] * max(channels - 1, 1) / channels
    if nodes == 1:
        return float(inside)
    between = kinds["striped"].bytes_per_s * (2 if nodes == 2 else 1)
    return float(min(inside, between, channels * rates["nvls_tree"][_scale(asked)]))


def _correction(size: float, protocol: str) -> float:
    """What a tree reaches of its rate at this size."""
    factors = _data()["tree_correction"][protocol]
    step = max(int(log2(max(size, 64) / 64)), 0)
    return float(factors[step]) if step < len(factors) else 1.0


def _steps(asked: Asked) -> int:
    ranks = asked.group.ranks
    return {"all_reduce": 2 * (ranks - 1), "all_gather": ranks - 1, "reduce_scatter": ranks - 1}.get(asked.op, ranks)


def _bus(asked: Asked) -> float:
    """The rate of a ring's slowest hop."""
    return min(asked.net.kinds[hop].bytes_per_s for hop in asked.group.ring_hops)


def _inside(asked: Asked) -> str:
    return "nvlink" if asked.net.has_nvlink else "pcie"


def _scale(asked: Asked) -> int:
    return min(asked.group.islands, 3) - 1


def _generation(net: ClusterNet) -> dict[str, Any]:
    """The numbers of the slowest device's generation; of one that is not known, those of the oldest."""
    known = list(_data()["generation"].values())
    found = [i for i, one in enumerate(known) for name in net.devices if name.split()[0] in one["devices"]]
    return dict(known[min(found, default=0)])


@cache
def _data() -> dict[str, Any]:
    return dict(read_toml(files("runcast.data") / "nccl.toml"))
