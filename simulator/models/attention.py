"""Attention with heads of q and of k, v (MHA, GQA, MQA): its parameters, and its kernels on one rank.

`scores` is shared with other projections, such as those of `mla`.
"""

from dataclasses import replace

from . import convolutions
from .kernels import Kept, Kernel, Kernels
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, matrix, norm_of, split
from .shard import Shard, gemm, memory_bound, product, rope


def parameters(spec: ModelSpec) -> Parameters:
    """Projections, cut by heads, and norms of the heads of q and k; a gate on the output widens q."""
    hidden, bias, table = spec.hidden_size, spec.attention_bias, Parameters()
    for letter, units, width in _projections(spec):
        name = f"self_attn.{'qkv' if spec.fused_qkv else letter}_proj"
        biased = bias and (spec.key_bias or letter != "k")
        table += linear(name, units * width, hidden, "qkv", cut=0, units=units, bias=biased)
    return table + convolutions.head_parameters(spec) + head_norms(spec) * spec.qk_norm + output(spec)


def _projections(spec: ModelSpec) -> list[tuple[str, int, int]]:
    """(letter, heads, width of one) of each projection of a layer's input."""
    heads, kv_heads, dim = spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim
    gate = (1 if spec.gate_per_head else spec.v_head_dim) if spec.output_gate else 0
    of_keys = [] if spec.shares_kv else [("k", kv_heads, dim)]
    of_values = [] if spec.shares_kv or spec.values_are_keys else [("v", kv_heads, spec.v_head_dim)]
    of_places = [("r", heads, spec.relative_dim)] if spec.relative_dim else []
    return [("q", heads, dim + gate), *of_keys, *of_values, *of_places]


def head_norms(spec: ModelSpec) -> Parameters:
    """Norms of the heads of q and k: their weights are those of all heads, or each head has its own."""
    heads, own = {"q": spec.num_attention_heads, "k": spec.num_key_value_heads}, spec.qk_norm_weights == "own"
    letters = "q" if spec.shares_kv else "qk"
    has = {"weights": spec.qk_norm_weights != "none", "bias": spec.qk_norm_bias}
    shapes = {each: (heads[each] * spec.head_dim if own else spec.head_dim,) for each in letters}
    norms = [norm_of(f"self_attn.{each}_norm", shape, **has, cut=0 if own else None) for each, shape in shapes.items()]
    return [parameter for norm in norms for parameter in norm]


def output(spec: ModelSpec) -> Parameters:
    """The projection behind the heads, a norm of what it reads, and a sink per head."""
    heads, bias = spec.num_attention_heads, spec.attention_out_bias
    into = heads * spec.v_head_dim
    out = linear("self_attn.o_proj", spec.hidden_size, into, "proj", cut=1, units=heads, bias=bias)
    sub_norm = norm_of("self_attn.attn_sub_norm", (into,), cut=0) * spec.sub_norms
    return out + sub_norm + [Parameter("self_attn.sinks", (heads,), cut=0)] * spec.attention_sinks


def kernels(spec: ModelSpec, window: int, shard: Shard) -> Kernels:
    """The kernels from the projection of q, k, v to the output projection, on the tokens of a tensor-parallel group."""
    table = parameters(spec)
    heads, kv_heads = split(spec.num_attention_heads, shard.tp), split(spec.num_key_value_heads, shard.tp)
    dim, tokens = spec.head_dim, shard.tokens
    turned = tokens * (heads + (0 if spec.shares_kv else kv_heads)) * dim
    qk_norm = (memory_bound("rms_norm", "qk_norm", "qkv", dim, turned, 2, shard, turned * shard.wide),)
    made = tokens * heads * spec.v_head_dim
    read = made * shard.stored_bytes("attn_proj", shard.narrow)
    moved = 2 if spec.gate_per_head else 3
    gate = (memory_bound("gate", "output_gate", "activation", spec.v_head_dim, made, moved, shard, read),)
    _, width = matrix(table, "proj", shard.tp)
    sub_norm = (memory_bound("rms_norm", "attn_sub_norm", "proj", width, made, 2, shard, read),)
    return (
        *gemm(shard, table, "qkv", "qkv", tokens, "qkv", keeps=shard.wide),
        *convolutions.head_kernels(spec, shard),
        *(qk_norm if spec.qk_norm else ()),
        *((rope("qkv", dim, turned, shard),) if spec.positions == "rotary" else ()),
        *scores(spec, window, shard, heads, kv_heads),
        *(gate if spec.output_gate else ()),
        *(sub_norm if spec.sub_norms else ()),
        *gemm(shard, table, "proj", "proj", tokens, "proj"),
    )


