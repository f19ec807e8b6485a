"""Cases of the suite for what `runcast execute` computes of training steps on hosts that have a share of a core.

`python -m runcast.calibrate run --cases tests.testbed.kernels --only steps`. All is fp32. A host computes for some
milliseconds and then waits for its next turn, so a sample lasts many turns. Bytes are algorithmic, as those of the
suite's own kernels in bf16 (`calibrate/measure/cases/membound.py`).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from math import prod

import torch
from runcast.calibrate.execute.training import kernels
from runcast.calibrate.execute.training.kernels import Heads
from runcast.calibrate.measure.case import Case, Facts
from runcast.calibrate.measure.cases.gemm import LAYOUTS, linear
from runcast.calibrate.measure.device import Act
from runcast.calibrate.measure.timing import Bench, Measure, Measurement, Prepare, warm_up

SAMPLE_S, SAMPLES = 0.2, 1
"""Seconds of a sample, and how many there are in a round."""

_SPREAD_BYTES, _MOST_COPIES = 16e6, 12
"""What an op reads in a step was written some time ago: acts take turns on copies that no core's own cache holds."""

_HEADS = Heads(8, 2, 64, 1e4)
_WEIGHTS = ((512, 512), (3072, 640), (640, 1536), (5120, 1024))
_TOKENS = (192, 320)
_ROWS = ((192, 640), (320, 1024), (320, 2560))
_ATTENTION = ((1, 192), (1, 320), (2, 320))  # sequences, tokens of each
_LOSSES = ((192, 1536), (320, 2560))  # tokens, words
_PARAMETERS = (1 << 21, 1 << 23)


@dataclass(frozen=True)
class _Kernel:
    """A kernel bound by memory: `prepare` is given rows and width (or parameters); `moves` are bytes per element."""

    name: str
    moves: float
    prepare: Prepare
    shapes: tuple[tuple[int, ...], ...] = _ROWS


def cases(facts: Facts) -> Iterator[Case]:
    """Products, attention and what is bound by memory, each forward and backward."""
    for n, k in _WEIGHTS:
        for m in _TOKENS:
            yield from (_product(direction, m, n, k) for direction in LAYOUTS)
    for batch, seq in _ATTENTION:
        yield from (_attention(direction, batch, seq) for direction in ("forward", "backward"))
    for kernel in _KERNELS:
        yield from (_memory(kernel, shape) for shape in kernel.shapes)


def lasting(size_bytes: float, prepare: Prepare, *shape: object) -> Measure:
    """Seconds of acts in a row, each on so many bytes; so many acts that turns of the processor even out."""

    def measure(bench: Bench) -> Measurement:
        copies = max(1, min(_MOST_COPIES, round(_SPREAD_BYTES / size_bytes)))
        turns = cycle([prepare(bench, *shape) for _ in range(copies)])
        act = lambda: next(turns)()  # noqa: E731
        one_s, _ = warm_up(bench, act)
        inner = max(1, math.ceil(SAMPLE_S / one_s))
        return Measurement(tuple(bench.device.times(act, SAMPLES, inner, cold=False, issue_s=0.0)))

    return measure


def _product(direction: str, m: int, n: int, k: int) -> Case:
    rows, columns, summed = {"forward": (m, n, k), "dgrad": (m, k, n), "wgrad": (n, k, m)}[direction]
    return _case(
        direction, {"m": m, "n": n, "k": k},
        lasting(4.0 * (m * k + n * k + m * n), linear, direction, m, n, k, torch.float32),
        "gemm.fp32" + ("" if direction == "forward" else f".{direction}"),
        {"m": float(rows), "n": float(columns), "k": float(summed)}, flop=2.0 * m * n * k,
    )  # fmt: skip


def _attention(direction: str, batch: int, seq: int) -> Case:
    q, kv, size, _ = _HEADS
    return _case(
        f"attention_{direction}", {"batch": batch, "seq": seq},
        lasting(8.0 * batch * seq * (q + kv) * size, _attend, direction, batch, seq), f"attention.fp32.{direction}",
        {"batch": float(batch), "seq": float(seq), "heads": float(q), "kv_heads": float(kv), "head_dim": float(size),
         "causal": 1.0}, flop=2.0 * batch * q * size * seq**2 * (2.5 if direction == "backward" else 1),
    )  # fmt: skip


def _memory(kernel: _Kernel, shape: tuple[int, ...]) -> Case:
    size = kernel.moves * prod(shape)
    names = ("rows", "width") if len(shape) > 1 else ("parameters",)
    width = {"width": float(shape[1])} if len(shape) > 1 else {}
    params = dict(zip(names, shape, strict=True))
    name = kernel.name.partition(" ")[0]
    return replace(
        _case(kernel.name.replace(" ", "_"), params, lasting(size, kernel.prepare, *shape), f"memory.{name}",
              {"bytes": size, **width}),
        bytes=size,
    )  # fmt: skip


