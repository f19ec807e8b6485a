"""Parameter counts in closed form, apart from the table of parameters that the simulator counts with."""

from collections import Counter
from dataclasses import replace

from runcast.simulator.models.mixers import (
    KimiDelta,
    Lightning,
    LinearAttention,
    Mamba,
    Mamba2,
    Rwkv7,
    ShortConvolution,
)


def norm(spec, width=None):
    return (width or spec.hidden_size) * (spec.norm_weights + spec.norm_bias)


def ffn(spec, width):
    up = 2 if spec.gated_ffn else 1
    return (up + 1) * spec.hidden_size * width + spec.mlp_bias * (up * width + spec.hidden_size)


def network(spec, width):
    """A network with what is inside it, which experts lack: slopes of xIELU and a norm."""
    return ffn(spec, width) + 2 * (spec.hidden_act == "xielu") + spec.sub_norms * width


def mla(spec):
    of, heads, hidden, rank = spec.mla, spec.num_attention_heads, spec.hidden_size, spec.mla.q_lora_rank
    q = heads * spec.qk_head_dim
    gated = spec.output_gate and spec.gate_from_latents
    up = (1 + gated) * (q + gated * heads * of.v_head_dim)
    query = hidden * q if rank is None else rank * (hidden + 1 + up + spec.attention_bias)
    up = of.kv_lora_rank * heads * (of.qk_nope_head_dim + of.v_head_dim)
    query += (spec.output_gate and not gated) * heads * (1 if spec.gate_per_head else of.v_head_dim) * hidden
    return query + (of.kv_lora_rank + of.qk_rope_head_dim) * (hidden + spec.attention_bias) + of.kv_lora_rank + up


def qkv(spec):
    heads, keys = spec.num_attention_heads, spec.num_key_value_heads * (not spec.shares_kv)
    dim = spec.head_dim
    normed = {"shared": 2 - spec.shares_kv, "own": heads + keys, "none": 0}[spec.qk_norm_weights] * dim
    norm_biases = {"shared": 2 - spec.shares_kv, "own": heads + keys, "none": 2}[spec.qk_norm_weights] * dim
    convolved = sum({"q": heads, "k": keys, "v": keys}.get(letter, 0) for letter in spec.convolved) * dim
    per_channel = spec.conv_kernel + spec.conv_mixes_heads * (2 + dim * spec.conv_kernel)
    normed += spec.qk_norm_bias * norm_biases
    return projections(spec) + convolved * per_channel + spec.qk_norm * normed


def projections(spec):
    """Of a layer's input to queries, keys and values."""
    heads, keys = spec.num_attention_heads, spec.num_key_value_heads * (not spec.shares_kv)
    dim, value_dim = spec.head_dim, spec.v_head_dim
    width = heads * (dim + spec.output_gate * (1 if spec.gate_per_head else value_dim) + spec.relative_dim)
    width += keys * (dim + value_dim * (not spec.values_are_keys))
    return width * spec.hidden_size + spec.attention_bias * (width - (not spec.key_bias) * keys * dim)


