"""Work beside copies, beside kernels that hold SMs, and beside real all-reduces: what each loses to the other.

Samples are those of the work (the victim); its seconds alone and those of the noise are in `more`, as `beside` tells.
A product and attention compete for SMs and for power, a residual add for memory bandwidth. Uploads and copies on the
device are what a weight update does beside its broadcasts. Counts are the victim's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from ....kernels import occupy
from ..beside import beside
from ..case import Act, Case, Facts, Measurement
from ..timing import Bench, bench_later

_PROGRAMS = (4, 8, 16, 20, 24, 32)  # about as many as NCCL has channels
_ROUNDS = 4  # passes over the buffers by one launch: a hold of about a millisecond
_BYTES, _SMALL_BYTES = 1 << 26, 1 << 24  # of the noise; two of the larger do not fit an L2 cache

Prepare = Callable[[Bench], Act]


@dataclass(frozen=True)
class _Victim:
    """`like` is the noise that does the same, if there is one."""

    kind: str
    params: dict[str, Any]
    prepare: Prepare
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
    size = {} if noise.prepare is None else {"noise_bytes": victim.noise_bytes}
    params: dict[str, Any] = {"victim": victim.kind, **victim.params, "beside": noise.kind, **noise.params, **size}
    return Case(
        "interference",
        victim.kind,
        params,
        _measure(victim, noise),
        team,
        flop=victim.flop,
        bytes=victim.bytes,
        over=victim.over,
        cache="hot",
        footprint_bytes=3 * victim.bytes + 2 * victim.noise_bytes,
        quick=victim.quick and noise.quick,
    )


@bench_later
def _measure(bench: Bench, victim: _Victim, noise: _Noise) -> Measurement:
    other = noise.prepare(bench, victim.noise_bytes) if noise.prepare else None
    return beside(bench, victim.prepare(bench), other)


# ---- noises


def _upload(bench: Bench, size_bytes: int) -> Act:
    host, into = bench.device.host(size_bytes), bench.empty(size_bytes, dtype=torch.uint8)
    return lambda: into.copy_(host, non_blocking=True)


def _download(bench: Bench, size_bytes: int) -> Act:
    host, source = bench.device.host(size_bytes), _random_bytes(bench, size_bytes)
    return lambda: host.copy_(source, non_blocking=True)


def _local_copy(bench: Bench, size_bytes: int) -> Act:
    source, into = _random_bytes(bench, size_bytes), bench.empty(size_bytes, dtype=torch.uint8)
    return lambda: into.copy_(source)


def _occupant(programs: int) -> Callable[[Bench, int], Act]:
    def prepare(bench: Bench, size_bytes: int) -> Act:
        source, into = _random_bytes(bench, size_bytes), bench.empty(size_bytes, dtype=torch.uint8)
        return lambda: occupy.occupy(source, into, programs, _ROUNDS)

    return prepare


def _all_reduce(bench: Bench, size_bytes: int) -> Act:
    """Sums overflow after some; that changes neither what is moved nor what is added."""
    x = bench.rand(size_bytes // 2)
    return lambda: dist.all_reduce(x, group=bench.group)


def _broadcast(bench: Bench, size_bytes: int) -> Act:
    x, root = bench.rand(size_bytes // 2), bench.team[0]
    return lambda: dist.broadcast(x, src=root, group=bench.group)


def _random_bytes(bench: Bench, size_bytes: int) -> torch.Tensor:
    return torch.randint(0, 256, (size_bytes,), dtype=torch.uint8, device=bench.device.torch_device)


_NOISES = (
    _Noise("none", None),
    _Noise("h2d", _upload),
    _Noise("d2h", _download),
    _Noise("d2d", _local_copy),
)
_OCCUPANTS = tuple(
    _Noise("occupy", _occupant(programs), {"programs": programs, "rounds": _ROUNDS}, quick=programs in (8, 20, 32))
    for programs in _PROGRAMS
)


# ---- victims


def _gemm(m: int, n: int, k: int, **more: Any) -> _Victim:
    def prepare(bench: Bench) -> Act:
        x, w = bench.rand(m, k), bench.rand(n, k)
        return lambda: functional.linear(x, w)

    params = {"m": m, "n": n, "k": k, "dtype": "bf16"}
    return _Victim("gemm", params, prepare, 2.0 * m * n * k, 2.0 * (m * k + n * k + m * n), **more)


def _attention(heads: int, seq: int, head_dim: int, **more: Any) -> _Victim:
    def prepare(bench: Bench) -> Act:
        q, k, v = (bench.rand(1, heads, seq, head_dim) for _ in range(3))
        return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    params = {"heads": heads, "seq": seq, "head_dim": head_dim, "dtype": "bf16"}
    flop, moved = 2.0 * heads * head_dim * seq**2, 8.0 * heads * head_dim * seq
    return _Victim("attention", params, prepare, flop, moved, **more)


def _residual_add(rows: int, width: int, **more: Any) -> _Victim:
    def prepare(bench: Bench) -> Act:
        x, y, into = bench.rand(rows, width), bench.rand(rows, width), bench.empty(rows, width)
        return lambda: torch.add(x, y, out=into)

    params = {"rows": rows, "width": width, "dtype": "bf16"}
    return _Victim("memory", params, prepare, 0.0, 6.0 * rows * width, **more)


def _of_update(kind: str, like: str, over: str, passes: int) -> _Victim:
    """An op of a weight update, as the noise does it."""
    prepare = {"h2d": _upload, "d2d": _local_copy}[like]
    moved = float(passes * _BYTES)
    return _Victim(
        kind, {"bytes": _BYTES}, lambda bench: prepare(bench, _BYTES), 0.0, moved, quick=True, over=over, like=like
    )


_VICTIMS = (
    _gemm(8192, 8192, 8192, quick=True),
    _gemm(4096, 2048, 7168),
    _attention(32, 8192, 128, quick=True),
    _attention(32, 2048, 128),
    _residual_add(8192, 8192, quick=True),
    _residual_add(8192, 2048),
    _of_update("h2d", "h2d", "host", 1),
    _of_update("copy", "d2d", "memory", 2),
)
_SMALL_VICTIMS = (
    _gemm(256, 1024, 1024, noise_bytes=_SMALL_BYTES, quick=True),
    _gemm(1024, 1024, 1024, noise_bytes=_SMALL_BYTES),
    _attention(8, 512, 64, noise_bytes=_SMALL_BYTES, quick=True),
    _residual_add(1024, 1024, noise_bytes=_SMALL_BYTES, quick=True),
)
