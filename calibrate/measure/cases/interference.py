"""Work beside copies, beside kernels that hold SMs, and beside real all-reduces: what each loses to the other.

Samples are those of the work (the victim); its seconds alone and those of the noise are in `more`, as `overlap` tells.
A GEMM and attention compete for SMs and for power, a residual add for memory bandwidth. Uploads and copies on the
device are what a weight update does beside its broadcasts. Counts are the victim's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from ....kernels import occupy
from ..case import Case, Facts
from ..device import Act
from ..overlap import measure_overlap
from ..timing import Bench, Measurement
from .gemm import linear
from .membound import residual_add

_PROGRAMS = (4, 8, 16, 20, 24, 32)  # about as many as NCCL has channels
_ROUNDS = 4  # passes over the buffers by one launch: a hold of about a millisecond
_BYTES, _SMALL_BYTES = 1 << 26, 1 << 24  # of the noise; two of the larger do not fit an L2 cache


@dataclass(frozen=True)
class _Victim:
    """`like` is the noise that does the same, if there is one."""

    kind: str
    params: dict[str, Any]
    prepare: Callable[[Bench], Act]
    flop: float
    bytes: float
    noise_bytes: int = _BYTES
    quick: bool = False
    over: str = "memory"
    like: str = ""


@dataclass(frozen=True)
class _Noise:
    """What runs beside: `prepare` is given its size in bytes."""

    kind: str
    prepare: Callable[[Bench, int], Act] | None
    params: dict[str, int] = field(default_factory=dict)
    quick: bool = True


def cases(facts: Facts) -> Iterator[Case]:
    """Every victim beside every noise but itself. Small victims are for CPUs only: a GPU would time its launches."""
    node = facts.nodes[0]
    for victim in _VICTIMS if facts.cuda else (*_SMALL_VICTIMS, *_VICTIMS):
        for noise in (*_NOISES, *(_OCCUPANTS if facts.cuda else ())):
            if noise.kind != victim.like:
                yield _case(victim, noise, (0,))
        if len(node) > 1:
            yield _case(victim, _Noise("all_reduce", _all_reduce, {"ranks": len(node)}), node)
        if len(node) > 1 and victim.like:
            yield _case(victim, _Noise("broadcast", _broadcast, {"ranks": len(node)}), node)


def _case(victim: _Victim, noise: _Noise, team: tuple[int, ...]) -> Case:
    def measure(bench: Bench) -> Measurement:
        other = noise.prepare(bench, victim.noise_bytes) if noise.prepare else None
        return measure_overlap(bench, victim.prepare(bench), other)

    size = {"noise_bytes": victim.noise_bytes} if noise.prepare else {}
    return Case(
        "interference",
        victim.kind,
        {"victim": victim.kind, **victim.params, "beside": noise.kind, **noise.params, **size},
        measure,
        team,
        flop=victim.flop,
        bytes=victim.bytes,
        over=victim.over,
        cache="hot",
        footprint_bytes=3 * victim.bytes + 2 * victim.noise_bytes,
        quick=victim.quick and noise.quick,
    )


# ---- noises


def _copy(bench: Bench, size_bytes: int, source: str, target: str) -> Act:
    """Between `host` and `device`, or on the device."""
    memory, into = (
        bench.device.host_memory(size_bytes) if end == "host" else _random_bytes(bench, size_bytes)
        for end in (source, target)
    )
    return lambda: into.copy_(memory, non_blocking=True)


def _occupy(bench: Bench, size_bytes: int, programs: int) -> Act:
    source, into = _random_bytes(bench, size_bytes), bench.empty(size_bytes, dtype=torch.uint8)
    return lambda: occupy.occupy(source, into, programs, _ROUNDS)


def _all_reduce(bench: Bench, size_bytes: int) -> Act:
    """Sums overflow after some; that changes neither what is moved nor what is added."""
    x = bench.rand(size_bytes // 2)
    return lambda: dist.all_reduce(x, group=bench.group)


def _broadcast(bench: Bench, size_bytes: int) -> Act:
    x, root = bench.rand(size_bytes // 2), bench.team[0]
    return lambda: dist.broadcast(x, src=root, group=bench.group)


def _random_bytes(bench: Bench, size_bytes: int) -> torch.Tensor:
    return torch.randint(0, 256, (size_bytes,), dtype=torch.uint8, device=bench.device.torch_device)


_upload, _download = partial(_copy, source="host", target="device"), partial(_copy, source="device", target="host")
_local_copy = partial(_copy, source="device", target="device")
_NOISES = (_Noise("none", None), _Noise("h2d", _upload), _Noise("d2h", _download), _Noise("d2d", _local_copy))
_OCCUPANTS = tuple(
    _Noise(
        "occupy",
        partial(_occupy, programs=programs),
        {"programs": programs, "rounds": _ROUNDS},
        quick=programs in (8, 20, 32),
    )
    for programs in _PROGRAMS
)


# ---- victims


def _gemm(m: int, n: int, k: int, **more: Any) -> _Victim:
    params = {"m": m, "n": n, "k": k, "dtype": "bf16"}
    prepare = partial(linear, direction="forward", m=m, n=n, k=k)
    return _Victim("gemm", params, prepare, 2.0 * m * n * k, 2.0 * (m * k + n * k + m * n), **more)


def _attention(heads: int, seq: int, head_dim: int, **more: Any) -> _Victim:
    def prepare(bench: Bench) -> Act:
        q, k, v = (bench.rand(1, heads, seq, head_dim) for _ in range(3))
        return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    params = {"heads": heads, "seq": seq, "head_dim": head_dim, "dtype": "bf16"}
    flop, moved = 2.0 * heads * head_dim * seq**2, 8.0 * heads * head_dim * seq
    return _Victim("attention", params, prepare, flop, moved, **more)


def _residual_add(rows: int, width: int, **more: Any) -> _Victim:
    params = {"rows": rows, "width": width, "dtype": "bf16"}
    return _Victim("memory", params, partial(residual_add, rows=rows, width=width), 0.0, 6.0 * rows * width, **more)


_UPDATE: dict[str, Any] = {"params": {"bytes": _BYTES}, "flop": 0.0, "quick": True}  # ops of a weight update
_VICTIMS = (
    _gemm(8192, 8192, 8192, quick=True),
    _gemm(4096, 2048, 7168),
    _attention(32, 8192, 128, quick=True),
    _attention(32, 2048, 128),
    _residual_add(8192, 8192, quick=True),
    _residual_add(8192, 2048),
    _Victim(
        "h2d", prepare=partial(_upload, size_bytes=_BYTES), bytes=float(_BYTES), over="host", like="h2d", **_UPDATE
    ),
    _Victim("copy", prepare=partial(_local_copy, size_bytes=_BYTES), bytes=2.0 * _BYTES, like="d2d", **_UPDATE),
)
_SMALL_VICTIMS = (
    _gemm(256, 1024, 1024, noise_bytes=_SMALL_BYTES, quick=True),
    _gemm(1024, 1024, 1024, noise_bytes=_SMALL_BYTES),
    _attention(8, 512, 64, noise_bytes=_SMALL_BYTES, quick=True),
    _residual_add(1024, 1024, noise_bytes=_SMALL_BYTES, quick=True),
)
