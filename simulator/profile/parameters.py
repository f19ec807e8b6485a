"""Named numbers that cost models read, each with its source, provenance and spread.

`PARAMETERS` and `OPTIONAL` list every name, but for `interference.<kind>.<kind>` of any two kinds of op, and
`algorithm.<op>.<name>.share` and `.steps` of an algorithm of collectives.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import StringConstraints

from ..base.errors import UserError, fault, unknown
from ..base.schema import HUGE, number, one_of, validate
from ..hardware import DTYPES, networks
from .forms import cost_class, known_classes

_T = TypeVar("_T")

MEASURED_ON = "infiniband"
"""The network between nodes that was measured where a file does not name one."""

PROVENANCE = ("exact", "measured", "interpolated", "fitted", "extrapolated", "datasheet", "assumed")

PARAMETERS = {
    # name: (smallest, largest, meaning); a profile's first, then a stack's
    "link_fraction.pcie": (0.01, 1.0, "payload rate over line rate of a PCIe link"),
    "link_fraction.c2c": (0.01, 1.0, "payload rate over line rate of a chip-to-chip link"),
    "link_fraction.nvlink": (0.01, 1.0, "rate of a ring collective over one GPU's NVLink line rate per direction"),
    "link_fraction.nic": (0.01, 1.0, "rate of a collective over the NIC line rate"),
    "link_fraction.host_memory": (0.01, 1.0, "sustained over peak bandwidth of host DRAM"),
    "link_fraction.hbm": (0.01, 1.0, "sustained over peak bandwidth of device memory"),
    "link_fraction.socket": (0.01, 1.0, "payload over line rate between CPU sockets"),
    "link_fraction.leaf": (0.01, 1.0, "rate of collectives over the line rate of a leaf switch's uplinks"),
    "link_fraction.spine": (0.01, 1.0, "the same, from the spine down"),
    "copy.hbm_fraction": (0.01, 1.0, "traffic (read + write) of a local copy over peak device memory bandwidth"),
    "h2d.latency_s": (0.0, 1.0, "start of a pinned host-to-device copy and its synchronisation"),
    "broadcast.latency_s": (0.0, 1.0, "launch of a broadcast"),
    "broadcast.hop_s": (0.0, 1.0, "one hop of the ring inside a node"),
    "broadcast.node_hop_s": (0.0, 1.0, "one hop of the ring between nodes"),
    "agree.latency_s": (0.0, 1.0, "all-reduce of a few bytes inside a node"),
    "agree.doubling_s": (0.0, 1.0, "the same, more for each doubling of the number of nodes"),
    "gather.tensor_s": (0.0, 1.0, "gathering the metadata of one tensor on all ranks"),
    "gather.node_tensor_s": (0.0, 1.0, "the same, more where the ranks are in several nodes"),
    "rdma.latency_s": (0.0, 1.0, "start of a batch of one-sided reads or writes"),
    "rdma.nic_fraction": (0.01, 1.0, "rate of one-sided reads and writes over the NIC line rate"),
    "register.s": (0.0, 1e3, "making a landing buffer known to the NICs"),
    "register.byte_s": (0.0, 1e-6, "the same, more per byte"),
    "register.tensor_s": (0.0, 1.0, "making one tensor in device memory known to the NICs"),
    "unregister.s": (0.0, 1e3, "the NICs forget a landing buffer"),
    "unregister.byte_s": (0.0, 1e-6, "the same, more per byte"),
    "init_group.s": (0.0, 1e3, "creating a process group"),
    "init_group.rank_s": (0.0, 1.0, "the same, more per rank"),
    "allocate.tensor_s": (0.0, 1.0, "planning the buckets, per tensor"),
    "allocate.byte_s": (0.0, 1e-6, "allocating device memory, per byte"),
    "open_handle.s": (0.0, 1e3, "starting the workers and opening the IPC handle"),
    "wait_worker.s": (0.0, 1.0, "hearing from the worker"),
    "sync.s": (0.0, 1.0, "device synchronise when everything is done"),
    "send_meta.s": (0.0, 1.0, "sending a bucket's metadata to the worker"),
    "send_meta.tensor_s": (0.0, 1.0, "the same, more per tensor"),
    "reload.s": (0.0, 1.0, "one call of the worker's weight loader"),
    "reload.tensor_s": (0.0, 1.0, "host work of the worker's weight loader per tensor"),
    "drop_handle.s": (0.0, 1e3, "the worker drops the handle, collects garbage and empties its cache"),
    "free_buffers.s": (0.0, 1e3, "the parameter server frees its buffers"),
    "post_hook.fp8_s": (0.0, 1e3, "process_weights_after_loading of an FP8 model"),
    "post_hook.bf16_s": (0.0, 1e3, "process_weights_after_loading of a 16-bit model"),
    "barrier.s": (0.0, 1e3, "a barrier of all ranks"),
    "pause.s": (0.0, 1e3, "stopping the requests that engines run"),
    "begin.s": (0.0, 1e3, "what an update does before its first bucket: caches flushed, barriers, calls"),
    "resume.s": (0.0, 1e3, "letting requests go on"),
    "export.s": (0.0, 1e3, "gathering one bucket on trainers: calls, barriers, polls"),
    "export.tensor_s": (0.0, 1.0, "gathering one tensor of which a trainer holds a part"),
    "convert.tensor_s": (0.0, 1.0, "renaming and slicing one full tensor on trainers"),
    "broadcast.message_s": (0.0, 1.0, "each further message of a broadcast or exchange"),
    "replica.tensor_s": (0.0, 1.0, "loading one tensor into a host replica"),
    "replica.byte_s": (0.0, 1e-6, "copying a byte into a host replica"),
    "replica.expert_byte_s": (0.0, 1e-6, "the same, for pieces of experts"),
    "handle.export_s": (0.0, 1.0, "exporting one CUDA IPC handle"),
    "handle.open_s": (0.0, 1.0, "receiving, opening and closing one CUDA IPC handle"),
    "elementwise.tensor_s": (0.0, 1.0, "launching one elementwise pass over a tensor"),
    "store.s": (0.0, 1e3, "opening and closing the files of a bucket"),
    "destroy_group.s": (0.0, 1e3, "destroying the process group"),
    "memory.context_bytes": (0.0, 1e11, "device memory of the CUDA context, NCCL and other libraries"),
    "memory.fragmentation": (0.0, 2.0, "what the allocator reserves beyond what is allocated, over that"),
}
FACTORS = ("gemm", "attention", "experts", "memory", "loss", "optimizer",
           "tp", "cp", "ep", "dp", "fsdp", "pipeline", "host")  # fmt: skip
"""Phases of a training step of which software may say that they take longer, or shorter, than the profile says."""

FACTORS_OF_TYPES = tuple(f"gemm.{dtype}" for dtype in DTYPES)
"""GEMMs of steps that compute in one data type, of which software may say the same."""

AttentionKernels = Literal["flash", "flash-2", "flash-1", "unfused"]
"""The kernels of a step's attention: the device's fused ones, FlashAttention's second or first, or separate ones."""

