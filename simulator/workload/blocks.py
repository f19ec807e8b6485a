"""Blocks: which kernels the parts of a model have on one rank, in order, under a given sharding.

A layer is cut where ranks exchange something: before and after what tensor-parallel ranks compute together, and around
the experts. What is exchanged there is `lowering`'s; what a kernel costs is `costs`'. Every kernel says what of its
output the backward needs (`keeps`), for tokens in 16 or 32 bits; dropout is off.
"""

from dataclasses import dataclass
from itertools import chain

from .kernels import Kept, Kernel, Kernels, element_bytes
from .model import LinearAttention, Mla, ModelSpec, Moe

_SCAN_CHUNK = 64  # tokens that linear attention treats together (flash-linear-attention's chunk_size)


@dataclass(frozen=True)
class Shard:
    """What one rank computes of a micro-batch of `batch` sequences of `seq` tokens.

    `linear` is the type of matrix products, `dtype` that of all else. `load` is how many times its even share of
    tokens the most loaded rank's experts get. `lora_rank` adds adapters to the products named in `adapted`.
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
    lora_rank: int = 0
    adapted: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens that the ranks of a tensor-parallel group compute together."""
        return self.batch * self.seq // self.cp

    @property
    def own_tokens(self) -> int:
        """Tokens of which this rank computes norms and residuals."""
        return -(-self.tokens // self.tp) if self.sequence_parallel else self.tokens

    @property
    def wide(self) -> int:
        """Bytes of an element of an activation."""
        return int(element_bytes(self.dtype))

    @property
    def narrow(self) -> float:
        """Bytes of an element of what a matrix product reads."""
        return min(element_bytes(self.linear), self.wide)


@dataclass(frozen=True)
class Layer:
    """The kernels of one layer, cut where ranks exchange something.

    `before` attention and `mlp_in` work on a rank's own tokens, `attention` and `mlp` on those of its tensor-parallel
    group (`mlp` holds the shared experts of a MoE layer), `experts` on what was dispatched to this rank, `after` on
    what came back.
    """

    before: Kernels
    attention: Kernels
    mlp_in: Kernels
    mlp: Kernels
    experts: Kernels
    after: Kernels

    @property
    def all(self) -> Kernels:
        """Every kernel, in forward order."""
        return (*self.before, *self.attention, *self.mlp_in, *self.mlp, *self.experts, *self.after)


def layer(spec: ModelSpec, number: int, shard: Shard) -> Layer:
    """The kernels of layer `number`, MTP layers counted on behind the stack."""
    kind = spec.kind(number)
    inside: Kernels = ()
    if spec.linear_attention and kind.linear:
        core = _linear_attention(spec, spec.linear_attention, shard)
    elif spec.mla:
        inside, core = _mla_down(spec, spec.mla, shard), _mla(spec, spec.mla, number, shard)
    else:
        core = _attention(spec, number, shard)
    moe = spec.moe if spec.is_moe(number) else None
    sandwich = _norm(spec, shard, "post_norm") if spec.sandwich_norms else ()
    return Layer(
        before=(*_norm(spec, shard, "input_norm"), *inside),
        attention=core,
        mlp_in=(*sandwich, _residual(spec, shard), *_norm(spec, shard, "mlp_norm"), *_routing(spec, moe, shard)),
        mlp=_mlp(spec, moe, shard),
        experts=_experts(spec, moe, shard) if moe else (),
        after=(*_returned(spec, moe, shard), *sandwich, _residual(spec, shard)),
    )


def embedding(spec: ModelSpec, shard: Shard) -> Kernels:
    """Looking up the tokens; each rank of a tensor-parallel group has a part of the vocabulary."""
    size = 2 * shard.wide * shard.tokens * spec.hidden_size
    kept = (Kept("embedding", shard.wide * shard.own_tokens * spec.hidden_size),)
    return (Kernel("embed", "embed", "embedding", (spec.hidden_size,), shard.dtype, size, kept),)


def head(spec: ModelSpec, shard: Shard) -> Kernels:
    """The last norm, the logits (never in 8 bits) and the loss."""
    words = -(-spec.vocab_size // shard.tp)
    wide = _plain(shard)
    logits = Kernel(
        "gemm", "logits", "head", (shard.tokens, words, spec.hidden_size), wide,
        keeps=(Kept("head", shard.tokens * words * shard.wide),), trained=not shard.lora_rank,
    )  # fmt: skip
    kept = (Kept("head", shard.tokens * words * 4),)  # softmax in fp32, from which the gradient is made
    loss = Kernel("cross_entropy", "loss", "head", (words,), shard.dtype, 2 * shard.tokens * words, kept)
    return (*_norm(spec, shard, "final_norm"), logits, loss)


def mtp_in(spec: ModelSpec, shard: Shard) -> Kernels:
    """What a multi-token-prediction layer has before its decoder layer: two norms and a projection of both."""
    hidden = spec.hidden_size
    norms = (*_norm(spec, shard, "enorm"), *_norm(spec, shard, "hnorm"))
    projected = _gemm(shard, "eh_proj", "mlp", shard.own_tokens, hidden, 2 * hidden, "mtp")
    return (*norms, *projected)


def _plain(shard: Shard) -> str:
    """The type of products that stay out of 8 bits."""
    return shard.linear if element_bytes(shard.linear) >= 2 else shard.dtype


def _gemm(
    shard: Shard, name: str, part: str, m: int, n: int, k: int, role: str = "", keeps: float = 0, dtype: str = ""
) -> Kernels:
    """A product, with its adapter's two where it has one; `role` is what adapters are asked for by."""
    kept = (Kept(part, round(keeps)),) if keeps else ()
    base = Kernel("gemm", name, part, (m, n, k), dtype or shard.linear, keeps=kept, trained=not shard.lora_rank)
    if not shard.lora_rank or role not in shard.adapted:
        return (base,)
    rank, wide = shard.lora_rank, _plain(shard)
    down = Kernel("gemm", f"{name}_lora_a", "lora", (m, rank, k), wide, keeps=(Kept("lora", m * rank * shard.wide),))
    return (base, down, Kernel("gemm", f"{name}_lora_b", "lora", (m, n, rank), wide))


def _memory(
    kind: str, name: str, part: str, width: int, elements: float, per_element: float, shard: Shard, keeps: float = 0
) -> Kernel:
    """A memory-bound kernel that moves `per_element` values of the activations' type for each element."""
    kept = (Kept(part, round(keeps)),) if keeps else ()
    return Kernel(kind, name, part, (width,), shard.dtype, round(elements * per_element * shard.wide), kept)


def _norm(spec: ModelSpec, shard: Shard, name: str) -> Kernels:
    elements = shard.own_tokens * spec.hidden_size
    return (_memory("rms_norm", name, "layernorm", spec.hidden_size, elements, 2, shard, elements * shard.narrow),)


def _residual(spec: ModelSpec, shard: Shard) -> Kernel:
    elements = shard.own_tokens * spec.hidden_size
    return _memory("residual_add", "residual", "residual", spec.hidden_size, elements, 3, shard, elements * shard.wide)


def _scores(spec: ModelSpec, number: int, shard: Shard, heads: int, kv_heads: int) -> Kernels:
    """Attention of a rank's heads over whole sequences, in as many kernels as a ring has steps."""
    qk_dim, v_dim, window = spec.qk_head_dim, spec.v_head_dim, spec.window(number) or 0
    seq, steps, parts = shard.seq, 1, 1
    if shard.cp_type == "ulysses":
        heads, kv_heads = -(-heads // shard.cp), max(kv_heads // shard.cp, 1)
    elif shard.cp_type == "ring":  # zigzag: each step sees half of a square of seq / cp tokens
        seq, steps = seq // shard.cp, shard.cp
    else:
        parts = shard.cp
    shape = (shard.batch, seq, heads, kv_heads, qk_dim, v_dim, 1, window, parts)
    tokens = shard.tokens * (shard.cp if shard.cp_type == "ulysses" else 1)
    kept = (Kept("core_attn", round(tokens * heads * (v_dim * shard.wide + 4))),)  # the output, and log-sum-exp in fp32
    step = Kernel("attention", "attention", "core_attn", shape, _plain(shard))
    return (*[step] * (steps - 1), Kernel("attention", "attention", "core_attn", shape, _plain(shard), keeps=kept))


def _attention(spec: ModelSpec, number: int, shard: Shard) -> Kernels:
    heads, kv_heads = -(-spec.num_attention_heads // shard.tp), max(spec.num_key_value_heads // shard.tp, 1)
    dim, tokens = spec.head_dim, shard.tokens
    width = (heads * (2 if spec.output_gate else 1) + 2 * kv_heads) * dim
    turned = tokens * (heads + kv_heads) * dim
    qk_norm = (_memory("rms_norm", "qk_norm", "layernorm", dim, turned, 2, shard, turned * shard.wide),)
    rope = (_memory("rope", "rope", "qkv", dim, turned, 2, shard),)
    gate = (_memory("gate", "output_gate", "activation", dim, tokens * heads * dim, 3, shard),)
    return (
        *_gemm(shard, "qkv", "qkv", tokens, width, spec.hidden_size, "qkv", tokens * width * shard.wide),
        *(qk_norm if spec.qk_norm else ()),
        *(() if spec.position_embeddings else rope),
        *_scores(spec, number, shard, heads, kv_heads),
        *(gate if spec.output_gate else ()),
        *_gemm(shard, "proj", "proj", tokens, spec.hidden_size, heads * spec.v_head_dim, "proj"),
    )


def _mla_down(spec: ModelSpec, mla: Mla, shard: Shard) -> Kernels:
    """The latents of queries and keys, which tensor parallelism does not cut: each rank has those of its tokens."""
    tokens, latent = shard.own_tokens, mla.kv_lora_rank
    ranks = [mla.q_lora_rank or 0, latent + mla.qk_rope_head_dim]
    downs = [
        _gemm(shard, name, "qkv", tokens, rank, spec.hidden_size, "qkv", tokens * rank * shard.wide)
        for name, rank in zip(("q_down", "kv_down"), ranks, strict=True)
        if rank
    ]
    norms = [
        _memory("rms_norm", f"{name}_norm", "layernorm", rank, tokens * rank, 2, shard, tokens * rank * shard.narrow)
        for name, rank in (("q", ranks[0]), ("kv", latent))
        if rank
    ]
    return (*chain.from_iterable(downs), *norms)


def _mla(spec: ModelSpec, mla: Mla, number: int, shard: Shard) -> Kernels:
    heads, tokens = -(-spec.num_attention_heads // shard.tp), shard.tokens
    query, both = heads * spec.qk_head_dim, heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    source, up = mla.q_lora_rank or spec.hidden_size, "mla_up_proj"
    turned = tokens * (heads + 1) * mla.qk_rope_head_dim
    keys = tokens * heads * (spec.qk_head_dim + mla.v_head_dim) * shard.wide
    return (
        *_gemm(shard, "q_up", up, tokens, query, source, "qkv", tokens * query * shard.wide),
        *_gemm(shard, "kv_up", up, tokens, both, mla.kv_lora_rank, "qkv", keys),
        _memory("rope", "rope", up, mla.qk_rope_head_dim, turned, 2, shard),
        *_scores(spec, number, shard, heads, heads),
        *_gemm(shard, "proj", "proj", tokens, spec.hidden_size, heads * spec.v_head_dim, "proj"),
    )


def _linear_attention(spec: ModelSpec, linear: LinearAttention, shard: Shard) -> Kernels:
    """Gated DeltaNet in chunks: projections, a convolution, products inside chunks and with the state, the output."""
    tokens, hidden = shard.tokens, spec.hidden_size
    qkv, value = -(-linear.qkv_width // shard.tp), -(-linear.value_width // shard.tp)
    heads = -(-linear.num_value_heads // shard.tp)
    into = qkv + value + 2 * heads
    key_dim, value_dim = linear.key_head_dim, linear.value_head_dim
    rows, wide = tokens * heads, _plain(shard)
    inside = Kernel("gemm", "chunks", "core_attn", (rows, _SCAN_CHUNK, 2 * key_dim + value_dim), wide, trained=False)
    state = Kernel("gemm", "state", "core_attn", (rows, value_dim, 2 * key_dim), wide, trained=False)
    return (
        *_gemm(shard, "qkv", "qkv", tokens, into, hidden, "qkv", tokens * into * shard.wide),
        _memory("scan", "convolution", "core_attn", qkv, tokens * qkv, 2, shard, tokens * qkv * shard.wide),
        inside,
        state,
        _memory("gate", "output_gate", "activation", value, tokens * value, 3, shard, tokens * value * shard.wide),
        *_gemm(shard, "proj", "proj", tokens, hidden, value, "proj"),
    )


def _ffn(spec: ModelSpec, shard: Shard, part: str, tokens: int, inter: int) -> Kernels:
    """A dense feed-forward network of this width on one rank."""
    hidden, up = spec.hidden_size, 2 if spec.gated_ffn else 1
    kind = "swiglu" if spec.gated_ffn else "gelu"
    activated = tokens * inter
    return (
        *_gemm(shard, "up", part, tokens, up * inter, hidden, "up", up * activated * shard.wide),
        _memory(kind, "activation", "activation", inter, activated, up + 1, shard, activated * shard.narrow),
        *_gemm(shard, "down", part, tokens, hidden, inter, "down"),
    )


def _mlp(spec: ModelSpec, moe: Moe | None, shard: Shard) -> Kernels:
    """The dense network of a layer, or the shared experts."""
    if moe is None:
        return _ffn(spec, shard, "mlp", shard.tokens, -(-spec.intermediate_size // shard.tp))
    width = -(-moe.shared_intermediate_size // shard.tp)
    return _ffn(spec, shard, "shared_experts", shard.tokens, width) if width else ()


def _routing(spec: ModelSpec, moe: Moe | None, shard: Shard) -> Kernels:
    """The router on a rank's own tokens, and laying them out by expert."""
    if moe is None:
        return ()
    tokens, hidden, experts = shard.own_tokens, spec.hidden_size, moe.n_routed_experts
    sent = tokens * moe.num_experts_per_tok * hidden
    return (
        *_gemm(shard, "router", "router", tokens, experts, hidden, "", tokens * experts * 4, _plain(shard)),
        _memory("route", "topk", "router", experts, tokens * experts, 4, shard, tokens * moe.num_experts_per_tok * 12),
        _memory("permute", "permute", "moe", hidden, sent, 2, shard),
    )


def _rows(moe: Moe, shard: Shard) -> int:
    """Rows that the experts of one rank compute: what its peers' tokens choose, and those of its expert-tp group."""
    return round(shard.own_tokens * moe.num_experts_per_tok * shard.etp * shard.load)


def _experts(spec: ModelSpec, moe: Moe, shard: Shard) -> Kernels:
    """All products of the experts of one rank, with the activation between them."""
    rows, hidden, inter = _rows(moe, shard), spec.hidden_size, moe.moe_intermediate_size
    up = 2 if spec.gated_ffn else 1
    shape = (
        rows, hidden, inter, moe.num_experts_per_tok, moe.n_routed_experts, shard.etp, shard.ep, up + 1
    )  # fmt: skip
    made = rows * inter / shard.etp
    keeps = (
        Kept("moe", round(rows * hidden * shard.narrow + up * made * shard.wide)),
        Kept("activation", round(made * shard.narrow)),
    )
    return (
        _memory("permute", "sort", "moe", hidden, rows * hidden, 2, shard),
        Kernel("experts", "experts", "moe", shape, shard.linear, keeps=keeps, trained=not shard.lora_rank),
        _memory("permute", "unsort", "moe", hidden, rows * hidden, 2, shard),
    )


def _returned(spec: ModelSpec, moe: Moe | None, shard: Shard) -> Kernels:
    """Weighing and adding up what the experts of each token gave."""
    if moe is None:
        return ()
    sent = shard.own_tokens * moe.num_experts_per_tok * spec.hidden_size
    kept = sent * shard.wide  # the gradient of the weights reads what came back
    return (_memory("combine", "unpermute", "moe", spec.hidden_size, sent, 1.5, shard, kept),)
