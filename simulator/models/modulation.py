"""Adaptive norms of diffusion transformers: vectors that scale, shift and gate what each layer computes.

A GEMM makes them of one vector for each sequence, of the time step and the prompt (adaLN-Zero, arXiv 2212.09748): three
for each norm. Where text and image have weights of their own (MM-DiT, arXiv 2403.03206), each has its own of these too.
"""

from .kernels import Kernels
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear
from .shard import Shard, gemm, memory_bound

ADDED = "added."
"""The prefix of a layer's parameters for the second kind of tokens."""
_READ_BY_OTHERS = tuple(f"self_attn.{letter}_proj" for letter in "qkv")


def layer_parameters(spec: ModelSpec) -> Parameters:
    """The matrix that makes the vectors of a layer, and what makes its own vector, if the model has none for all."""
    if not spec.modulation:
        return []
    hidden = spec.hidden_size
    own = _conditioning(spec) if spec.own_conditioning else []
    return linear("modulation", spec.modulation * hidden, hidden, "modulation", bias=True) + own


def model_parameters(spec: ModelSpec) -> Parameters:
    """Beside the layers: matrices that make the vector of a sequence, those of the last norm, the bias of patches."""
    if not spec.modulation:
        return []
    hidden = spec.hidden_size
    shared = [] if spec.own_conditioning else _conditioning(spec)
    return [*shared, *linear("norm_out", 2 * hidden, hidden, bias=True), Parameter("patch_embed.bias", (hidden,))]


def _conditioning(spec: ModelSpec) -> Parameters:
    sizes = enumerate(spec.conditioning)
    return [each for i, (into, out) in sizes for each in linear(f"conditioning.{i}", out, into, bias=True)]


def with_sets(spec: ModelSpec, table: Parameters) -> Parameters:
    """The parameters of a layer, once for each kind of tokens that has weights of its own.

    In a layer where the text ends, its tokens give keys and values to the image, and need only a norm before them.
    """
    further = table
    if spec.text_ends:
        first_norm = linear("modulation", 2 * spec.hidden_size, spec.hidden_size, bias=True)
        further = [each for each in table if each.name.startswith(_READ_BY_OTHERS)] + first_norm
    return table + [each._replace(name=ADDED + each.name, gemm="") for each in further] * (spec.weight_sets - 1)


def layer_kernels(spec: ModelSpec, shard: Shard) -> Kernels:
    """The vectors of all sequences, and the passes over tokens that scale, shift and gate."""
    if not spec.modulation:
        return ()
    table: list[Parameter] = layer_parameters(spec)
    made, norms = shard.own_tokens * spec.hidden_size, spec.modulation // 3
    vectors = gemm(shard, table, "modulation", "layernorm", shard.batch, dtype=shard.plain) * spec.weight_sets
    passes = memory_bound("gate", "modulate", "layernorm", spec.hidden_size, norms * made, 4, shard, norms * made * 2)
    return (*vectors, passes)
