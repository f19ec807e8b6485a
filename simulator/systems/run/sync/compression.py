"""What becomes of a compressed gradient: bytes on the wire, the collective that carries them, encoding and decoding.

Two families (Vogels et al., PowerSGD, arXiv 1905.13727): what can be summed as it is keeps the all-reduce; what cannot
is gathered, so that each worker receives and adds the messages of all others, and both grow with their number.

Encoding and decoding take what the scenario states, else what the profile has measured, else what fused kernels need to
move through the device's memory. The last is a lower bound: Agarwal et al., arXiv 2103.00543, find that real encoders
often take longer than the exchange they save. A worker's gradient is sharded over its GPUs: each encodes, decodes and
remembers its share.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from ....profile import Estimate
from ...tables import Rate, Table

_INDEX = 4  # bytes of a position: a 32-bit integer
_SCALE = 4  # bytes of a float32
_SECTOR = 32  # bytes that memory moves for one value at a random position (CUDA C++ Best Practices Guide, coalescing)
_BITS = {"int8": 8, "int4": 4, "sign": 1}
_SPARSE = ("top_k", "threshold", "random", "block")
_GATHERED = (*_BITS, "top_k", "threshold")
_OVERWRITES = ("fp16", "low_rank")  # the sum, which others add to and so clear first
_BY_MESSAGE = ("top_k_decode", "threshold_decode", "random_decode", "block_encode", "block_decode")
"""Parts that touch only what is sent: as measured they go by the message's bytes, all others by the gradient's."""

GIVEN, PASSES = "given", "datasheet"
"""Where seconds are from: stated in the scenario, or passes over memory at the rate of the device's data sheet."""

Shapes = Sequence[tuple[int, int, float]]
"""Matrices of a model: (rows, columns, how many of them)."""

Measured = Callable[[str, float], Estimate | None]
"""What a profile says of a part such as `top_k_encode` on so many bytes; None if nobody has measured it."""


