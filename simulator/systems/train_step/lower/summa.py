"""2-D tensor parallelism: GEMMs of a q x q grid of ranks in q steps, as in SUMMA and Optimus (arXiv 2104.05343).

A tensor-parallel group of q x q ranks is a grid; ranks of a row are neighbours. Rank (i, j) holds block (i, j) of every
activation (sequences by i, widths by j) and of every matrix, and computes block (i, j) of every result:

    forward            C  = A B      q steps: broadcast A(i, s) in the row, B(s, j) in the column, add their product
    input gradient     A' = C' B^T   q steps: broadcast B(s, j) in the column, multiply, reduce to A'(i, s) in the row
    weight gradient    B' = A^T C'   q steps: broadcast A(i, s) in the row, multiply, reduce to B'(s, j) in the column

So each GEMM has 2 q exchanges. Those of a step overlap the previous GEMMs: each panel has two buffers. Norms exchange
sums of their rows, losses three numbers per token, and the embedding table is broadcast in panels, like B.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from ....base.op_kinds import PRODUCT, op_kind
from ....models.kernels import Kernel, element_bytes
from .piece import PieceWriter
from .plan import TrainPlan

ROW, COLUMN = "tp_row", "tp_col"
_NORMS = ("input_norm", "mlp_norm", "post_norm", "final_norm", "embedding_norm", "enorm", "hnorm")
_BEFORE = slice(-2, -1)  # the GEMM that used the same buffer: the last but one
_PANELS = {  # by kind: which two of a step's three sizes make the panels that are broadcast, and the result reduced
    "gemm": (((ROW, 0, 2), (COLUMN, 1, 2)), None),
    "dgrad": (((COLUMN, 1, 2),), (ROW, 0, 1)),
    "wgrad": (((ROW, 1, 2),), (COLUMN, 0, 1)),
}


def largest_panels(plan: TrainPlan, pipeline_rank: int) -> float:
    """Bytes of the panels of the largest GEMM in a pipeline rank's layers, with two buffers each."""
    numbers = [number for stage in plan.grid.stages_of(pipeline_rank) for number in plan.stages[stage].layers]
    products = [kernel for number in numbers for kernel in plan.layer(number).all if kernel.kind == "gemm"]
    return max((2 * _element(k, plan.shard.wide) * k.shape[2] * (k.shape[0] + k.shape[1]) for k in products), default=0)


def _element(kernel: Kernel, wide: int) -> float:
    """Bytes of an element that a GEMM reads."""
    return min(element_bytes(kernel.dtype), wide)


class GridWriter(PieceWriter):
    """Writes kernels with the exchanges inside them, for a grid of tensor-parallel ranks, row by row."""

    def __init__(self, plan: TrainPlan):
        super().__init__()
        q, group = plan.shard.side, plan.groups["tp"]
        self._spec, self._wide, self._side = plan.spec, plan.shard.wide, q
        self._tokens = plan.shard.tokens // q
        self._groups = {ROW: tuple(group[:q]), COLUMN: tuple(group[::q])}
        self._products: list[int] = []

    def compute(self, kernels: Iterable[Kernel], after: Sequence[int] = ()) -> list[int]:
        """Write consecutive kernels; steps of a GEMM are consecutive too. Weight gradients wait only for `after`."""
        done = list(after)
        for _, steps in groupby(kernels, lambda kernel: kernel.name):
            done = self._one(list(steps), done, list(after))
        return done

    def _one(self, steps: list[Kernel], done: list[int], after: list[int]) -> list[int]:
        kernel = steps[0]
        if op_kind(kernel.kind).form == PRODUCT:
            return self._product(steps, after if kernel.kind == "wgrad" else done)
        if kernel.kind == "embed":
            return super().compute(steps, [*done, *self._table("broadcast", done)])
        done = super().compute(steps, done)
        if kernel.kind == "embed_backward":
            return self._table("reduce", done)
        if kernel.kind in ("cross_entropy", "loss_passes"):
            return [self._exchange("all_reduce", ROW, 3 * 4 * self._tokens, done)]
        if kernel.name.removesuffix("_dgrad") in _NORMS:
            sums = 2 if self._spec.norm == "layer" else 1
            return [self._exchange("all_reduce", ROW, sums * 4 * self._tokens, done)]
        return done

    def _product(self, steps: list[Kernel], after: list[int]) -> list[int]:
        """Write a GEMM. Returns the op that completes its result: the last step, or the last reduction."""
        sums: list[int] = []
        for kernel in steps:
            panels, reduced = _PANELS[kernel.kind]
            free = self._products[_BEFORE]
            each = _element(kernel, self._wide)
            waits = [
                self._exchange("broadcast", lane, each * kernel.shape[a] * kernel.shape[b], [*after, *free])
                for lane, a, b in panels
            ]
            self._products += super().compute([kernel], [*waits, *sums[_BEFORE]])
            if reduced is not None:
                lane, a, b = reduced
                size = self._wide * kernel.shape[a] * kernel.shape[b]
                sums.append(self._exchange("reduce", lane, size, self._products[-1:]))
        return sums[-1:] or self._products[-1:]

    def _table(self, kind: str, after: list[int]) -> list[int]:
        """Write the exchange of the embedding table's panels in the column: broadcasts, or reductions of gradients."""
        words = -(-self._spec.vocab_size // self._side)
        size = self._wide * words * (self._spec.hidden_size // self._side)
        return [self._exchange(kind, COLUMN, size, after) for _ in range(self._side)]

    def _exchange(self, kind: str, lane: str, size_bytes: float, after: Iterable[int]) -> int:
        name = {"broadcast": "panel", "reduce": "sum of panels"}.get(kind, "sums of rows")
        return self.op(kind, lane, after, name=name, size_bytes=size_bytes, group=self._groups[lane])
