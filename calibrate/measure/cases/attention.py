"""Attention, forward and backward, of whole sequences: causal and not, grouped heads, 128 to 32768 tokens.

Grouped heads are real ones (`enable_gqa`); where `kv_expanded` is True, keys and values are repeated for every query
head before, as many frameworks do, and count as so many heads. Where a backend does not take a shape, its case fails.
"""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..case import Case, Facts
from ..device import Act
from ..timing import Bench, Measure, backward_of, cold, measure_in


@dataclass(frozen=True)
class Shape:
    """Sequences, query heads and those of keys and values, tokens, and the size of a head."""

    batch: int
    heads: int
    kv_heads: int
    seq: int
    head_dim: int
    causal: bool = True
    kv_expanded: bool = False

    @property
    def keys(self) -> int:
        """Heads that keys and values have in memory."""
        return self.heads if self.kv_expanded else self.kv_heads

    @property
    def elements(self) -> float:
        """Elements of queries, results, keys and values together."""
        return 2.0 * self.batch * self.seq * self.head_dim * (self.heads + self.keys)

    @property
    def flop(self) -> float:
        """FLOP of the two GEMMs, forward; half of it if causal."""
        return 4.0 * self.batch * self.heads * self.head_dim * self.seq**2 * (0.5 if self.causal else 1.0)

    def traffic_bytes(self, direction: str) -> float:
        """Bytes in bf16 that a pass reads and writes; backward also the gradients of all four."""
        return 2 * self.elements * (2 if direction == "backward" else 1)


_SHAPES = (  # batch, heads, kv_heads, seq, head_dim
    *((1, 4, 2, 128, 64), (1, 8, 2, 256, 64), (1, 8, 8, 512, 64), (2, 8, 2, 512, 128), (1, 4, 1, 1024, 128)),
    *((4, 4, 4, 256, 64), (1, 2, 2, 512, 192), (1, 4, 4, 1024, 64), (1, 16, 4, 512, 128), (1, 2, 1, 2048, 64)),
    *((1, 32, 8, 512, 128), (1, 32, 8, 1024, 128), (1, 32, 8, 2048, 128), (1, 32, 8, 4096, 128), (1, 32, 8, 8192, 128)),
    *((1, 32, 8, 16384, 128), (1, 32, 8, 32768, 128), (4, 32, 8, 4096, 128), (8, 32, 8, 2048, 128)),
    *((1, 8, 1, 8192, 128), (1, 4, 1, 8192, 128), (1, 4, 1, 32768, 128), (1, 64, 8, 8192, 128), (1, 16, 16, 4096, 128)),
    *((2, 12, 12, 2048, 128), (4, 16, 16, 2048, 64), (1, 32, 32, 8192, 64), (16, 16, 16, 512, 64)),
    *((1, 128, 128, 4096, 128), (1, 64, 64, 4096, 192), (1, 16, 16, 8192, 192), (1, 96, 96, 2048, 128)),
)
_FULL_UP_TO = 8192  # tokens, of one sequence: longer ones are only measured causal
_EXPANDED = ((1, 8, 2, 256, 64), (1, 32, 8, 4096, 128))
_QUICK = (
    *((1, 8, 2, 256, 64), (1, 8, 8, 512, 64), (1, 4, 1, 1024, 128), (1, 4, 4, 1024, 64), (1, 32, 8, 2048, 128)),
    *((1, 32, 8, 8192, 128), (4, 16, 16, 2048, 64), (1, 8, 1, 8192, 128), (1, 64, 64, 4096, 192)),
)
_SCATTERED, _SCATTERED_QUICK = 96, 32
"""Shapes drawn from all that models use, since fits learn more from them than from a grid: of the published tables of
H100, H200 and B200 thirty drawn ones predict all others with an error of 3 to 6 / 10 to 15 % (median and p90), the
hand-picked ones above with 6 to 11 / 17 to 38 %.
"""