def _case(
    name: str, params: dict[str, int], measure: Measure, cost_class: str, features: dict[str, float], flop: float = 0.0
) -> Case:
    return Case(
        "steps", name, {**params, "dtype": "fp32"}, measure, cost_class=cost_class, features=features,
        together=str(sorted(params.items())), flop=flop, cache="hot", lasts_s=(SAMPLES + 1) * SAMPLE_S,
    )  # fmt: skip


def _rand(bench: Bench, *shape: int) -> torch.Tensor:
    return bench.rand(*shape, dtype=torch.float32)


def _forth(kernel: Callable[..., object], *inputs: object) -> Act:
    return lambda: kernels.run(kernel, *inputs)


def _back(kernel: Callable[..., object], *inputs: object) -> Act:
    graph, outputs = kernels.run(kernel, *inputs)
    gradients = [torch.randn_like(one) for one in outputs]
    return lambda: graph.gradients(*gradients)


def _attend(bench: Bench, direction: str, batch: int, seq: int) -> Act:
    qkv = _rand(bench, batch * seq, (_HEADS.q + 2 * _HEADS.kv) * _HEADS.size)
    run = _forth if direction == "forward" else _back
    return run(kernels.attention, qkv, batch, _HEADS)


def _norm(run: Callable[..., Act]) -> Prepare:
    return lambda bench, rows, width: run(kernels.rms_norm, _rand(bench, rows, width), _rand(bench, width))


def _swiglu(run: Callable[..., Act]) -> Prepare:
    return lambda bench, rows, width: run(kernels.gated, _rand(bench, rows, 2 * width), kernels.ACTIVATIONS["silu"])


def _rope(run: Callable[..., Act]) -> Prepare:
    """Heads of q and k, which the bytes count, and those of v, which pass through."""

    def prepare(bench: Bench, rows: int, width: int) -> Act:
        heads = Heads(_HEADS.q, _HEADS.kv, width, _HEADS.theta)
        tokens = rows // (heads.q + heads.kv)
        qkv = _rand(bench, tokens, (heads.q + 2 * heads.kv) * width)
        return run(kernels.rope, qkv, torch.arange(tokens), heads)

    return prepare


def _add(bench: Bench, rows: int, width: int) -> Act:
    x, y = _rand(bench, rows, width), _rand(bench, rows, width)
    return lambda: x + y


def _loss(bench: Bench, tokens: int, words: int) -> Act:
    logits, targets = _rand(bench, tokens, words), torch.randint(0, words, (tokens,))
    return lambda: kernels.loss_parts(logits, targets, 0)


def _loss_back(bench: Bench, tokens: int, words: int) -> Act:
    logits, targets = _rand(bench, tokens, words), torch.randint(0, words, (tokens,))
    total = logits.exp().sum(dim=1)
    return lambda: kernels.loss_gradient(logits, targets, 0, total, tokens)


def _look_up(bench: Bench, rows: int, width: int) -> Act:
    table, tokens = _rand(bench, 1024, width), torch.randint(0, 1024, (rows,))
    mine = tokens >= 0
    return lambda: table[tokens.clamp(0, 1023)] * mine[:, None]


def _look_up_back(bench: Bench, rows: int, width: int) -> Act:
    gradient, tokens = _rand(bench, rows, width), torch.randint(0, 1024, (rows,))
    total = _rand(bench, 1024, width)
    return lambda: total.add_(gradient.new_zeros((1024, width)).index_add_(0, tokens, gradient))


def _grad_norm(bench: Bench, parameters: int) -> Act:
    values = _rand(bench, parameters)
    return lambda: values.square().sum()


def _adamw(bench: Bench, parameters: int) -> Act:
    weights, gradient = _rand(bench, parameters), _rand(bench, parameters)
    return lambda: kernels.adam(weights, gradient)


_OF_HEADS = tuple((tokens * (_HEADS.q + _HEADS.kv), _HEADS.size) for tokens in _TOKENS)
_FLAT = tuple((parameters,) for parameters in _PARAMETERS)
_KERNELS = (
    _Kernel("rms_norm", 8, _norm(_forth)),
    _Kernel("rms_norm_backward", 12, _norm(_back)),
    _Kernel("residual_add", 12, _add),
    _Kernel("swiglu", 12, _swiglu(_forth)),
    _Kernel("swiglu_backward", 20, _swiglu(_back)),
    _Kernel("rope", 8, _rope(_forth), _OF_HEADS),
    _Kernel("rope backward", 8, _rope(_back), _OF_HEADS),
    _Kernel("cross_entropy", 2, _loss, _LOSSES),
    _Kernel("cross_entropy_backward", 4, _loss_back, _LOSSES),
    _Kernel("embed", 8, _look_up),
    _Kernel("embed_backward", 20, _look_up_back),
    _Kernel("grad_norm", 4, _grad_norm, _FLAT),
    _Kernel("adamw", 28, _adamw, _FLAT),
)