ATTENTION = "time_factor.attention"
"""A stack file's factor of attention, whatever its kernels: it stands for each factor of `ATTENTION_OF`."""

ATTENTION_OF = {kernels: f"{ATTENTION}.{kernels}" for kernels in get_args(AttentionKernels) if kernels != "unfused"}
"""Names of software's factors of attention, by kind of kernels; separate ones are GEMMs and memory-bound ones."""

TP_EXPOSED = "tp.exposed_fraction"

OPTIONAL = {
    **{
        f"time_factor.{phase}": (0.05, 50.0, f"time of {phase} in a training step over what the profile says")
        for phase in FACTORS
    },
    **{
        name: (0.05, 50.0, f'time of attention in a training step with attention = "{kernels}", over the same')
        for kernels, name in ATTENTION_OF.items()
    },
    "time_factor.tp.network": (0.05, 50.0, "the same of tp, more where its groups go over several nodes"),
    **{
        f"time_factor.gemm.{dtype}": (
            0.05,
            50.0,
            f"time of all GEMMs of a step that computes in {dtype}, over what the factors of gemm and experts say",
        )
        for dtype in DTYPES
    },
    "gemm.training_rate": (
        0.1,
        5.0,
        "rate of GEMMs in training over that of the short measurements of the profile: "
        "clocks settle, casts are fused, libraries are tuned",
    ),
    "gemm.training_rate.fp8": (0.1, 5.0, "the same of 8-bit GEMMs, if they differ"),
    "gemm.training_rate.fp4": (0.1, 5.0, "the same of 4-bit GEMMs, if they differ"),
    "grouped_gemm.training_rate": (0.1, 5.0, "the same of experts' GEMMs, over that of dense ones"),
    "grouped_gemm.tile_rows": (0.0, 1024.0, "rows that an expert's GEMMs lose to tiles that it does not fill"),
    "gemm.align16_factor": (1.0, 20.0, "time of products with rows of an odd multiple of 16 bytes, over even ones"),
    "gemm.align4_factor": (1.0, 20.0, "the same of rows of a multiple of 4 or 8 bytes only"),
    "gemm.align2_factor": (1.0, 20.0, "the same of rows of an odd number of 16-bit elements, or of bytes"),
    "attention.head_multiple": (1.0, 256.0, "elements that fused attention pads heads to a multiple of"),
    "attention.flash2_factor": (0.2, 5.0, "time of FlashAttention-2's kernels over that of the device's own"),
    "attention.flash1_factor": (0.5, 5.0, "time of FlashAttention's first kernels over that of FlashAttention-2's"),
    "attention.sparse_sm_flop_per_s": (1e9, 1e15, "FLOP/s of one SM in attention to picked tokens, at most"),
    "attention.sparse_backward_sm_flop_per_s": (1e9, 1e15, "the same in the backward of that attention, at most"),
    "scan.sm_flop_per_s": (1e9, 1e15, "FLOP/s of one SM in the GEMMs of a scan's chunks, at most"),
    "scan.sm_exp_per_s": (1e8, 1e13, "exponentials of one SM in Mamba-1's scan, at most"),
    "architecture.factor": (0.1, 10.0, "time of the kernels of an architecture's layers over that of their parts"),
    TP_EXPOSED: (0.0, 1.0, "share of an overlapped tensor-parallel exchange that its GEMMs do not hide"),
    "scale.doubling_fraction": (0.0, 0.5, "what a step may take longer for each doubling of GPUs beyond scale.gpus"),
    "scale.gpus": (1.0, 1e6, "GPUs of a typical row that factors are fitted to"),
    "optimizer.s": (0.0, 10.0, "host work around an optimizer step: agreeing, logging, the next batch"),
    "network.message_s": (0.0, 1.0, "a message between two nodes under one leaf switch"),
    "network.step_s": (0.0, 1.0, "a step of a ring from one node to the next, if it takes longer than a message"),
    "network.switch_s": (0.0, 1.0, "each further switch on its way"),
    "network.nic_fraction": (0.01, 1.0, "rate of long collectives over the line rate of the NICs"),
    "network.byte_s": (0.0, 1e-6, "host work per byte through a NIC, which bounds its rate"),
    "network.peer_s": (0.0, 1.0, "what a rank takes for each peer in another node that it exchanges with"),
    "exchange.s": (0.0, 1.0, "an all-reduce, gather or scatter between nodes, beside what the network takes"),
    "broadcast.link_fraction": (
        0.01,
        1.0,
        "rate of a ring collective over the line rate of a node's links without NVLink",
    ),
    "broadcast.tree": (
        0.0,
        1.0,
        "whether broadcasts between nodes go along binomial trees, whose messages share links, and not round a ring",
    ),
    "reduce_scatter.all_reduce": (
        0.0,
        1.0,
        "whether a reduce-scatter is an all-reduce of which each rank keeps its part",
    ),
    "read.in_memory": (
        0.0,
        1.0,
        "whether a one-sided read of a rank's own memory is a copy there, not through its NIC",
    ),
    "copy.d2h_fraction": (0.05, 1.0, "rate of device-to-host copies over that of host-to-device copies"),
    "copy.p2p_fraction": (0.01, 1.0, "rate of one GPU's copies to another over the NVLink line rate"),
    "reload.hbm_fraction": (0.01, 1.0, "traffic of a reload's copies over peak device memory bandwidth"),
    "layer.s": (0.0, 1.0, "host work of one pass over a layer, besides its launches"),
    "layer.tp_s": (0.0, 1.0, "the same of pipelines over n nodes, more per rank of tp and sqrt(1 + log2 n)"),
    "engine.layer_s": (0.0, 1.0, "host work of a layer in an engine's step that is no CUDA graph"),
    "switch.s": (0.0, 1e3, "host work in which trainers and engines on the same GPUs change over, beside their copies"),
    "engine.request_s": (0.0, 1.0, "host work of an engine's step for each of its requests, which no kernel hides"),
    "layer.experts_s": (0.0, 1.0, "host work of one pass over a layer with experts, beside layer.s"),
}
"""What a profile or a stack may tell besides: no prediction needs it."""