class Compress(Table):
    """How gradients are compressed before they travel."""

    method: Literal["fp16", "int8", "int4", "sign", "top_k", "threshold", "random", "block", "low_rank"] = Field(
        description="fp16: half the bytes; int8, int4, sign: 8, 4 or 1 bits per value; top_k, threshold: the largest "
        "values with their positions; random, block: values or runs at positions from a common seed; low_rank: PowerSGD"
    )
    density: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="top_k, threshold, random, block: share of the values that are sent"
    )
    bucket: PositiveInt | None = Field(
        None, description="int8, int4, sign: values that share a scale of 4 bytes (default: all)"
    )
    rank: PositiveInt | None = Field(None, description="low_rank: columns of each factor")
    rows: PositiveInt | None = Field(None, description="low_rank: rows of a typical matrix (default: the model's)")
    columns: PositiveInt | None = Field(None, description="low_rank: columns of a typical matrix")
    error_feedback: bool = Field(
        False, description="whether what was not sent joins the next gradient; takes the gradient's bytes of memory"
    )
    momentum_correction: bool = Field(
        False, description="whether momentum is taken before compression, as in DGC; takes as many bytes again"
    )
    encode: Rate | None = Field(
        None,
        description="bytes of gradient that a GPU encodes per second "
        "(default: as the profile measured it, else passes over memory)",
    )
    decode: Rate | None = Field(
        None,
        description="bytes of gradient that a GPU decodes per second, per message "
        "(default: as the profile measured it, else passes over memory)",
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "Compress":
        for key, methods in (("density", _SPARSE), ("rank", ("low_rank",))):
            if getattr(self, key) is None and self.method in methods:
                raise ValueError(f"method = '{self.method}' needs {key}")
            if getattr(self, key) is not None and self.method not in methods:
                raise ValueError(f"{key} goes with method = {' or '.join(map(repr, methods))} (given: '{self.method}')")
        if self.bucket is not None and self.method not in _BITS:
            raise ValueError(f"bucket is for method = {' or '.join(map(repr, _BITS))} (given: '{self.method}')")
        if (self.rows is None) != (self.columns is None) or (self.rows and self.method != "low_rank"):
            raise ValueError("rows and columns must be given together, with method = 'low_rank'")
        if self.momentum_correction and not self.error_feedback:
            raise ValueError("momentum_correction needs error_feedback = true: momentum is added to what was not sent")
        return self


@dataclass(frozen=True)
class Message:
    """What a worker sends of one gradient.

    `decode_s` is for all messages that reach a worker in a collective, `decode_one_s` for one, such as a parameter
    server's answer of `pull_bytes`. `memory_bytes` stay between steps. Seconds and memory are those of each GPU.
    `rounds` collectives follow each other; they carry `wire_bytes` together. `encode_from` and `decode_from` say where
    these seconds are from: "given", or a provenance of the profile; `encode_spread` and `decode_spread` are their
    relative standard deviations, as far as the profile states them.
    """

    wire_bytes: float
    exchange: Literal["all_reduce", "all_gather"]
    encode_s: float = 0.0
    decode_s: float = 0.0
    decode_one_s: float = 0.0
    memory_bytes: float = 0.0
    pull_bytes: float = 0.0
    rounds: int = 1
    encode_from: str = GIVEN
    decode_from: str = GIVEN
    encode_spread: float = 0.0
    decode_spread: float = 0.0


def dense(gradient_bytes: float) -> Message:
    """The message of a gradient that is not compressed."""
    return Message(gradient_bytes, "all_reduce", pull_bytes=gradient_bytes)


def origin_notes(message: Message) -> list[str]:
    """What a report says of where the times of encoding and decoding are from; nothing of stated ones."""
    origins = {"encode": message.encode_from, "decode": message.decode_from}
    passes = [part for part, origin in origins.items() if origin == PASSES]
    timed = {part: origin for part, origin in origins.items() if origin not in (GIVEN, PASSES)}
    notes = []
    if timed:
        notes.append(f"times of {' and '.join(timed)} are the profile's ({', '.join(dict.fromkeys(timed.values()))})")
    if passes:
        priced = f"times of {' and '.join(passes)} are memory passes, a lower bound"
        notes.append(f"{priced}; `runcast calibrate run --only compress` measures them")
    return notes


def exchange_s(message: Message, workers: int, bytes_per_s: float, latency_s: float) -> float:
    """Seconds of a ring: all-reduce `2(N-1)a + 2(N-1)/N*S/B`, all-gather `(N-1)a + (N-1)*M/B` with M of each worker.

    Patarasuk and Yuan, JPDC 2009; NVIDIA/nccl-tests, doc/PERFORMANCE.md, whose S of an all-gather is all messages.
    """
    others = workers - 1
    if message.exchange == "all_gather":
        return others * (latency_s + message.wire_bytes / bytes_per_s)
    return 2 * others * (message.rounds * latency_s + message.wire_bytes / workers / bytes_per_s)


@dataclass(frozen=True)
class _Code:
    """One method on one gradient: bytes sent, bytes that memory moves, FLOP.

    Who decodes moves `sum_bytes` once, to clear or write the sum, and `add_bytes` for each message.
    """

    wire_bytes: float
    encode_bytes: float
    sum_bytes: float
    add_bytes: float
    encode_flop: float = 0.0
    decode_flop: float = 0.0
    rounds: int = 1

    def share(self, gpus: int) -> "_Code":
        """What each of so many GPUs has of it."""
        parts = {name: part / gpus for name, part in vars(self).items() if name != "rounds"}
        return replace(self, **parts)


def nothing_measured(part: str, size_bytes: float) -> None:
    """A profile that knows no part of any method."""


@dataclass(frozen=True)
class Gradient:
    """A worker's gradient: its bytes, those of each value, and for low_rank the matrices of the model."""

    size_bytes: float
    value_bytes: int
    shapes: Shapes = ()


@dataclass(frozen=True)
class Gpus:
    """A worker's GPUs, which share its gradient: how many, rates of each per second, what a profile has measured."""

    many: int
    memory_bytes_per_s: float
    flop_per_s: float
    measured: Measured = nothing_measured


def compress(keys: Compress, gradient: Gradient, workers: int, gpus: Gpus) -> Message:
    """What each of so many workers sends of its gradient, and what that costs on each of its GPUs.

    Error feedback reads gradient and residual and writes the residual: three times the gradient's bytes, and its bytes
    of memory (Karimireddy et al., arXiv 1901.09847, algorithm 1). Momentum correction does the same with its momentum
    (Lin et al., DGC, arXiv 1712.01887, equation 7). A rate in `keys` is for all of it; to what was measured these
    passes are added.

    Raises:
        ValueError: values of neither 2 nor 4 bytes; fp16 of values that have 2; low_rank without shapes, or with shapes
            of more values than the gradient has.
    """
    code, gathers = _code(keys, gradient), keys.method in _GATHERED
    share_bytes = gradient.size_bytes / gpus.many
    states_bytes = (keys.error_feedback + keys.momentum_correction) * share_bytes
    coder = _Coder(keys, code.share(gpus.many), share_bytes, gpus)
    encode, decode = coder.encode(3 * states_bytes), coder.decode(workers if gathers else 1)
    return Message(
        wire_bytes=code.wire_bytes,
        exchange="all_gather" if gathers else "all_reduce",
        encode_s=encode.seconds,
        decode_s=decode.seconds,
        decode_one_s=coder.decode(1).seconds,
        memory_bytes=states_bytes,
        pull_bytes=_pull_bytes(keys, code.wire_bytes, gradient.size_bytes, workers),
        rounds=code.rounds,
        encode_from=encode.origin,
        decode_from=decode.origin,
        encode_spread=encode.spread,
        decode_spread=decode.spread,
    )


@dataclass(frozen=True)
class _Time:
    """Seconds of a part on a GPU, where they are from, and their standard deviation as far as it is known."""

    seconds: float
    origin: str
    deviation_s: float = 0.0

    @property
    def spread(self) -> float:
        """The relative standard deviation."""
        return self.deviation_s / self.seconds if self.seconds else 0.0

    def plus(self, seconds: float) -> "_Time":
        """With seconds of something else, whose deviation nobody knows."""
        return replace(self, seconds=self.seconds + seconds)

    def times(self, many: int) -> "_Time":
        """As often: each takes as much more as the others."""
        return replace(self, seconds=many * self.seconds, deviation_s=many * self.deviation_s)


@dataclass(frozen=True)
class _Coder:
    """Times of both parts on a GPU; code and bytes are its share."""

    keys: Compress
    code: _Code
    gradient_bytes: float
    gpus: Gpus

    def encode(self, states_bytes: float) -> _Time:
        """The share of one gradient, with `states_bytes` that memory moves for what stays between steps."""
        if self.keys.encode:
            return _Time(self.gradient_bytes / self.keys.encode, GIVEN)
        own = self._measured("encode") or self._passes(self.code.encode_bytes, self.code.encode_flop)
        return own.plus(states_bytes / self.gpus.memory_bytes_per_s)

    def decode(self, messages: int) -> _Time:
        """So many messages into one sum."""
        if self.keys.decode:
            return _Time(messages * self.gradient_bytes / self.keys.decode, GIVEN)
        if (found := self._measured("decode")) is not None:
            return found.times(messages).plus(self._clear_s)
        return self._passes(self.code.sum_bytes + messages * self.code.add_bytes, self.code.decode_flop)

    def _measured(self, part: str) -> _Time | None:
        """By the bytes that the time of this part depends on."""
        name = f"{self.keys.method}_{part}"
        size_bytes = self.code.wire_bytes if name in _BY_MESSAGE else self.code.sum_bytes
        found = self.gpus.measured(name, size_bytes) if size_bytes else None
        if found is None:
            return None
        seconds = float(found.seconds[0])
        return _Time(seconds, found.labels()[0], seconds * float(found.spread[0]))

    @property
    def _clear_s(self) -> float:
        """To clear the sum that messages are added to."""
        if self.keys.method in _OVERWRITES:
            return 0.0
        found = self.gpus.measured("clear", self.code.sum_bytes)
        return self._passes(self.code.sum_bytes, 0.0).seconds if found is None else float(found.seconds[0])

    def _passes(self, moved_bytes: float, flop: float) -> _Time:
        return _Time(max(moved_bytes / self.gpus.memory_bytes_per_s, flop / self.gpus.flop_per_s), PASSES)


def _pull_bytes(keys: Compress, wire_bytes: float, gradient_bytes: float, workers: int) -> float:
    """Bytes that a parameter server returns after one message of each worker.

    Where all send the same positions, the sum has the bytes of one message. A sum of top_k or threshold has the union
    of positions: `1 - (1 - density)^W` of all values if workers choose independently, which is more than if their
    gradients are alike; the server sends a dense gradient where that is smaller. A sum of quantised values is quantised
    again (Tang et al., DoubleSqueeze, arXiv 1905.05957).
    """
    if keys.density is None or keys.method not in _GATHERED:
        return wire_bytes
    union = 1 - (1 - keys.density) ** workers
    return min(wire_bytes * union / keys.density, gradient_bytes)


def _code(keys: Compress, gradient: Gradient) -> _Code:
    """The method's costs on a gradient."""
    size, value, shapes = gradient.size_bytes, gradient.value_bytes, gradient.shapes
    if value not in (2, 4):
        raise ValueError(f"a gradient's values have 2 or 4 bytes (given: {value})")
    if keys.method == "fp16":
        return _half(size, value)
    if keys.method in _BITS:
        return _quantise(size, size / value, _BITS[keys.method], keys.bucket)
    if keys.density is not None:
        return _sparsify(keys.method, size, value, keys.density)
    if keys.rows and keys.columns:
        shapes = [(keys.rows, keys.columns, size / value / (keys.rows * keys.columns))]
    return _factorise(size, value, keys.rank or 0, shapes)


def _half(size: float, value: int) -> _Code:
    """Read values, write halves; and back."""
    if value == 2:
        raise ValueError("method = 'fp16' needs gradients of 4 bytes per value (given: 2)")
    return _Code(size / 2, size + size / 2, sum_bytes=size, add_bytes=size / 2)


def _quantise(size: float, values: float, bits: int, bucket: int | None) -> _Code:
    """Read values for the scale, read them again to round them, write them; one kernel adds all messages.

    Alistarh et al., QSGD, arXiv 1610.02132, section 4, where a bucket has 512 values. A sum of 8 bits overflows, so
    messages are gathered, as in PyTorch's hook (torch.distributed, ddp_comm_hooks/quantization_hooks.py).
    """
    wire = values * bits / 8 + _SCALE * (ceil(values / bucket) if bucket else 1)
    return _Code(wire, 2 * size + wire, sum_bytes=size, add_bytes=wire)


def _sparsify(method: str, size: float, value: int, density: float) -> _Code:
    """Pick values, with their positions where each worker chooses its own.

    - top_k: read and write magnitudes; torch.topk reads them once per 8 bits of a value to find the k-th, and once to
      gather (pytorch, aten/src/ATen/native/cuda/TensorTopK.cu, `mbtopk`).
    - threshold: read to count, read to gather. DGC's top-k is this: it finds its threshold in a sample of 0.1 to 1 %
      (arXiv 1712.01887, section 5).
    - random: read a sector per value, at positions from a seed that all share, so that sums need no positions. block:
      read runs of values instead.

    To add a message is to read it, and to read and write what it touches of the sum.
    """
    count, alone = density * size / value, method in _GATHERED
    wire = count * (value + (_INDEX if alone else 0))
    touched = wire if method == "block" else min(count * _SECTOR, size)
    reads = {"top_k": (2 + value + 1) * size, "threshold": 2 * size}.get(method, touched)
    return _Code(wire, reads + wire, sum_bytes=size, add_bytes=wire + 2 * touched)


def _factorise(size: float, value: int, rank: int, shapes: Shapes) -> _Code:
    """PowerSGD (Vogels et al., arXiv 1905.13727, algorithm 1): `P = MQ`, `Q = M'P`, and `PQ'` for each matrix M.

    Two all-reduces, of `r*n` and `r*m` values instead of `n*m`; each GEMM reads or writes M; Gram-Schmidt of P takes
    `2*n*r^2` FLOP. What gains nothing, such as vectors, travels as it is, as in PyTorch's hook.
    """
    if not shapes:
        raise ValueError("method = 'low_rank' needs rows and columns, or a model whose matrices are known")
    fits = [(n, m, count, min(rank, n, m)) for n, m, count in shapes]
    gains = [(n, m, count, r) for n, m, count, r in fits if r * (n + m) < n * m]
    whole = value * sum(n * m * count for n, m, count, _ in gains)
    if whole > size * (1 + 1e-9):
        raise ValueError(f"matrices of {whole:.0f} bytes are more than the gradient's {size:.0f}")
    factors = value * sum(r * (n + m) * count for n, m, count, r in gains)
    gemm_flop = sum(2 * n * m * r * count for n, m, count, r in gains)
    return _Code(
        wire_bytes=size - whole + factors,
        encode_bytes=2 * whole + factors,
        sum_bytes=whole,
        add_bytes=factors,
        encode_flop=2 * gemm_flop + sum(2 * n * r**2 * count for n, _, count, r in gains),
        decode_flop=gemm_flop,
        rounds=2,
    )