def compressed(spec):
    of, hidden, heads, dim = spec.compressed, spec.hidden_size, spec.num_attention_heads, spec.head_dim
    query = of.q_lora_rank * (hidden + 1 + heads * dim)
    out = of.o_groups * of.o_lora_rank * (heads * dim // of.o_groups + hidden)
    entries = (1 + (of.index_topk > 0)) * (2 * hidden + of.ratio)
    index = of.index_dim * (entries + 1 + of.index_heads * of.q_lora_rank) + of.index_heads * hidden
    return query + out + dim * (hidden + 1) + heads + (of.ratio > 0) * dim * (entries + 1) + index


def indexer(spec):
    of = spec.indexer
    query = (spec.mla.q_lora_rank or 0) * of.num_heads * of.head_dim
    return query + of.head_dim * (spec.hidden_size + 2) + of.num_heads * spec.hidden_size


def linear_attention(spec):
    of, hidden, heads = spec.linear_attention, spec.hidden_size, spec.linear_attention.num_value_heads
    inner = of.qkv_width * of.conv_kernel + 2 * heads + of.value_head_dim
    return hidden * (of.qkv_width + 2 * of.value_width + 2 * heads) + inner


def kimi_delta(spec):
    of, hidden = spec.linear_attention, spec.hidden_size
    width = of.num_heads * of.head_dim
    gates = 2 * of.head_dim * (hidden + width)
    return 4 * hidden * width + gates + of.num_heads * (hidden + 1) + width * (3 * of.conv_kernel + 1) + of.head_dim


def mamba2(spec):
    of, hidden, inner = (
        spec.linear_attention,
        spec.hidden_size,
        spec.linear_attention.num_heads * spec.linear_attention.head_dim,
    )
    mixed = inner + 2 * of.num_groups * of.state_size
    projected = inner + mixed + of.num_heads
    biases = of.proj_bias * (projected + hidden)
    small = mixed * (of.conv_kernel + of.conv_bias) + 3 * of.num_heads + of.gated_norm * inner
    return hidden * projected + inner * hidden + biases + small


def mamba(spec):
    of, hidden = spec.linear_attention, spec.hidden_size
    inner, state, rank = of.inner_width, of.state_size, of.step_rank
    projections = 3 * hidden * inner + of.proj_bias * (2 * inner + hidden) + inner * (2 * rank + 2 * state)
    return projections + inner * (of.conv_kernel + of.conv_bias + state + 2) + of.inner_norms * (rank + 2 * state)


def rwkv7(spec):
    hidden, ranks = spec.hidden_size, sum(rank for _, rank in spec.linear_attention.ranks)
    return 4 * hidden**2 + 2 * hidden * ranks + 15 * hidden


def lightning(spec):
    width = spec.linear_attention.num_heads * spec.linear_attention.head_dim
    return 5 * spec.hidden_size * width + width


def short_convolution(spec):
    of, hidden = spec.linear_attention, spec.hidden_size
    return 4 * hidden**2 + hidden * of.conv_kernel + of.bias * 5 * hidden


def replaced(spec):
    beside = spec.linear_attention.beside_attention and plain_attention(spec)
    return REPLACED[type(spec.linear_attention)](spec) + beside


def attention(spec, kind):
    if not kind.mixer:
        return 0
    if kind.cross:
        return cross(spec)
    if kind.linear:
        return replaced(spec)
    return plain_attention(spec) + (indexer(spec) if kind.indexer else 0)


def plain_attention(spec):
    if spec.compressed:
        return compressed(spec)
    heads = spec.num_attention_heads
    out = (heads * spec.v_head_dim + spec.attention_out_bias) * spec.hidden_size + spec.attention_sinks * heads
    out += spec.sub_norms * heads * spec.v_head_dim
    return out + (mla(spec) if spec.mla else qkv(spec))


def cross(spec):
    heads, keys, hidden, source = (
        spec.num_attention_heads,
        spec.num_key_value_heads,
        spec.hidden_size,
        spec.cross.source,
    )
    dim, v_dim, biased = spec.head_dim, spec.v_head_dim, spec.attention_bias
    query = heads * dim * (hidden + biased) + heads * v_dim * (hidden + spec.sub_norms)
    query += spec.attention_out_bias * hidden + spec.attention_sinks * heads
    normed = (heads + keys if spec.qk_norm_weights == "own" else 2) * dim
    normed *= (spec.qk_norm_weights != "none") + spec.qk_norm_bias
    of_keys = keys * dim * (source + (biased and spec.key_bias)) + keys * v_dim * (source + biased)
    return query + of_keys + spec.qk_norm * normed


REPLACED = {
    KimiDelta: kimi_delta,
    Lightning: lightning,
    LinearAttention: linear_attention,
    Mamba: mamba,
    Mamba2: mamba2,
    Rwkv7: rwkv7,
    ShortConvolution: short_convolution,
}


def moe(spec):
    of = spec.moe
    read, width = of.router_width or spec.hidden_size, of.router_width
    router = (of.n_routed_experts + of.idle_experts) * (read + of.correction_bias + of.router_bias)
    router += width * (spec.hidden_size + 2 * width + 4)
    shared = network(spec, of.shared_intermediate_size) if of.shared_intermediate_size else 0
    shared += len(of.norms) * norm(spec)
    gate, latent = of.shared_gate * spec.hidden_size, of.latent_size
    projections = 2 * latent * spec.hidden_size + spec.mlp_bias * (latent + spec.hidden_size) if latent else 0
    expert = ffn(replace(spec, hidden_size=latent or spec.hidden_size), of.moe_intermediate_size)
    return of.n_routed_experts * expert + router + shared + gate + projections


def stream_weights(spec, rows, scales):
    return (rows * (spec.streams * spec.hidden_size + 1) + scales) if spec.streams > 1 and not spec.altup else 0


def altup(spec):
    states, hidden = spec.streams, spec.hidden_size
    return states**3 + states**2 + hidden * (1 + states + 2 * spec.laurel_rank) + 2 * norm(spec)


def layer(spec, number):
    kind = spec.kind(number)
    spec = spec.of(kind)
    first = kind.mixer + kind.network - (kind.mixer and kind.network and spec.shared_norm)
    norms = first * spec.pre_norms + (kind.mixer + kind.network) * spec.sandwich_norms
    own = first * 2 * spec.hidden_size * spec.norm_gate_rank
    own += (2 * spec.hidden_size * spec.per_layer_width + norm(spec)) if spec.per_layer_width else 0
    own += 2 * stream_weights(spec, spec.streams * (2 + spec.streams * spec.streams_mix), 2 + spec.streams_mix)
    own += spec.altup * altup(spec) + ("o" in spec.convolved) * 2 * spec.hidden_size * spec.conv_kernel
    ffn = moe(spec) if kind.moe else network(spec, spec.intermediate_size)
    modulated = spec.modulation * (spec.hidden_size + 1) * spec.hidden_size
    modulated += (spec.modulation > 0) * spec.own_conditioning * conditioning(spec)
    one = attention(spec, kind) + norms * norm(spec) + kind.network * ffn + own + modulated
    if not spec.text_ends:
        return spec.weight_sets * one
    keys = projections(replace(spec, relative_dim=0))
    return one + keys + 2 * (spec.hidden_size + 1) * spec.hidden_size


def modulation(spec):
    """Beside the layers."""
    vectors = (not spec.own_conditioning) * conditioning(spec) + (2 * spec.hidden_size + 3) * spec.hidden_size
    return vectors if spec.modulation else 0


def conditioning(spec):
    return sum((into + 1) * out for into, out in spec.conditioning)


def embeddings(spec):
    """Token and position embeddings and the output head; a tied matrix counts once."""
    into, out = spec.embedding_width or spec.hidden_size, spec.head_width or spec.hidden_size
    tokens = (spec.vocab_size + spec.position_embeddings + spec.token_types) * into
    tokens += (not spec.tie_word_embeddings) * spec.vocab_size * out
    own = spec.num_hidden_layers * spec.per_layer_width * (spec.per_layer_vocab + spec.hidden_size)
    own += (into + 1) * spec.hidden_size * (into != spec.hidden_size)
    return tokens + own + spec.per_layer_width + spec.relative_buckets * spec.num_attention_heads


def head(spec):
    """Before the output matrix."""
    out = spec.head_width or spec.hidden_size
    transform = spec.hidden_size * out + spec.transform_bias * out + norm(spec, out)
    return spec.head_transform * transform + spec.pooler * (spec.hidden_size + 1) * spec.hidden_size


def tower_ends(spec):
    """What is before and behind the layers of a tower."""
    of, hidden, width = spec.inputs, spec.hidden_size, spec.intermediate_size
    before = sum(into + of.patch_bias for into, _ in of.patches) + of.own_tokens + of.words + spec.position_embeddings
    norms = (spec.embedding_norm + spec.final_norm) * norm(spec) + spec.relative_buckets * spec.num_attention_heads
    pooling = of.pools * (4 * hidden**2 + 2 * hidden * width + 5 * hidden + width)
    projector = 0
    if of.projector:
        matrices = sum(out * (into + of.projector.bias) for into, out in of.projector.matrices)
        channels = 1 + (spec.norm_bias and of.projector.norm_bias)
        joined = (of.projector.copies - 1) * of.projector.matrices[0][0]
        projector = of.projector.copies * matrices + channels * (of.projector.norm + joined)
    return before * hidden + norms + pooling + projector


def distinct_layers(spec, mtp=0):
    """One layer of each kind and window, and how many are like it; each of the `mtp` layers stands for itself."""
    first = {}
    numbers = range(spec.n_layers + mtp)
    return Counter(first.setdefault((spec.kind(n), spec.window(n), max(n - spec.n_layers, -1)), n) for n in numbers)


def total(spec, mtp=False):
    count = spec.num_nextn_predict_layers * mtp
    layers = sum(layer(spec, number) for number in range(spec.n_layers + count)) + sum(map(tower_ends, spec.towers))
    extras = min(count, 1) if spec.mtp_apart else count
    ends = embeddings(spec) + spec.final_norm * norm(spec) + head(spec) + spec.head_bias * spec.vocab_size
    ends += spec.embedding_norm * norm(spec, spec.embedding_width)
    ends += modulation(spec)
    ends += stream_weights(spec, spec.streams, 1) + spec.altup * 2 * (spec.streams - 1) * spec.hidden_size**2
    return layers + ends + extras * (2 * spec.hidden_size**2 + 3 * norm(spec))