READ_OFF = {
    "link_fraction.pcie": ("copy.h2d",),
    "link_fraction.c2c": ("copy.h2d",),
    "link_fraction.host_memory": ("copy.h2d",),
    "link_fraction.hbm": ("memory.residual_add",),
    "link_fraction.nvlink": ("broadcast", "all_gather"),
    "broadcast.link_fraction": ("broadcast", "all_gather"),
    "link_fraction.nic": ("broadcast.network", "all_reduce.network"),
    "copy.hbm_fraction": ("copy.d2d",),
    "copy.p2p_fraction": ("copy.p2p",),
    "broadcast.latency_s": ("broadcast", "all_gather"),
    "broadcast.hop_s": ("broadcast", "all_gather"),
}
"""The cost classes whose model a parameter is read off, the first that was measured; the first of all is its own op."""

_INTERFERENCE = re.compile(r"interference\.[a-z]\w*\.[a-z]\w*")
_SPEED_KEPT = (0.01, 1.0, "speed an op of the first kind keeps beside one of the second on its GPU")
_ALGORITHM = re.compile(r"algorithm\.[a-z]\w*\.[a-z]\w*\.(share|steps)")
_OF_ALGORITHM = {
    "share": (0.01, 2.0, "rate between nodes that an algorithm reaches, over what its bytes allow"),
    "steps": (0.01, 100.0, "what a step of an algorithm waits, over what the curves say of a step"),
}


