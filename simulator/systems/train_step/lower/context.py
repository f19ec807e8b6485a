"""Context parallelism as ops: attention and scans with the exchanges between ranks that share sequences."""

from collections.abc import Iterable, Sequence

from ....base.op_kinds import ATTENTION, op_kind
from ....models.kernels import Kernel, Kernels
from ....models.mamba2 import SCAN
from ....models.mixers import Mamba2
from .piece import PieceWriter
from .plan import TrainPlan

After = list[int]


class ContextWriter:
    """Writes kernels of a tensor-parallel group, with exchanges where these need tokens of other ranks.

    `spec` and `shard` are those of the layer at work.
    """

    def __init__(self, plan: TrainPlan, writer: PieceWriter):
        self.plan, self.spec, self.shard, self.w = plan, plan.spec, plan.shard, writer

    def write(self, kernels: Kernels, after: Sequence[int], times: float) -> After:
        """Write attention with its context-parallel exchanges; `times` scales their bytes (more in the backward)."""
        steps = [i for i, kernel in enumerate(kernels) if op_kind(kernel.kind).form == ATTENTION]
        if self.shard.cp == 1 or not steps:
            return self._scanned(kernels, after, times)
        first, last = steps[0], steps[-1]
        done, scores = self._scanned(kernels[:first], after, times), kernels[first : last + 1]
        ways = {"ring": self._ring, "all_gather": self._gathered, "ulysses": self._ulysses}
        windowed = self.shard.cp_type == "ring" and len(scores) == 1  # a ring has no windows: see blocks
        done = ways["all_gather" if windowed else self.shard.cp_type](scores, done, times)
        return self._scanned(kernels[last + 1 :], done, times)

    def _scanned(self, kernels: Kernels, after: Sequence[int], times: float) -> After:
        """Write kernels without attention; around a scan ranks exchange their tokens of all heads for whole sequences.

        As in Megatron-LM (core/ssm/mamba_context_parallel.py). A group's B and C go to every rank that has its heads.
        """
        inside = [i for i, kernel in enumerate(kernels) if kernel.name.removesuffix("_dgrad") in SCAN]
        of = self.spec.linear_attention
        if self.shard.cp == 1 or not inside or not isinstance(of, Mamba2):
            return self.w.compute(kernels, after)
        copies = max(self.shard.cp * self.shard.tp - of.num_groups, 0) * 2 * of.state_size
        each = self.shard.tokens * self.shard.wide / self.shard.tp
        into, out = each * (of.projected_width + copies), each * of.inner_width
        before, behind = (into, out) if times == 1 else (out, into)
        first, last = inside[0], inside[-1] + 1
        done = self._cp("all_to_all", before, self.w.compute(kernels[:first], after))
        done = self._cp("all_to_all", behind, self.w.compute(kernels[first:last], done))
        return self.w.compute(kernels[last:], done)

    def _keys(self, kernel: Kernel) -> float:
        """Bytes of the keys and values of one rank's tokens."""
        _, _, _, kv_heads, qk_dim, v_dim, *_ = kernel.shape
        shared = self.shard.cp if self.shard.cp_type == "ulysses" else 1
        width = qk_dim if self.spec.attends_to_latents and kv_heads == 1 else qk_dim + v_dim
        return float(self.shard.tokens * kv_heads * shared * width * self.shard.wide)

    def _ring(self, scores: Kernels, after: Sequence[int], times: float) -> After:
        """Write ring attention: blocks of keys and values travel beside the attention to the blocks already there.

        In the backward the gradient of a block follows it, one step behind, so that what attention gave at one step is
        sent at the next: first a block alone, then both, and last a gradient alone, which comes home (Transformer
        Engine, `AttnFuncWithCPAndKVP2P.backward`).
        """
        if times > 1 and len(scores) > 1:
            return self._ring_back(scores, after)
        done, arrived = list(after), list(after)
        for kernel in scores:
            done = self.w.compute([kernel], [*done, *arrived])
            if kernel is not scores[-1] or len(scores) == 1:
                arrived = self._cp("send_recv", times * self._keys(kernel), arrived)
        return done

    def _ring_back(self, scores: Kernels, after: Sequence[int]) -> After:
        done, arrived, size = list(after), list(after), self._keys(scores[0])
        for step, kernel in enumerate(scores):
            before = done if step else []
            done = self.w.compute([kernel], [*done, *arrived])
            tensors = 1 if step in (0, len(scores) - 1) else 2
            arrived = self._cp("send_recv", tensors * size, [*arrived, *before])
        return [*done, *arrived]

    def _gathered(self, scores: Kernels, after: Sequence[int], times: float) -> After:
        """Write attention after an all-gather of keys and values; the backward ends with a reduce-scatter."""
        everywhere = self.shard.cp * self._keys(scores[0])
        done = self.w.compute(scores, self._cp("all_gather", everywhere, after))
        return self._cp("reduce_scatter", everywhere, done) if times > 1 else done

    def _ulysses(self, scores: Kernels, after: Sequence[int], times: float) -> After:
        """Write Ulysses attention: all-to-alls from some tokens of all heads to all tokens of some heads, and back."""
        _, _, heads, _, qk_dim, v_dim, *_ = scores[0].shape
        queries = self.shard.tokens * heads * self.shard.cp * self.shard.wide
        into, out = queries * qk_dim + self._keys(scores[0]), float(queries * v_dim)
        before, behind = (into, out) if times == 1 else (out, into)
        return self._cp("all_to_all", behind, self.w.compute(scores, self._cp("all_to_all", before, after)))

    def _cp(self, kind: str, size_bytes: float, after: Iterable[int]) -> After:
        return [self.w.op(kind, "cp", after, name=f"cp {kind}", size_bytes=size_bytes, group=self.plan.groups["cp"])]