def scores(spec: ModelSpec, window: int, shard: Shard, heads: int, kv_heads: int) -> Kernels:
    """Attention of a rank's heads over whole sequences (or a `window`, if not 0), in as many kernels as a ring's steps.

    The backward keeps log-sum-exps in fp32 and the output, once if attention's backward and the next GEMM read the same
    copy. A ring has no windows (nor has Transformer Engine's): a layer with a window gathers keys and values instead.
    A ring's first step is causal over the rank's own tokens, which lie at both ends of a sequence; each further step
    sees half of a block without a mask, or without causality all of it.
    """
    further_heads = heads - kv_heads if shard.keeps_repeated else 0
    repeated = shard.tokens * further_heads * (spec.qk_head_dim + spec.v_head_dim) * shard.wide
    if shard.unfused:
        return _unfused(spec, shard, heads, repeated)
    qk_dim, v_dim, causal = spec.qk_head_dim, spec.v_head_dim, int(spec.causal)
    made, chunked = shard.tokens * heads, spec.window_is_chunk and 0 < window < shard.text
    batch, seq = shard.texts(spec.causal, window)
    steps, parts, ulysses = 1, 1, shard.cp_type == "ulysses" and shard.cp > 1
    if not causal:
        window = min(window, seq)
    if ulysses:
        heads, kv_heads = -(-heads // shard.cp), max(kv_heads // shard.cp, 1)
    elif shard.cp_type == "ring" and not window:
        seq, steps = max(seq // shard.cp, 1), shard.cp
    else:
        parts = shard.cp
    if chunked:
        batch, seq, window = split(shard.batch * shard.seq, window), window, 0
    shape = (batch, seq, heads, kv_heads, qk_dim, v_dim, causal, window, parts)
    next_reads = shard.wide if spec.output_gate or spec.sub_norms else shard.stored_bytes("attn_proj", shard.narrow)
    shared = "attn_proj" in dict(shard.stored) or next_reads == shard.wide
    own = 0 if shared and not ulysses else shard.wide
    kept = (Kept("core_attn", made * (4 + v_dim * own) + repeated), Kept("proj", round(made * v_dim * next_reads)))
    first = Kernel("attention", "attention", "core_attn", shape, shard.plain)
    further = replace(first, shape=(*shape[:-3], 0, 0, 1 + causal))
    *before, last = first, *[further] * (steps - 1)
    return (*before, replace(last, keeps=kept))


def _unfused(spec: ModelSpec, shard: Shard, heads: int, repeated: int) -> Kernels:
    """Attention without a flash kernel: two GEMMs over all pairs of tokens, masked or not, and passes over the scores.

    The GEMMs of all heads and sequences are priced as one. Scale and mask, softmax and dropout each read and write
    every score. The backward keeps softmax's output; with dropout also its mask (1 byte) and its output.
    """
    rows, seq, wide = shard.tokens * heads, shard.seq, shard.wide
    scores, out = rows * seq, rows * spec.v_head_dim
    passes, keeps = (6 * wide + 1, (wide, 1, wide)) if shard.dropout else (4 * wide, (wide,))
    kept = tuple(Kept("core_attn", size) for size in (*(scores * each for each in keeps), repeated) if size)
    read = (Kept("proj", round(out * (wide if spec.output_gate else shard.stored_bytes("attn_proj", shard.narrow)))),)
    return (
        product(shard, "core_attn", "scores", rows, seq, spec.qk_head_dim),
        Kernel("softmax", "softmax", "core_attn", (seq,), shard.dtype, scores * passes, kept),
        product(shard, "core_attn", "context", rows, spec.v_head_dim, seq, *read),
    )
