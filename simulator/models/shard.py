"""Shards: the share of one rank in a micro-batch and a model, and builders of its kernels."""

from dataclasses import dataclass, replace
from math import sqrt

from .kernels import Kept, Kernel, Kernels, element_bytes, visible
from .model import ModelSpec
from .parameters import Parameters, matrix

_SCALE = 4 / 128  # bytes of an element's share of its scale: one in fp32 for 128 of a row (arXiv 2412.19437, 3.3.2)
PRODUCTS, ALL_LINEAR = ("qkv", "proj", "up", "down"), "all-linear"
"""Of `Shard.adapted`: roles of GEMMs, and PEFT's word for each module of these."""
STORED = {"bf16": 2.0, "fp8": 1 + _SCALE, "e5m6": 1.5 + _SCALE}
"""Bytes of an element of an activation that is kept or sent in a type of its own; E5M6 has 12 bits."""


@dataclass(frozen=True)
class Shard:
    """What one rank computes of a micro-batch of `batch` sequences of `seq` tokens.

    `linear` is the precision of GEMMs, `dtype` of everything else. `load` is the tokens of the most loaded rank's
    experts over their even share. `learns`: weights have gradients. `lora_rank` adds adapters to what `adapted` names
    (`adapted_widths`), and `base` is the type of frozen weights, if they are packed (`kernels.PACKED`). `unfused`
    attention has separate kernels for scores and softmax, with `dropout` of the scores. `loss_passes`: the loss takes
    separate passes over the logits, in fp32. `keeps_gathered`: the backward keeps what is gathered over tp, not the
    rank's own part; `keeps_repeated`: keys and values once for each head of queries; `eager`: a gate's
    activation and rotary positions are PyTorch's own ops, which take a pass each and keep the gate's activation;
    `norm_bytes`: so much of each element that a norm reads, beside its input and output; `softmax_bytes`: so much of
    each logit, of its softmax. `stored` has the type in which a module's input is kept: of the output projection
    (attn_proj), of an activation (mlp_act, moe_act), of the experts' first GEMM (expert_fc1). `dispatch` is the type
    of tokens on their way to experts (default: `dtype`). `side`: tp = side x side ranks are a grid that splits
    sequences and widths. `document`: sequences are packed of documents of so many tokens (0: of one), and attention
    takes `slowest` times as long where lengths are uneven.
    """

    batch: int
    seq: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = True
    cp_type: str = "ring"
    linear: str = "bf16"
    dtype: str = "bf16"
    load: float = 1.0
    learns: bool = True
    lora_rank: int = 0
    adapted: tuple[str, ...] = ()
    base: str = ""
    side: int = 1
    unfused: bool = False
    dropout: bool = False
    loss_passes: bool = False
    keeps_gathered: bool = False
    keeps_repeated: bool = False
    eager: bool = False
    norm_bytes: float = 0.0
    softmax_bytes: float = 4.0
    stored: tuple[tuple[str, str], ...] = ()
    dispatch: str = ""
    document: float = 0.0
    slowest: float = 1.0

    @property
    def trains(self) -> bool:
        """Whether the weights of the model itself have gradients: without them there may be adapters that have."""
        return self.learns and not self.lora_rank

    @property
    def text(self) -> float:
        """Tokens of a text, inside which tokens attend to each other: a document if they are packed, or a sequence."""
        return min(self.document * self.slowest, self.seq) if self.document else self.seq

    def texts(self, causal: bool = True, window: int = 0) -> tuple[int, int]:
        """(number, tokens of each) of the texts; attention has a `window` if it is above 0.

        Documents become texts of equal length: their number is rounded, and they are so long that as many pairs of
        tokens attend to each other as in the documents.
        """
        if not self.document:
            return self.batch, self.seq
        tokens, seen = self.batch * self.seq, window if window < self.text else 0
        number = max(round(tokens / self.text), 1)
        pairs = tokens / self.text * visible(self.text, causal, seen) / number
        return number, round(_length(pairs, causal, window))

    def mean_context(self, window: int = 0) -> int:
        """Tokens that a token attends to on average: those up to itself, `window` at most if that is above 0."""
        return max(round(visible(self.text, True, window) / self.text), 1)

    @property
    def tokens(self) -> int:
        """Tokens that the ranks of a tensor-parallel group compute together."""
        return self.batch * self.seq // self.cp

    @property
    def own_tokens(self) -> int:
        """Tokens of which this rank computes norms and residuals; on a grid, its parts of tokens, added up."""
        return -(-self.tokens // self.tp) if self.sequence_parallel or self.side > 1 else self.tokens

    @property
    def wide(self) -> int:
        """Bytes of an element of an activation."""
        return int(element_bytes(self.dtype))

    @property
    def narrow(self) -> float:
        """Bytes of an element of the input of a GEMM."""
        return min(element_bytes(self.linear), self.wide)

    def stored_bytes(self, module: str, otherwise: float) -> float:
        """Bytes per element of a module's input that is kept for the backward; `otherwise` unless stated."""
        stored = dict(self.stored).get(module)
        return otherwise if stored is None else STORED[stored]

    @property
    def dispatch_bytes(self) -> float:
        """Bytes of an element of a token on its way to experts."""
        return STORED[self.dispatch] if self.dispatch else self.wide

    @property
    def plain(self) -> str:
        """The precision of GEMMs that are never in 8 bits."""
        return self.linear if element_bytes(self.linear) >= 2 else self.dtype

    def chunks(self, length: int) -> int:
        """Chunks of `length` tokens, each of one sequence, that ranks of a tensor-parallel group compute together."""
        return -(-self.batch * -(-self.seq // length) // self.cp)


def _length(pairs: float, causal: bool, window: int) -> float:
    """Tokens of a text with so many pairs that attend to each other: the inverse of `visible`."""
    whole = sqrt(2 * pairs) if causal else sqrt(pairs)
    if not window or whole <= window:
        return whole
    return pairs / window + window / 2 * causal


def block(spec: ModelSpec, side: int) -> ModelSpec:
    """One rank's block of a model on a grid: a model `side` times narrower."""
    return replace(
        spec, hidden_size=spec.hidden_size // side, num_attention_heads=spec.num_attention_heads // side,
        num_key_value_heads=max(spec.num_key_value_heads // side, 1), vocab_size=-(-spec.vocab_size // side),
        intermediate_size=spec.intermediate_size // side,
    )  # fmt: skip


def rank_view(spec: ModelSpec, shard: Shard) -> tuple[ModelSpec, Shard]:
    """The model and the shard as one rank sees them: on a grid, its block and its share of the sequences."""
    if shard.side == 1:
        return spec, shard
    return block(spec, shard.side), replace(shard, batch=shard.batch // shard.side, tp=1)


def gemm(
    shard: Shard,
    table: Parameters,
    name: str,
    part: str,
    tokens: int,
    role: str = "",
    *,
    keeps: float = 0,
    kept_width: int = 0,
    dtype: str = "",
) -> Kernels:
    """The GEMM of this name on `tokens` tokens, and the kernels of its adapters; none without parameters.

    `role` is the name under which it may have an adapter. The backward keeps `keeps` bytes of each output, or of
    `kept_width` values per token. On a grid there are `side` equal steps, which add to one result.
    """
    n, k = matrix(table, name, shard.tp)
    if not n:
        return ()
    kept = (Kept(part, round(tokens * (kept_width or n) * keeps)),) if keeps else ()
    shape = (tokens, n, k)
    base = Kernel("gemm", name, part, shape, dtype or shard.base or shard.linear, keeps=kept, trained=shard.trains)
    adapters = adapted_widths(shard, table, name, role) if shard.lora_rank and role else {}
    made = [kernel for end, width in adapters.items() for kernel in _adapter(shard, name, end, tokens, width, k)]
    return (*[replace(base, keeps=())] * (shard.side - 1), base, *made)


ADAPTER = "_lora_"
"""Behind the name of a GEMM in those of its adapters' kernels."""


def adapted_widths(shard: Shard, table: Parameters, name: str, role: str) -> dict[str, int]:
    """The outputs of a GEMM on this rank to which each of its adapters adds, by what their kernels' names end in.

    A product that has `role` has one adapter, as `linear_qkv` in Megatron-Core; else each of its modules that is
    named has one, as q_proj, k_proj and v_proj in PEFT. What a checkpoint stores as one tensor is one module.
    """
    own = [each for each in table if each.gemm == name]
    if role in shard.adapted:
        return {"": matrix(own, name, shard.tp)[0]}
    modules = dict.fromkeys(each.module for each in own if {each.module, ALL_LINEAR} & set(shard.adapted))
    alike = {module: [each for each in own if each.module == module] for module in modules}
    return {f".{module}": matrix(some, name, shard.tp)[0] for module, some in alike.items()}


def _adapter(shard: Shard, name: str, end: str, tokens: int, n: int, k: int) -> Kernels:
    rank, wide = shard.lora_rank, shard.plain
    kept = (Kept("lora", tokens * rank * shard.wide),)
    return (
        Kernel("gemm", f"{name}{ADAPTER}a{end}", "lora", (tokens, rank, k), wide, keeps=kept),
        Kernel("gemm", f"{name}{ADAPTER}b{end}", "lora", (tokens, n, rank), wide),
    )


def product(
    shard: Shard, part: str, name: str, m: int, n: int, k: int, *kept: Kept, again: bool = False, kind: str = "gemm"
) -> Kernel:
    """A GEMM of two activations, which has no weights to train; a `scan_gemm` is part of a kernel that scans chunks."""
    return Kernel(kind, name, part, (m, n, k), shard.plain, keeps=kept, trained=False, again=again)


def rope(part: str, width: int, elements: float, shard: Shard, keeps: float = 0) -> Kernel:
    """Rotary positions of so many elements of queries and keys, each read and written.

    PyTorch's own ops for x * cos + cat(-second, first) * sin read or write each element 10 times.
    """
    return memory_bound("rope", "rope", part, width, elements, 10 if shard.eager else 2, shard, keeps)


def memory_bound(
    kind: str, name: str, part: str, width: int, elements: float, per_element: float, shard: Shard, keeps: float = 0,
    inside: float = 0,
) -> Kernel:  # fmt: skip
    """A kernel that moves `per_element` activations for each element.

    The backward keeps `keeps` bytes, which are first among those of the kernel, and `inside` of what is between its
    input and output.
    """
    inside += elements * shard.norm_bytes * (kind == "rms_norm")
    kept = tuple(Kept(part, round(size)) for size in (keeps, inside) if size)
    return Kernel(kind, name, part, (width,), shard.dtype, round(elements * per_element * shard.wide), kept)
