"""Collectives: in one node, between nodes, and the bytes that each puts through the busiest link.

Sizes are those of nccl-tests: the buffer of an all-reduce, broadcast or reduce, the total gathered, the total input of
a reduce-scatter, the total that a rank sends in an all-to-all. x = S f(op, n) passes the busiest link (nccl-tests,
doc/PERFORMANCE.md). NCCL's own tuner constants choose algorithms well but are a poor clock, so both forms are fitted.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...base.arrays import Floats
from ...hardware import Limits
from .form import Coefficient, Coefficients, Columns, Form, form, p_norm

BUS_FACTOR: dict[str, Callable[[Floats], Floats]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": np.ones_like,
    "reduce": np.ones_like,
}
"""Bytes through the busiest link over nccl-tests size, for n ranks; what its bus bandwidth is defined by."""

_NVLS = 1.25
"""NVLink SHARP may lift an all-reduce's bus bandwidth above the link rate; other collectives stay below 1.1 of it."""

_TREE_S, _TREE_HOP_S = 15.2e-6, 5e-6
"""Tree, LL: 6.8 us and 2 x 7 x 0.6 us inside a node, and 5 us per hop between (NVIDIA/nccl, src/graph/tuning.cc).

Small messages over more than two nodes are rarely published, so that a fit alone cannot tell the call from the hops.
"""

_SHORT_RING, _PIPELINE_NORM = 16, 4.0
"""Ranks up to which latencies add to the transfer, and the p of the norm by which those of further ranks join it."""


def node_form(op: str) -> Form:
    """One NVSwitch node: T = a + h steps + c x^g + x/B, one fit over all n.

    Bounds are needed: without them B runs to 1.8 times the link rate on sizes up to 512 MiB (docs/profiles.md).
    """
    most = _NVLS if op == "all_reduce" else 1.1
    rounds = 2 if op == "all_reduce" else 1

    @form(
        f"{op} in a node",
        Coefficient("a_s", 1e-7, 1e-3, 1e-5, "call"),
        Coefficient("h_s", 1e-9, 1e-4, 1e-6, "one step of the ring"),
        Coefficient("c_s", 1e-9, 1e-3, 1e-6, "growing part at 1 MB through the busiest link"),
        Coefficient("g", 0.2, 0.75, 0.5, "its power of the size"),
        Coefficient("e", 0.05, most, 0.8, "bus bandwidth of endless messages over the link rate"),
    )
    def seconds(x: Columns, _limits: Limits, c: Coefficients) -> Floats:
        through = BUS_FACTOR[op](x["gpus"]) * x["bytes"]
        rate = c["e"] * x["link_bytes_per_s"]
        growing = c["c_s"] * (through / 1e6) ** c["g"]
        return c["a_s"] + c["h_s"] * rounds * (x["gpus"] - 1) + growing + through / rate

    return seconds


_RATE = "bus bandwidth over the NICs of a node, from three nodes"


def over_two(x: Columns) -> NDArray[np.bool_]:
    """Which ops are over two nodes."""
    return np.asarray(x["nodes"] < 2.5)


def over_more_than_two(x: Columns) -> NDArray[np.bool_]:
    """Which ops are over three nodes or more: the general case."""
    return ~over_two(x)


@form(
    "all-reduce over nodes",
    Coefficient("a_s", 1e-7, 1e-2, _TREE_S, "call, and the tree inside a node of eight", trust=1),
    Coefficient("h_s", 1e-8, 1e-3, _TREE_HOP_S, "one hop between nodes", trust=1),
    Coefficient("c", 1e-3, 1e2, 1.0, "growing part at 1 MB through the busiest link, over the latency"),
    Coefficient("g", 0.2, 0.75, 0.4, "its power of the size"),
    Coefficient("e", 0.05, 1.1, 0.9, _RATE, on=over_more_than_two, like="e2"),
    Coefficient("e2", 0.05, 2.0, 1.1, "the same for two nodes", on=over_two, like="e"),
)
def all_reduce_network(x: Columns, _limits: Limits, c: Coefficients) -> Floats:
    """Over nodes: T = (a + 2 h log2 N)(1 + c x^g) + x/B, with a B of its own for two nodes.

    Two nodes are not the general case: NCCL's tree and NVLSTree send less over the NICs there, so that bus bandwidth
    exceeds the NIC rate (NVIDIA/nccl-tests#309). Samples of one of the two cases say nothing of their ratio.
    """
    through = BUS_FACTOR["all_reduce"](x["gpus"]) * x["bytes"]
    nics = x["network_bytes_per_s"]
    rate = np.where(over_two(x), c["e2"], c["e"]) * nics
    latency = c["a_s"] + 2 * np.maximum(c["h_s"] + x["hop_s"], 0.0) * np.log2(x["nodes"])
    return latency * (1 + c["c"] * (through / 1e6) ** c["g"]) + through / rate


def ring_network(op: str) -> Form:
    """A ring over nodes: latency and bandwidth add up when the ring is short and overlap when it is long.

    Of its steps as many lead to another node as there are nodes, less one; `hop_s` is what they take more.

    At 1,024 ranks their sum overstates a published curve by up to 65 %, a p-norm with p = 4 follows it. So the latency
    of the first 16 ranks is added, and that of the others joins the transfer by the p-norm.
    """

    @form(
        f"{op} over nodes, short and long rings",
        Coefficient("a_s", 1e-7, 1e-2, 1.5e-5, "call"),
        Coefficient("h_s", 1e-8, 1e-3, 2e-6, "one step of the ring, in a node or between two"),
        Coefficient("e", 0.05, 1.1, 0.9, "bus bandwidth over the NICs of a node"),
    )
    def seconds(x: Columns, _limits: Limits, c: Coefficients) -> Floats:
        step = np.maximum(c["h_s"] + x["hop_s"] * (x["nodes"] - 1) / (x["gpus"] - 1), 0.0)
        added = (np.minimum(x["gpus"], _SHORT_RING) - 1) * step
        overlapped = np.maximum(x["gpus"] - _SHORT_RING, 0) * step
        transfer = BUS_FACTOR[op](x["gpus"]) * x["bytes"] / (c["e"] * x["network_bytes_per_s"])
        return c["a_s"] + added + p_norm(overlapped, transfer, _PIPELINE_NORM)

    return seconds


@form(
    "all-to-all over nodes",
    Coefficient("a_s", 1e-7, 1e-2, 3e-5, "call"),
    Coefficient("e", 0.05, 1.1, 0.9, "rate over a GPU's share of the NICs"),
)
def all_to_all_network(x: Columns, _limits: Limits, c: Coefficients) -> Floats:
    """Over nodes: T = a + S (n - n_local)/n / B, S being what a rank sends and B its share of the node's NICs."""
    local = x["gpus"] / x["nodes"]
    nic = x["network_bytes_per_s"] / local
    start = np.maximum(c["a_s"] + x["hop_s"], 0.0)
    return start + x["bytes"] * (1 - local / x["gpus"]) / (c["e"] * nic)
