"""Parameter counts in closed form, apart from the table of parameters that the simulator counts with."""

from dataclasses import replace

from runcast.simulator.models.mixers import KimiDelta, LinearAttention, Mamba, Mamba2, Rwkv7, ShortConvolution


def norm(spec):
    return spec.hidden_size * (2 if spec.norm_bias else 1)


def ffn(spec, width):
    up = 2 if spec.gated_ffn else 1
    return (up + 1) * spec.hidden_size * width + spec.mlp_bias * (up * width + spec.hidden_size)


def mla(spec):
    of, heads, hidden, rank = spec.mla, spec.num_attention_heads, spec.hidden_size, spec.mla.q_lora_rank
    q = heads * spec.qk_head_dim
    query = hidden * q if rank is None else rank * (hidden + 1 + q + spec.attention_bias)
    up = of.kv_lora_rank * heads * (of.qk_nope_head_dim + of.v_head_dim)
    return query + (of.kv_lora_rank + of.qk_rope_head_dim) * (hidden + spec.attention_bias) + of.kv_lora_rank + up


def qkv(spec):
    width = (spec.num_attention_heads * (1 + spec.output_gate) + 2 * spec.num_key_value_heads) * spec.head_dim
    return width * (spec.hidden_size + spec.attention_bias) + spec.qk_norm * 2 * spec.head_dim


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


def short_convolution(spec):
    of, hidden = spec.linear_attention, spec.hidden_size
    return 4 * hidden**2 + hidden * of.conv_kernel + of.bias * 5 * hidden


def replaced(spec):
    beside = spec.linear_attention.beside_attention and plain_attention(spec)
    return REPLACED[type(spec.linear_attention)](spec) + beside


def attention(spec, number):
    kind = spec.kind(number)
    if not kind.mixer:
        return 0
    if kind.linear:
        return replaced(spec)
    return plain_attention(spec) + (indexer(spec) if kind.indexer else 0)


def plain_attention(spec):
    heads = spec.num_attention_heads
    out = (heads * spec.v_head_dim + spec.attention_out_bias) * spec.hidden_size + spec.attention_sinks * heads
    return out + (mla(spec) if spec.mla else qkv(spec))


REPLACED = {
    KimiDelta: kimi_delta,
    LinearAttention: linear_attention,
    Mamba: mamba,
    Mamba2: mamba2,
    Rwkv7: rwkv7,
    ShortConvolution: short_convolution,
}


def moe(spec):
    of = spec.moe
    router = of.n_routed_experts * (spec.hidden_size + of.correction_bias + of.router_bias)
    shared = ffn(spec, of.shared_intermediate_size) if of.shared_intermediate_size else 0
    gate, latent = of.shared_gate * spec.hidden_size, of.latent_size
    projections = 2 * latent * spec.hidden_size + spec.mlp_bias * (latent + spec.hidden_size) if latent else 0
    expert = ffn(replace(spec, hidden_size=latent or spec.hidden_size), of.moe_intermediate_size)
    return of.n_routed_experts * expert + router + shared + gate + projections


def layer(spec, number):
    kind, own = spec.kind(number), 2 * spec.sandwich_norms
    if not kind.network:
        return attention(spec, number) + (1 + own) * norm(spec)
    network = moe(spec) if spec.is_moe(number) else ffn(spec, spec.intermediate_size)
    norms = 2 if kind.mixer and not spec.shared_norm else 1
    return attention(spec, number) + (norms + own) * norm(spec) + network


def embeddings(spec):
    """Token and position embeddings and the output head; a tied matrix counts once."""
    return ((2 - spec.tie_word_embeddings) * spec.vocab_size + spec.position_embeddings) * spec.hidden_size


def total(spec, mtp=False):
    count = spec.num_nextn_predict_layers * mtp
    layers = sum(layer(spec, number) for number in range(spec.num_hidden_layers + count))
    extras = min(count, 1) if spec.mtp_apart else count
    ends = embeddings(spec) + (1 + spec.embedding_norm) * norm(spec)
    return layers + ends + extras * (2 * spec.hidden_size**2 + 3 * norm(spec))
