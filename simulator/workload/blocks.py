"""Blocks: which kernels the parts of a model have on one rank, in order, under a given sharding.

A layer is cut where ranks exchange something: before and after what tensor-parallel ranks compute together, and around
the experts. What is exchanged there is `lowering`'s; what a kernel costs is `costs`'. Every kernel says what of its
output the backward needs (`keeps`), for tokens in 16 or 32 bits; dropout is off but for that of scores, if so asked.
"""

from dataclasses import dataclass, replace
from itertools import chain

from .kernels import Kept, Kernel, Kernels
from .model import LinearAttention, Mla, ModelSpec, Moe
from .shard import Shard, seen

_SCAN_CHUNK = 64  # tokens that linear attention treats together (flash-linear-attention's chunk_size)


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
    spec, shard = seen(spec, shard)
    kind = spec.kind(number)
    inside: Kernels = ()
    if spec.linear_attention and kind.linear:
        core = _linear_attention(spec, spec.linear_attention, shard)
    elif spec.mla:
        inside, core = _mla_down(spec, spec.mla, shard), _mla(spec, spec.mla, number, shard)
    else:
        core = _attention(spec, number, shard)
    moe = spec.moe if spec.is_moe(number) else None
    sandwich = (_post_norm(spec, shard),) if spec.sandwich_norms else ()
    meeting = sandwich if spec.parallel_residual else (*sandwich, _residual(spec, shard))
    return Layer(
        before=(_input_norm(spec, shard, bool(moe and spec.shared_norm), bool(inside)), *inside),
        attention=core,
        mlp_in=(*meeting, *_second_norm(spec, moe, shard), *_routing(spec, moe, shard)),
        mlp=_mlp(spec, moe, shard),
        experts=_experts(spec, moe, shard) if moe else (),
        after=(*_returned(spec, moe, shard), *sandwich, _residual(spec, shard, 2 if spec.parallel_residual else 1)),
    )


def embedding(spec: ModelSpec, shard: Shard) -> Kernels:
    """Looking up the tokens; each rank of a tensor-parallel group has a part of the vocabulary."""
    spec, shard = seen(spec, shard)
    size = 2 * shard.wide * shard.tokens * spec.hidden_size
    kept = (Kept("embedding", shard.wide * shard.own_tokens * spec.hidden_size),)
    norm = (_norm(spec, shard, "embedding_norm", shard.wide, "embedding"),) if spec.embedding_norm else ()
    return (Kernel("embed", "embed", "embedding", (spec.hidden_size,), shard.dtype, size, kept), *norm)


