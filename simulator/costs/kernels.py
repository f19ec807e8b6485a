"""The time of one kernel of a training step, or of the host to issue kernels: the profile's models with corrections."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..base.op_kinds import ATTENTION, EXPERTS, MEMORY, PRODUCT, OpKind, op_kind
from ..hardware import Limits
from ..models.kernels import ALIGNED_BYTES, PACKED, SUM_BYTES, aligned_bytes, element_bytes, visible, weights_of
from ..profile import PROVENANCE, Estimate, Parameter, Profile
from ..profile.forms.gemm import peak

Shape = tuple[int, ...]

PRODUCT_TYPE = {"fp8-block": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
"""The data type of a GEMM's model, for recipes that scale their operands in other ways."""

_CASTS = {
    "fp8": ("memory.quantize_by", "memory.cast_fp8"),
    "fp8-block": ("memory.quantize_tiles",),
    "mxfp8": ("memory.quantize_tiles",),
}
"""The classes of the kernels that cast operands, by recipe; the first that a profile has measured."""

_SUMS = ("memory.fp32_accumulate",)
"""The class of the kernel that adds weight gradients to sums in fp32."""

_MISALIGNED = ((16, "gemm.align16_factor"), (4, "gemm.align4_factor"), (0, "gemm.align2_factor"))
"""(alignment in bytes, parameter): the extra time of a GEMM whose least aligned rows start at multiples of this."""

HEAD_MULTIPLE = "attention.head_multiple"
UNALIGNED = (*(name for _, name in _MISALIGNED), HEAD_MULTIPLE)
"""The parameters of awkward shapes. If all are 1, awkward shapes cost nothing."""

_HEAD_ALIGNED = 8
"""Elements of a head that fused attention reads at once. Heads of other sizes are first copied and padded
(flash_attn_interface.py of Dao-AILab/flash-attention, 7153673)."""

_TILE_ROWS = "grouped_gemm.tile_rows"
"""The parameter of the rows that each expert loses to tiles that it does not fill."""


def alignment_penalty(widths: Sequence[int], dtype: str) -> str | None:
    """The parameter of GEMMs with rows of these widths in elements; None if aligned to 32 bytes, or vectors."""
    aligned = min(aligned_bytes(width, dtype) for width in widths)
    if aligned >= ALIGNED_BYTES or 1 in widths:
        return None
    return next(name for least, name in _MISALIGNED if aligned >= least)


