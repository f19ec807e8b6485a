"""Embeddings of each layer's own (Gemma 3n, Gemma 4): parameters, and kernels on one rank.

Beside the token embedding there is one table for all layers: `per_layer_width` values of each token for each layer. A
projection of the token embedding is added to them. After its FFN, a layer gates its part with a GEMM of the residual
stream, and adds another GEMM of the product. Tensor parallelism cuts the table only.
Source: `modeling_gemma4.py` of transformers 5.
"""

from .kernels import Kernel, Kernels
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, norm, norm_of
from .shard import Shard, gemm, memory_bound


def model_parameters(spec: ModelSpec) -> Parameters:
    """Before the layers: the table of all layers, the projection of the token embedding, and a norm of each part."""
    width = spec.num_hidden_layers * spec.per_layer_width
    if not width:
        return []
    return [
        Parameter(f"{spec.trunk}.embed_tokens_per_layer.weight", (spec.per_layer_vocab, width), cut=0),
        *linear(f"{spec.trunk}.per_layer_model_projection", width, spec.hidden_size, "per_layer_projection"),
        *norm_of(f"{spec.trunk}.per_layer_projection_norm", (spec.per_layer_width,)),
    ]


def layer_parameters(spec: ModelSpec) -> Parameters:
    """In a layer: the gate, the projection back, and a norm."""
    if not spec.per_layer_width:
        return []
    return [
        *linear("per_layer_input_gate", spec.per_layer_width, spec.hidden_size, "per_layer_gate"),
        *linear("per_layer_projection", spec.hidden_size, spec.per_layer_width, "per_layer_out"),
        *norm(spec, "post_per_layer_input_norm"),
    ]


def model_kernels(spec: ModelSpec, shard: Shard) -> Kernels:
    """Before the layers: the lookup, the projection, its norm, and their sum, which layers read."""
    table, tokens = model_parameters(spec), shard.own_tokens
    if not table:
        return ()
    width, wide = spec.num_hidden_layers * spec.per_layer_width, shard.wide
    looked_up = 2 * wide * shard.tokens * width
    made = tokens * width
    return (
        Kernel("embed", "embed_per_layer", "embedding", (width,), shard.dtype, looked_up),
        *gemm(shard, table, "per_layer_projection", "embedding", tokens, keeps=wide),
        memory_bound("rms_norm", "per_layer_norm", "embedding", spec.per_layer_width, made, 2, shard),
        memory_bound("residual_add", "add_per_layer", "embedding", width, made, 3, shard, made * wide),
    )


def layer_kernels(spec: ModelSpec, shard: Shard) -> Kernels:
    """Behind the FFN of a layer."""
    table, tokens, wide = layer_parameters(spec), shard.own_tokens, shard.wide
    if not table:
        return ()
    width, hidden, out = spec.per_layer_width, spec.hidden_size, tokens * spec.hidden_size
    gated = tokens * width
    moved = 1 + 2 * max(spec.streams - 1, 1)  # AltUp adds it to all states but one
    return (
        *gemm(shard, table, "per_layer_gate", "mlp", tokens, keeps=wide),
        memory_bound("gate", "per_layer_product", "activation", width, gated, 3, shard, gated * shard.narrow),
        *gemm(shard, table, "per_layer_out", "mlp", tokens),
        memory_bound("rms_norm", "per_layer_out_norm", "layernorm", hidden, out, 2, shard, out * wide),
        memory_bound("residual_add", "residual", "residual", hidden, out, moved, shard, spec.streams * out * wide),
    )
