"""The ends of a tower: what makes its first hidden states, and what follows its last layer.

A vision transformer projects patches of pixels and adds positions; an encoder looks tokens up in the model's embedding.
Behind the layers there may be a norm, and a projector to the model's width, of neighbouring tokens joined to one
(arXiv 2010.11929; arXiv 2304.08485; arXiv 2409.12191). The ends belong to the first and last layer of the tower, so
they lie on the same pipeline stage.
"""

from dataclasses import replace

from .kernels import Kernel, Kernels
from .model import ModelSpec
from .parameters import Parameter, Parameters, linear, norm, norm_of
from .parts import Inputs
from .shard import Shard, gemm, memory_bound


def tower_shard(spec: ModelSpec, shard: Shard) -> Shard:
    """A rank's share of what a tower reads: whole inputs, spread over the ranks of context parallelism."""
    if spec.inputs is None:
        return shard
    items = -(-shard.batch * spec.inputs.items // shard.cp)
    if spec.inputs.frozen:
        shard = replace(shard, lora_rank=0, adapted=(), base="")
    return replace(shard, batch=items, seq=spec.inputs.span or shard.seq, cp=1, document=0.0, slowest=1.0)


def output_elements(spec: ModelSpec, shard: Shard) -> int:
    """Elements of a tensor-parallel rank's part of what a tower gives a micro-batch."""
    own, projector = tower_shard(spec, shard), spec.inputs.projector if spec.inputs else None
    given = own.tokens - _tokens_of_its_own(spec, own, own.tokens)
    tokens, width = (given // projector.merge, projector.matrices[-1][1]) if projector else (given, spec.hidden_size)
    return -(-tokens // own.tp) * width


def _tokens_of_its_own(spec: ModelSpec, shard: Shard, tokens: int) -> int:
    """How many of a tower's tokens are no patches, such as CLIP's first: the projector does not read them."""
    own = spec.inputs.own_tokens if spec.inputs else 0
    return tokens * own // shard.seq


def is_trained(frozen: Inputs, name: str) -> bool:
    """Whether a parameter or kernel of a frozen tower has gradients: those of its projector may."""
    return name.startswith("projector") and not frozen.projector_frozen


def opening_parameters(spec: ModelSpec) -> Parameters:
    """Before the first layer: the projection of patches, embeddings and tokens of its own, positions and a norm."""
    of, hidden = spec.inputs, spec.hidden_size
    if of is None:
        return []
    sizes = enumerate(of.patches)
    patches = [linear(f"patch_embed.{i}", hidden, into, f"patches_{i}", bias=of.patch_bias) for i, (into, _) in sizes]
    words = Parameter("embed_tokens.weight", (of.words, hidden), cut=0)
    own = Parameter("own_tokens", (of.own_tokens, hidden))
    positions = Parameter("position_embedding.weight", (spec.position_embeddings, hidden))
    first_norm = norm(spec, "embed_layernorm") * spec.embedding_norm
    beside = [words] * (of.words > 0) + [own] * (of.own_tokens > 0) + [positions] * (spec.position_embeddings > 0)
    return [each for matrix in patches for each in matrix] + beside + relative_bias(spec) + first_norm


def relative_bias(spec: ModelSpec) -> Parameters:
    """The biases of heads for distances, one table for all layers of a stack."""
    shape = (spec.relative_buckets, spec.num_attention_heads)
    return [Parameter("relative_attention_bias.weight", shape, cut=1)] * (spec.relative_buckets > 0)


def closing_parameters(spec: ModelSpec) -> Parameters:
    """Behind the last layer: a norm, and the projector with its own."""
    if spec.inputs is None:
        return []
    pooling = _pooling_parameters(spec) * spec.inputs.pools
    return norm(spec, "final_layernorm") * spec.final_norm + pooling + _projector_parameters(spec, spec.inputs)


def _projector_parameters(spec: ModelSpec, inputs: Inputs) -> Parameters:
    of = inputs.projector
    if of is None:
        return []
    sizes = enumerate(of.matrices * of.copies)
    matrices = [linear(f"projector.{i}", out, into, f"projector_{i}", bias=of.bias) for i, (into, out) in sizes]
    widths = [of.norm] * (of.norm > 0) + [of.matrices[0][0]] * (of.copies - 1)
    norms = [norm_of("projector.norm", (width,), bias=spec.norm_bias and of.norm_bias) for width in widths]
    return [parameter for each in norms for parameter in each] + [
        parameter for matrix in matrices for parameter in matrix
    ]


def _pooling_parameters(spec: ModelSpec) -> Parameters:
    """An attention and a network that make one state of all."""
    hidden, width = spec.hidden_size, spec.intermediate_size
    sizes = {
        "in_proj": (3 * hidden, hidden),
        "out_proj": (hidden, hidden),
        "fc1": (width, hidden),
        "fc2": (hidden, width),
    }
    return [each for name, size in sizes.items() for each in linear(f"head.{name}", *size, bias=True)]


def opening_kernels(spec: ModelSpec, shard: Shard) -> Kernels:
    """Before the first layer, on a rank's own tokens."""
    if spec.inputs is None:
        return ()
    tokens, wide, hidden = shard.own_tokens, shard.wide, spec.hidden_size
    made, patches = tokens * hidden, tokens - _tokens_of_its_own(spec, shard, tokens)
    table = opening_parameters(spec)
    lookup = Kernel("embed", "embed_inputs", "embedding", (hidden,), shard.dtype, 2 * wide * made)
    first = [
        replace(kernel, passes=number > 0)  # pixels have no gradient
        for number, (_, times) in enumerate(spec.inputs.patches)
        for kernel in gemm(
            shard, table, f"patches_{number}", "embedding", times * patches, keeps=wide, dtype=shard.plain
        )
    ]
    positions = memory_bound("residual_add", "add_positions", "embedding", hidden, made, 3, shard)
    norm = memory_bound("rms_norm", "embedding_norm", "embedding", hidden, made, 2, shard, made * wide)
    has_positions, has_norm = spec.position_embeddings > 0, spec.embedding_norm
    return (*(first or [lookup]), *(positions,) * has_positions, *(norm,) * has_norm)


def closing_kernels(spec: ModelSpec, shard: Shard) -> Kernels:
    """Behind the last layer, on a rank's own tokens; an activation follows each GEMM of the projector but the last."""
    if spec.inputs is None:
        return ()
    made = shard.own_tokens * spec.hidden_size
    last = memory_bound("rms_norm", "final_norm", "layernorm", spec.hidden_size, made, 2, shard, made * shard.wide)
    return (*(last,) * spec.final_norm, *_projector_kernels(spec, spec.inputs, shard))


def _projector_kernels(spec: ModelSpec, inputs: Inputs, shard: Shard) -> Kernels:
    of, table = inputs.projector, closing_parameters(spec)
    if of is None:
        return ()
    given = shard.own_tokens - _tokens_of_its_own(spec, shard, shard.own_tokens)
    tokens, found = -(-given // of.merge), []
    if of.norm:
        made = shard.own_tokens * spec.hidden_size
        found.append(memory_bound("rms_norm", "projector_norm", "mlp", of.norm, made, 2, shard, made * shard.wide))
    for number, (_, out) in enumerate(of.matrices * of.copies):
        found += gemm(shard, table, f"projector_{number}", "mlp", tokens, keeps=shard.wide, dtype=shard.plain)
        if (number + 1) % len(of.matrices):
            kept = tokens * out * shard.wide
            found.append(memory_bound("gelu", "projector_activation", "activation", out, tokens * out, 2, shard, kept))
    return tuple(found)