FLOP_OVER_FORWARD = {"forward": 1.0, "backward": 2.5}
"""FLOP of each pass over those of forward: backward multiplies five times where forward does twice."""

BACKENDS = {"cuda": ("flash", "cudnn"), "cpu": ("default",)}  # by kind of device
_SDPA_BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def cases(facts: Facts) -> Iterator[Case]:
    """Cases with flash and cuDNN on CUDA, and with torch's own choice on a CPU.

    cuDNN makes a plan for every new shape, 0.4 s forward and 0.6 s backward (github.com/modelscope/FunASR issue 3704,
    on a B200): fewer of its cases are quick.
    """
    scattered = _scattered_shapes(_SCATTERED)
    quick = {Shape(*numbers) for numbers in _QUICK}
    picked = []
    for shape in (Shape(*numbers) for numbers in _SHAPES):
        full = shape.batch == 1 and shape.seq <= _FULL_UP_TO
        picked += [shape, replace(shape, causal=False)] if full else [shape]
    picked += [Shape(*numbers, kv_expanded=True) for numbers in _EXPANDED]
    for backend in BACKENDS[facts.kind]:
        quick_ones = quick if backend == "cudnn" else quick.union(scattered[:_SCATTERED_QUICK])
        for shape in dict.fromkeys([*picked, *scattered]):
            yield from (_case(direction, shape, backend, shape in quick_ones) for direction in FLOP_OVER_FORWARD)


def _scattered_shapes(count: int) -> list[Shape]:
    """Always the same draws: up to 2^17 tokens in all, and a GEMM of at most 0.3 PFLOP."""
    draw, shapes = random.Random(0), list[Shape]()
    while len(shapes) < count:
        heads = draw.choice((4, 8, 12, 16, 24, 32, 40, 64, 96, 128))
        shape = Shape(
            batch=2 ** draw.randint(0, 7),
            heads=heads,
            kv_heads=draw.choice([kv for kv in (1, 2, 4, 8, heads) if heads % kv == 0]),
            seq=draw.choice((128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384, 32768)),
            head_dim=draw.choice((64, 128, 128)),
            causal=draw.random() < 0.75,
        )
        if shape.batch * shape.seq <= 2**17 and shape.flop <= 3e14 and shape not in shapes:
            shapes.append(shape)
    return shapes


def _case(direction: str, shape: Shape, backend: str, quick: bool) -> Case:
    features = {name: float(value) for name, value in asdict(shape).items() if name != "kv_expanded"}
    moved = shape.traffic_bytes(direction)
    return Case(
        "attention",
        direction,
        {**asdict(shape), "dtype": "bf16", "backend": backend},
        pin_backend(backend, cold(attention, direction, shape)),
        cost_class=f"attention.{direction}",
        features={**features, "kv_heads": float(shape.keys)},
        library=f"torch {backend}",
        together=f"{shape.heads}x{shape.keys}x{shape.head_dim}",
        flop=FLOP_OVER_FORWARD[direction] * shape.flop,
        bytes=moved,
        footprint_bytes=2 * moved + 2 * shape.elements,  # random numbers are fp32 first
        quick=quick,
    )


def attention(bench: Bench, direction: str, shape: Shape) -> Act:
    """One pass; inputs need gradients, so that forward keeps what backward needs."""
    heads = (shape.heads, shape.keys, shape.keys)
    inputs = [bench.rand(shape.batch, h, shape.seq, shape.head_dim).requires_grad_() for h in heads]
    options = {"is_causal": shape.causal, "enable_gqa": shape.keys != shape.heads}
    forward = lambda: functional.scaled_dot_product_attention(*inputs, **options)  # noqa: E731
    return forward if direction == "forward" else backward_of(forward, inputs)


def pin_backend(backend: str, measure: Measure) -> Measure:
    """Use only this backend during the whole measurement; to choose it in every call would cost host time."""
    return measure_in(partial(sdpa_kernel, _SDPA_BACKENDS[backend]), measure) if backend in _SDPA_BACKENDS else measure