@dataclass(frozen=True)
class Kernels:
    """Estimates of kernels, from a device's profile and data-sheet limits; `served` by an inference engine.

    Served kernels are as profiles measured them: GEMMs without the factors of training, casts within them, and experts
    by the kernels of serving, which also gather, activate and weigh.
    """

    profile: Profile
    limits: Limits
    served: bool = False

    def estimate(self, kind: str, shape: Shape, size: int, dtype: str) -> Estimate:
        """The estimate of one kernel of this kind, shape, bytes and data type.

        Raises:
            UserError: the profile has no model for it.
        """
        if dtype in PACKED:
            return self._unpacked(self.estimate(kind, shape, size, "bf16"), weights_of(kind, shape), PACKED[dtype])
        of = op_kind(kind)
        if of.form == PRODUCT:
            return self._product(kind, shape, dtype)
        if of.form == ATTENTION:
            return self._attention(of, shape, dtype)
        if of.form == EXPERTS:
            return self._experts(of.model, shape, dtype)
        if of.form == "issue":
            return _times(self._of("host.launch", {"count": 1.0}), float(shape[0]))
        assert of.form == MEMORY, f"{kind} is no kernel"
        return self._memory(of, shape, {"bytes": float(max(size, 1)), "width": float(shape[0])})

    def _memory(self, of: OpKind, shape: Shape, features: Mapping[str, float]) -> Estimate:
        """A kernel bound by memory, or by exponentials. It borrows another's model only where nobody measured it."""
        own = f"memory.{of.own or of.name}"
        if self.profile.is_measured(own):
            return self._of(own, features)
        found, rate = self._of(f"memory.{of.model}", features), self.profile.parameters.get(of.sm_rate)
        return self._at_most_by_sm(found, float(shape[1]), rate) if rate else found

    def _of(self, cost_class: str, features: Mapping[str, float]) -> Estimate:
        return self.profile.estimate(cost_class, features, limits=self.limits)

    def _product(self, kind: str, shape: Shape, dtype: str) -> Estimate:
        if rate := self.profile.parameters.get(op_kind(kind).sm_rate):
            return self._at_most_by_sm(self._in_training(kind, shape, dtype), 2.0 * math.prod(shape), rate)
        widths = shape[:2] if kind == "wgrad" else shape[1:]
        found = self._misaligned(self._in_training(kind, shape, dtype), widths, dtype)
        if kind == "wgrad":
            return self._accumulated(found, float(shape[0] * shape[1]))
        return found if self.served else self._quantized(found, float(shape[0] * shape[2]), dtype)

    def _at_most_by_sm(self, found: Estimate, work: float, rate: Parameter) -> Estimate:
        """A kernel that does `work` at the rate which an SM reaches at most, where it takes longer for it.

        A GEMM inside a kernel with exponentials and masks has such a rate in Triton, on Hopper and Blackwell alike:
        faster tensor cores and memory do not raise it. Nor do they raise that of exponentials. Attention to picked
        tokens has a rate for each generation of GPUs.
        """
        least = work / (self.limits.sms * rate.value)
        if least <= found.seconds[0]:
            return found
        label = np.full_like(found.provenance, PROVENANCE.index(rate.provenance))
        return replace(found, seconds=np.array([least]), spread=np.array([rate.spread]), provenance=label)

    def _in_training(self, kind: str, shape: Shape, dtype: str) -> Estimate:
        """A GEMM in training. Profiles hold short measurements; in training clocks settle, and casts are fused."""
        m, n, k = shape
        kept = PRODUCT_TYPE.get(dtype, dtype)
        found = self._of(f"gemm.{kept}{op_kind(kind).model}", {"m": m, "n": n, "k": k})
        if self.served:
            return self._at_most_peak(found, shape, dtype)
        rate = self.profile.value_or("gemm.training_rate", 1.0)
        return self._at_most_peak(
            _times(found, 1 / self.profile.value_or(f"gemm.training_rate.{kept}", rate)), shape, dtype
        )

    def _at_most_peak(self, found: Estimate, shape: Shape, dtype: str) -> Estimate:
        """Raise the time of a GEMM to that at the device's peak for its type, whatever was fitted."""
        m, n, k = shape
        least = 2.0 * m * n * k / peak(self.limits, PRODUCT_TYPE.get(dtype, dtype))
        return replace(found, seconds=np.maximum(found.seconds, least))

    def _misaligned(self, found: Estimate, widths: Shape, dtype: str) -> Estimate:
        """Add the extra time of rows with these widths that do not start where kernels load fastest.

        Sources: NVIDIA's guide "Matrix Multiplication Background", arXiv 2401.14489. Tokens are never along a row.
        """
        name = alignment_penalty(widths, dtype)
        return found if name is None else self._awkward(_times(found, self.profile.value_or(name, 1.0)), name)

    def _awkward(self, found: Estimate, name: str) -> Estimate:
        """Add the spread of an awkward shape's parameter, in squares, and take its provenance."""
        parameter = self.profile.parameters.get(name)
        if parameter is None or parameter.value == 1:
            return found
        label = np.full_like(found.provenance, PROVENANCE.index(parameter.provenance))
        return replace(found, spread=np.hypot(found.spread, parameter.spread), provenance=label)

    def _attention(self, of: OpKind, shape: Shape, dtype: str) -> Estimate:
        """Fused attention. Kernels that gather what was picked for each token reach at most a rate of their own."""
        found, rate = self._dense_attention(of.model, shape, dtype), self.profile.parameters.get(of.sm_rate)
        return self._at_most_by_sm(found, _attention_flop(of.model, shape), rate) if rate else found

    def _dense_attention(self, direction: str, shape: Shape, dtype: str) -> Estimate:
        """Dense attention. A window skips tiles; a rank with a part of the queries takes that part of the time.

        Heads are padded to a size that kernels are made for, and take the time of that size.
        """
        batch, seq, heads, kv_heads, qk_dim, v_dim, causal, window, parts = shape
        features = {"batch": batch, "seq": seq, "heads": heads, "kv_heads": min(kv_heads, heads), "causal": causal}
        multiple = self.profile.value_or(HEAD_MULTIPLE, 1.0)
        padded = [math.ceil(dim / multiple) * multiple for dim in (qk_dim, v_dim)]
        found = self._whole_attention(direction, {**features, "head_dim": sum(padded) / 2}, dtype)
        seen = visible(seq, bool(causal), window) / visible(seq, bool(causal), 0)
        found = _times(found, seen / parts)
        if padded == [qk_dim, v_dim]:
            return found
        return self._awkward(_plus(found, self._padding_s(shape, padded)), HEAD_MULTIPLE)

    def _whole_attention(self, direction: str, features: Mapping[str, float], dtype: str) -> Estimate:
        """Attention over whole sequences. Where it was measured in 16 bits only, it takes as much longer in 32 as GEMMs
        take at peak."""
        own = f"attention.{dtype}.{direction}"
        if self.profile.is_measured(own):
            return self._of(own, features)
        found = self._of(f"attention.{direction}", features)
        if dtype not in ("fp32", "tf32"):
            return found
        return _times(found, peak(self.limits, "bf16") / peak(self.limits, dtype))

    def _padding_s(self, shape: Shape, padded: list[float]) -> float:
        """Seconds to copy queries, keys, values and results into zero-padded tensors, if heads are no whole vectors."""
        batch, seq, heads, kv_heads, *dims, _, _, parts = shape
        if not any(dim % _HEAD_ALIGNED for dim in dims):
            return 0.0
        elements = batch * seq * (heads + min(kv_heads, heads)) * sum(padded) / parts
        return float(self._of("memory.copy", {"bytes": 3 * 2 * elements, "width": max(padded)}).seconds[0])

    def _experts(self, direction: str, shape: Shape, dtype: str) -> Estimate:
        """Two grouped GEMMs over the rows of all experts of a rank, and the activation between them.

        They take the time of a dense GEMM over their tiles, over a fitted rate, and at least the time to read the
        weights of the experts that have rows. Rows lost to unfilled tiles have the spread of their parameter (NVIDIA's
        guide "Matrix Multiplication Background": tile quantization).

        The models of `grouped_gemm` come from serving, whose kernels also gather, activate and weigh; here these are
        priced separately. A rank's experts have equal rows; with uneven routing the rows are those of the fullest rank.
        """
        if self.served and self.profile.is_measured(f"grouped_gemm.{PRODUCT_TYPE.get(dtype, dtype)}"):
            return self._served_experts(shape, dtype)
        rows, hidden, inter, _, experts, etp, ep, matrices = shape
        rows, width = max(rows, 1), inter // etp
        filled = min(rows, experts // ep)
        lost = filled * round(self.profile.value_or(_TILE_ROWS, 0.0))
        tiled = rows + lost
        both = [(tiled, (matrices - 1) * width, hidden), (tiled, hidden, width)]
        kind = direction or "gemm"
        plain = [self._in_training(kind, _turned(direction, one, filled), dtype) for one in both]
        found = _sum([self._misaligned(each, one[1:], dtype) for each, one in zip(plain, both, strict=True)])
        found = _times(found, 1 / self.profile.value_or("grouped_gemm.training_rate", 1.0))
        found = self._at_most_peak(found, (rows, matrices * hidden, width), dtype)
        weights = float(matrices * hidden * width * filled)
        read_s = weights * element_bytes(dtype) / self._memory_rate
        found = self._by_tiles(replace(found, seconds=np.maximum(found.seconds, read_s)), lost / tiled)
        if direction == "wgrad":
            return self._accumulated(found, weights)
        found = _plus(found, self.activation_s(direction, rows, width, matrices))
        inner = (matrices - 1) * width + hidden if direction == "dgrad" else hidden + width
        return self._quantized(found, float(rows * inner), dtype)

    def _served_experts(self, shape: Shape, dtype: str) -> Estimate:
        """The experts of a rank in one kernel of serving; each token chooses its experts by chance.

        Tokens of the tables that profiles rest on are dealt to all experts in turn; by chance, few tokens leave some
        experts out, which cost nothing.
        """
        rows, hidden, inter, topk, experts, etp, ep, matrices = shape
        tokens = max(rows, 1) * ep / topk
        chosen = max(experts * (1 - (1 - topk / experts) ** tokens), ep)
        features = {
            "tokens": tokens, "hidden": hidden, "inter": inter, "topk": topk, "experts": chosen, "tp": etp, "ep": ep,
            "skew": 0.0, "matrices": matrices,
        }  # fmt: skip
        return self._of(f"grouped_gemm.{PRODUCT_TYPE.get(dtype, dtype)}", features)

    def _by_tiles(self, found: Estimate, share: float) -> Estimate:
        """Add the spread of the rows that unfilled tiles add; `share` is their share of all rows."""
        tile = self.profile.parameters.get(_TILE_ROWS)
        return found if tile is None else replace(found, spread=np.hypot(found.spread, share * tile.spread))

    def activation_s(self, direction: str, rows: int, width: int, matrices: int) -> float:
        """Seconds of the experts' activation (`direction` "dgrad": of its gradient), which moves 16 bits an element.

        It reads what all matrices but the last give, and writes what the last one reads.
        """
        of, moved = op_kind("swiglu" if matrices == 3 else "gelu"), 2.0 * matrices * rows * width
        if direction == "dgrad":
            of, moved = op_kind(of.input_gradient), moved * of.input_traffic
        return float(self._memory(of, (width,), {"bytes": moved, "width": float(width)}).seconds[0])

    def _accumulated(self, found: Estimate, weights: float) -> Estimate:
        """Add the time to accumulate weight gradients in fp32, which moves more bytes than a 16-bit result."""
        return _plus(found, self._traffic_s((SUM_BYTES - 2) * weights, _SUMS))

    def _quantized(self, found: Estimate, elements: float, dtype: str) -> Estimate:
        """Add the time of the cast to 8 or 4 bits; nothing for wider types.

        An input is read in 16 bits and written twice: by rows for this GEMM, by columns for the weight gradient
        ("Handling transposes", Transformer Engine's guide). Cast weights are kept.
        """
        narrow = element_bytes(dtype)
        if narrow >= 2:
            return found
        return _plus(found, self._traffic_s((2 + 2 * narrow) * elements, _CASTS.get(dtype, ())))

    def _unpacked(self, found: Estimate, weights: int, each: float) -> Estimate:
        """Add the time to make 16 bits of weights of `each` bytes, once more for each GEMM that reads them.

        Source: bitsandbytes 0.49, autograd/_functions.py, MatMul4Bit.
        """
        return _plus(found, self._traffic_s((each + 2) * weights, ()))

    def _traffic_s(self, size: float, kernels: Sequence[str]) -> float:
        """Seconds of bytes through device memory, as the first of these kernels that was measured moves them."""
        measured = next(filter(self.profile.is_measured, kernels), None)
        if measured is None:
            return size / self._memory_rate
        return float(self._of(measured, {"bytes": max(size, 1.0)}).seconds[0])

    @property
    def _memory_rate(self) -> float:
        """The rate of device memory that kernels sustain, in bytes/s."""
        return self.limits.memory_bytes_per_s * self.profile.value("link_fraction.hbm")


def _attention_flop(direction: str, shape: Shape) -> float:
    """FLOP of the kernel itself: two GEMMs of all pairs, and five in a backward, which makes the scores again."""
    batch, seq, heads, _, qk_dim, v_dim, causal, window, parts = shape
    widths = qk_dim + v_dim if direction == "forward" else 3 * qk_dim + 2 * v_dim
    return 2.0 * batch * heads * widths * visible(seq, bool(causal), window) / parts


def _turned(direction: str, product: Shape, experts: int) -> Shape:
    """(m, n, k) of a GEMM's input or weight gradient; the weight gradients of several experts are stacked along m."""
    m, n, k = product
    if direction == "dgrad":
        return m, k, n
    return (n * experts, k, -(-m // experts)) if direction == "wgrad" else product


def _sum(parts: list[Estimate]) -> Estimate:
    """The sum of estimates; its provenance and spread are those of the longest one."""
    longest = max(parts, key=lambda one: float(one.seconds.sum()))
    return replace(longest, seconds=np.sum([one.seconds for one in parts], axis=0))


def _plus(found: Estimate, seconds: float) -> Estimate:
    return replace(found, seconds=found.seconds + seconds)


def _times(found: Estimate, factor: float) -> Estimate:
    return replace(found, seconds=found.seconds * factor)