@dataclass(frozen=True)
class MeasuredBy:
    """The op whose measured time is a parameter of software: a cost class, its features, over `per` (bytes, say).

    With `least` the measured time is a floor: the software does this op, and more.
    """

    kind: str
    at: Mapping[str, Annotated[float, number(0, HUGE)]] = field(default_factory=lambda: {"count": 1.0})
    per: Annotated[float, number(1, HUGE)] = 1.0
    least: bool = False


@dataclass(frozen=True)
class Parameter:
    """A number in SI units with its relative standard deviation and where it comes from.

    A stack may say by which op of a device's profile it is measured; its own value is for profiles without that op.
    `network` is the kind of network between nodes that it was measured on.
    """

    value: Annotated[float, number(-HUGE, HUGE)]
    spread: Annotated[float, number(0, 5)]
    provenance: Annotated[str, one_of(lambda: PROVENANCE)]
    source: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    measured_by: MeasuredBy | None = None
    network: Annotated[str, one_of(networks)] = MEASURED_ON


def parameters(file: str, entries: Mapping[str, Any]) -> dict[str, Parameter]:
    """The checked entries of a file.

    Raises:
        UserError: an unknown name, or an entry that is not allowed; one line each.
    """
    names = [*PARAMETERS, *OPTIONAL, "interference.<kind>.<kind>", "algorithm.<op>.<name>.<share or steps>"]
    faults = [str(unknown(file, "parameter", name, names)) for name in entries if bounds(name) is None]
    found: dict[str, Parameter] = {}
    try:
        found = validate(dict[str, Parameter], {n: entry for n, entry in entries.items() if bounds(n)}, file)
    except UserError as error:
        faults += error.faults
    for name, parameter in found.items():
        low, high, meaning = bounds(name) or _SPEED_KEPT
        if not low <= parameter.value <= high:
            faults.append(fault(file, f"{name}.value", parameter.value, f"expected {low:g} to {high:g} ({meaning})"))
        if parameter.measured_by:
            faults += _misfits(parameter.measured_by, file, f"{name}.measured_by")
    if faults:
        raise UserError(*faults)
    return say_of_all_kernels(found)


def say_of_all_kernels(values: Mapping[str, _T]) -> dict[str, _T]:
    """These parameters with `ATTENTION`, if it is among them, replaced by the factors of all kinds that are not."""
    every = dict.fromkeys(ATTENTION_OF.values(), values[ATTENTION]) if ATTENTION in values else {}
    return {**every, **{name: value for name, value in values.items() if name != ATTENTION}}


def _misfits(by: MeasuredBy, file: str, where: str) -> list[str]:
    """What is wrong with the op that measures a parameter: its class, or the features of it."""
    known = cost_class(by.kind)
    if known is None:
        return [fault(file, f"{where}.kind", by.kind, f"expected a cost class: {', '.join(known_classes())}")]
    if not {*known.features} <= {*by.at} <= {*known.names}:
        return [fault(file, f"{where}.at", ", ".join(by.at), f"expected {', '.join(known.names)}")]
    return []


def bounds(name: str) -> tuple[float, float, str] | None:
    """Smallest and largest value of a parameter, and its meaning; None for an unknown name."""
    if of_algorithm := _ALGORITHM.fullmatch(name):
        return _OF_ALGORITHM[of_algorithm[1]]
    return _SPEED_KEPT if _INTERFERENCE.fullmatch(name) else PARAMETERS.get(name) or OPTIONAL.get(name)


def meaning_of(name: str) -> str:
    """The meaning of a parameter, read alone: what "the same" stands for is the meaning of the one before it."""
    meanings = {known: entry[2] for known, entry in (PARAMETERS | OPTIONAL).items()}
    before = ""
    for known, meaning in meanings.items():
        before = meaning if not meaning.startswith("the same") else before
        if known == name:
            return meaning.replace("the same", before, 1)
    return (bounds(name) or _SPEED_KEPT)[2]