def head(spec: ModelSpec, shard: Shard) -> Kernels:
    """The last norm, the logits (never in 8 bits) and the loss.

    Pass by pass as in Megatron-LM (core/tensor_parallel/cross_entropy.py), a logit moves 38 bytes forward: cast 6,
    maximum 4, subtract 8, exponential 8, sum 4, divide 8, and 14 backward (of logits in 16 bits).
    """
    spec, shard = seen(spec, shard)
    words = -(-spec.vocab_size // shard.tp)
    wide = shard.plain
    logits = _gemm(shard, "logits", "head", shard.tokens, words, spec.hidden_size, dtype=wide)
    kept = (Kept("head", shard.tokens * words * 4),)  # softmax in fp32, from which the gradient is made
    kind, moved = ("loss_passes", 38) if shard.loss_passes else ("cross_entropy", 2)
    loss = Kernel(kind, "loss", "head", (words,), shard.dtype, moved * shard.tokens * words, kept)
    return (_norm(spec, shard, "final_norm", shard.wide), *logits, loss)


def mtp_in(spec: ModelSpec, shard: Shard) -> Kernels:
    """What a multi-token-prediction layer has before its decoder layer: two norms and a projection of both."""
    spec, shard = seen(spec, shard)
    hidden = spec.hidden_size
    norms = (_norm(spec, shard, "enorm"), _norm(spec, shard, "hnorm"))
    kept = shard.own_tokens * hidden * shard.wide
    return (*norms, *_gemm(shard, "eh_proj", "mlp", shard.own_tokens, hidden, 2 * hidden, "mtp", kept))


def _gemm(
    shard: Shard, name: str, part: str, m: int, n: int, k: int, role: str = "", keeps: float = 0, dtype: str = ""
) -> Kernels:
    """A product, with its adapter's two where it has one; `role` is what adapters are asked for by.

    On a grid it is as many equal steps as the grid is wide, which all add to one result.
    """
    kept = (Kept(part, round(keeps)),) if keeps else ()
    base = Kernel("gemm", name, part, (m, n, k), dtype or shard.linear, keeps=kept, trained=not shard.lora_rank)
    if not shard.lora_rank or role not in shard.adapted:
        return (*[replace(base, keeps=())] * (shard.side - 1), base)
    rank, wide = shard.lora_rank, shard.plain
    down = Kernel("gemm", f"{name}_lora_a", "lora", (m, rank, k), wide, keeps=(Kept("lora", m * rank * shard.wide),))
    return (base, down, Kernel("gemm", f"{name}_lora_b", "lora", (m, n, rank), wide))


def _memory(
    kind: str, name: str, part: str, width: int, elements: float, per_element: float, shard: Shard, keeps: float = 0
) -> Kernel:
    """A memory-bound kernel that moves `per_element` values of the activations' type for each element."""
    kept = (Kept(part, round(keeps)),) if keeps else ()
    return Kernel(kind, name, part, (width,), shard.dtype, round(elements * per_element * shard.wide), kept)


def _norm(spec: ModelSpec, shard: Shard, name: str, width: float = 0, part: str = "layernorm") -> Kernel:
    """A norm of a rank's own tokens; its output is kept in `width` bytes, those that a product reads if 0."""
    elements, bytes_each = shard.own_tokens * spec.hidden_size, width or shard.narrow
    return _memory("rms_norm", name, part, spec.hidden_size, elements, 2, shard, elements * bytes_each)


def _post_norm(spec: ModelSpec, shard: Shard) -> Kernel:
    """A norm before a residual: nothing reads its output later, so its input is kept."""
    return _norm(spec, shard, "post_norm", shard.wide, "residual")


def _input_norm(spec: ModelSpec, shard: Shard, routed: bool, latents: bool) -> Kernel:
    """The norm before attention, which gathers what it reads, unless a rank makes latents of its own tokens first."""
    norm = _norm(spec, shard, "input_norm", _read(shard, routed))
    return norm if latents else _gathered(shard, norm)


def _second_norm(spec: ModelSpec, moe: Moe | None, shard: Shard) -> Kernels:
    if spec.shared_norm:
        return ()
    norm = _norm(spec, shard, "mlp_norm", _read(shard, moe is not None))
    return (norm if moe else _gathered(shard, norm),)


def _gathered(shard: Shard, norm: Kernel) -> Kernel:
    """A norm whose result is gathered over tp, and may stay so in place of the rank's own part."""
    if not shard.keeps_gathered or shard.side > 1:
        return norm
    (own,) = norm.keeps
    return replace(norm, keeps=(Kept(own.part, own.bytes * shard.tokens // shard.own_tokens),))


def _read(shard: Shard, routed: bool) -> float:
    """Bytes of an element that products read, of which routers are never in 8 bits."""
    return shard.wide if routed else shard.narrow


def _residual(spec: ModelSpec, shard: Shard, branches: int = 1) -> Kernel:
    elements = shard.own_tokens * spec.hidden_size
    kept = elements * shard.wide
    return _memory("residual_add", "residual", "residual", spec.hidden_size, elements, 2 + branches, shard, kept)


def _scores(spec: ModelSpec, number: int, shard: Shard, heads: int, kv_heads: int) -> Kernels:
    """Attention of a rank's heads over whole sequences, in as many kernels as a ring has steps.

    Log-sum-exps are kept in fp32, and the output: once where the backward of attention and the next product read the
    same one, as they do where it is stated how the product's input is kept. A ring has no windows (nor has Transformer
    Engine's): a layer with one gathers keys and values.
    Its first step is causal over the rank's own tokens, which lie at both ends of a sequence; of each other block it
    sees half without a mask: all keys for the later half of its queries, or the earlier half of keys for all of them.
    """
    if shard.unfused:
        return _unfused(spec, shard, heads)
    qk_dim, v_dim, window = spec.qk_head_dim, spec.v_head_dim, spec.window(number) or 0
    seq, steps, parts, ulysses = shard.seq, 1, 1, shard.cp_type == "ulysses" and shard.cp > 1
    made = shard.tokens * heads
    if ulysses:
        heads, kv_heads = -(-heads // shard.cp), max(kv_heads // shard.cp, 1)
    elif shard.cp_type == "ring" and not window:
        seq, steps = seq // shard.cp, shard.cp
    else:
        parts = shard.cp
    shape = (shard.batch, seq, heads, kv_heads, qk_dim, v_dim, 1, window, parts)
    next_reads = shard.wide if spec.output_gate else shard.kept("attn_proj", shard.narrow)
    shared = "attn_proj" in dict(shard.stored) or next_reads == shard.wide
    own = 0 if shared and not ulysses else shard.wide
    kept = (Kept("core_attn", made * (4 + v_dim * own)), Kept("proj", round(made * v_dim * next_reads)))
    first = Kernel("attention", "attention", "core_attn", shape, shard.plain)
    half = replace(first, shape=(*shape[:-3], 0, 0, 2))
    *before, last = first, *[half] * (steps - 1)
    return (*before, replace(last, keeps=kept))


def _unfused(spec: ModelSpec, shard: Shard, heads: int) -> Kernels:
    """Attention without a flash kernel: two products of whole squares, whatever is masked, and passes over scores.

    The products of all heads and sequences are priced as one, of all their rows. Scale and mask, softmax and dropout
    each read and write a score; softmax's result is kept, and with dropout its mask in a byte and what it left.
    """
    rows, seq, wide, plain = shard.tokens * heads, shard.seq, shard.wide, shard.plain
    scores, out = rows * seq, rows * spec.v_head_dim
    passes, keeps = (6 * wide + 1, (wide, 1, wide)) if shard.dropout else (4 * wide, (wide,))
    kept = tuple(Kept("core_attn", scores * each) for each in keeps)
    read = (Kept("proj", round(out * (wide if spec.output_gate else shard.kept("attn_proj", shard.narrow)))),)
    return (
        Kernel("gemm", "scores", "core_attn", (rows, seq, spec.qk_head_dim), plain, trained=False),
        Kernel("softmax", "softmax", "core_attn", (seq,), shard.dtype, scores * passes, kept),
        Kernel("gemm", "context", "core_attn", (rows, spec.v_head_dim, seq), plain, keeps=read, trained=False),
    )


def _attention(spec: ModelSpec, number: int, shard: Shard) -> Kernels:
    heads, kv_heads = -(-spec.num_attention_heads // shard.tp), max(spec.num_key_value_heads // shard.tp, 1)
    dim, tokens = spec.head_dim, shard.tokens
    width = (heads * (2 if spec.output_gate else 1) + 2 * kv_heads) * dim
    turned = tokens * (heads + kv_heads) * dim
    qk_norm = (_memory("rms_norm", "qk_norm", "qkv", dim, turned, 2, shard, turned * shard.wide),)
    rope = (_memory("rope", "rope", "qkv", dim, turned, 2, shard),)
    gated = tokens * heads * dim
    read = gated * shard.kept("attn_proj", shard.narrow)
    gate = (_memory("gate", "output_gate", "activation", dim, gated, 3, shard, read),)
    return (
        *_gemm(shard, "qkv", "qkv", tokens, width, spec.hidden_size, "qkv", tokens * width * shard.wide),
        *(qk_norm if spec.qk_norm else ()),
        *(rope if spec.positions == "rotary" else ()),
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
        _memory("rms_norm", f"{name}_norm", "qkv", rank, tokens * rank, 2, shard, tokens * rank * shard.narrow)
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
    rows, wide, value_bytes = tokens * heads, shard.plain, tokens * value * shard.wide
    shapes = {"chunks": (rows, _SCAN_CHUNK, 2 * key_dim + value_dim), "state": (rows, value_dim, 2 * key_dim)}
    read = shard.kept("attn_proj", shard.narrow)
    keeps = {"chunks": Kept("core_attn", rows * _SCAN_CHUNK * shard.wide), "state": Kept("proj", value_bytes)}
    products = [
        Kernel("gemm", name, "core_attn", shape, wide, keeps=(keeps[name],), trained=False)
        for name, shape in shapes.items()
    ]
    return (
        *_gemm(shard, "qkv", "qkv", tokens, into, hidden, "qkv", tokens * into * shard.wide),
        _memory("scan", "convolution", "core_attn", qkv, tokens * qkv, 2, shard, tokens * qkv * shard.wide),
        *products,
        _memory("gate", "output_gate", "activation", value, tokens * value, 3, shard, tokens * value * read),
        *_gemm(shard, "proj", "proj", tokens, hidden, value, "proj"),
    )


def _ffn(spec: ModelSpec, shard: Shard, part: str, tokens: int, inter: int) -> Kernels:
    """A dense feed-forward network of this width on one rank."""
    hidden, up = spec.hidden_size, 2 if spec.gated_ffn else 1
    kind = "swiglu" if spec.gated_ffn else "gelu"
    activated = tokens * inter
    kept = activated * (shard.narrow + shard.wide * (shard.keeps_gate and spec.gated_ffn))
    stored = shard.kept("mlp_act" if part == "mlp" else "moe_act", shard.wide)
    return (
        *_gemm(shard, "up", part, tokens, up * inter, hidden, "up", up * activated * stored),
        _memory(kind, "activation", "activation", inter, activated, up + 1, shard, kept),
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
    tokens, hidden, experts, chosen = shard.own_tokens, spec.hidden_size, moe.n_routed_experts, moe.num_experts_per_tok
    plain, part, wide = shard.plain, "shared_experts", shard.wide
    gate = _gemm(shard, "shared_gate", part, tokens, 1, hidden, "", tokens * wide, plain) if moe.shared_gate else ()
    return (
        *gate,
        *_gemm(shard, "router", "router", tokens, experts, hidden, "", tokens * experts * 4, plain),
        _memory("route", "topk", "router", experts, tokens * experts, 4, shard, tokens * chosen * 12),
        _memory("permute", "permute", "moe", hidden, tokens * (1 + chosen) * hidden, 1, shard),
    )


def _rows(moe: Moe, shard: Shard) -> int:
    """Rows that the experts of one rank compute: what its peers' tokens choose, and those of its expert-tp group."""
    return round(-(-shard.tokens // shard.tp) * moe.num_experts_per_tok * shard.etp * shard.load)


def _experts(spec: ModelSpec, moe: Moe, shard: Shard) -> Kernels:
    """All products of the experts of one rank, with the activation between them."""
    rows, hidden, inter = _rows(moe, shard), spec.hidden_size, moe.moe_intermediate_size
    up = 2 if spec.gated_ffn else 1
    shape = (
        rows, hidden, inter, moe.num_experts_per_tok, moe.n_routed_experts, shard.etp, shard.ep, up + 1
    )  # fmt: skip
    made = rows * inter / shard.etp
    stored, activated = shard.kept("expert_fc1", shard.narrow), shard.kept("moe_act", shard.wide)
    keeps = (
        Kept("moe", round(rows * hidden * stored + up * made * activated)),
        Kept("activation", round(made * shard.narrow)),
    )
    return (
        _memory("permute", "sort", "moe", hidden, rows * hidden, 2, shard),
        Kernel("experts", "experts", "moe", shape, shard.linear, keeps=keeps, trained=not shard.lora_rank),
        _memory("permute", "unsort", "moe", hidden, rows * hidden, 2, shard),
    )


def _returned(spec: ModelSpec, moe: Moe | None, shard: Shard) -> Kernels:
    """Adding up what the experts of each token gave, the shared ones too.

    The router's weights were multiplied in before the last product of the experts, as Megatron-Core does it, so nothing
    of what came back is kept.
    """
    if moe is None:
        return ()
    hidden, own = spec.hidden_size, shard.own_tokens * spec.hidden_size
    moved = own * (1 + moe.num_experts_per_tok)
    gate = (_memory("gate", "shared_gate", "shared_experts", hidden, own, 2, shard, own * shard.wide),)
    both = (_memory("residual_add", "add_shared", "moe", hidden, own, 3, shard),)
    return (
        _memory("combine", "unpermute", "moe", hidden, moved, 1, shard),
        *(gate if moe.shared_gate else ()),
        *(both if moe.shared_intermediate_size else ()),
    )
