"""What a model may have beside plain layers, a record each: latent attention, experts, towers, what is frozen.

`model` has the whole; kernels and parameters of each are in files of their own.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Mla:
    """Multi-head latent attention; `q_lora_rank` is None if the query is projected in one step."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class Indexer:
    """DeepSeek sparse attention: a small attention beside MLA that picks the `topk` tokens MLA attends to.

    `layers` have an indexer (MTP layers are numbered after the stack); others reuse what the last of them picked.
    `learns`: it has a loss of its own, without which it is never trained.
    """

    num_heads: int
    head_dim: int
    topk: int
    layers: frozenset[int]
    learns: bool = True


@dataclass(frozen=True)
class Compressed:
    """Compressed attention in one layer: entries that stand for `ratio` tokens each (0: a window of tokens only).

    Queries come from a latent of `q_lora_rank`; `rope_dim` of each head is rotary; the outputs of the heads of each of
    `o_groups` go through a latent of `o_lora_rank`. An indexer with `index_heads` of `index_dim` picks `index_topk`
    entries for each token (0: no indexer, all entries).
    """

    q_lora_rank: int
    rope_dim: int
    o_groups: int
    o_lora_rank: int
    ratio: int = 0
    index_heads: int = 0
    index_dim: int = 0
    index_topk: int = 0


@dataclass(frozen=True)
class Moe:
    """Mixture of experts: what one MoE layer holds, and which layers are MoE.

    `shared_intermediate_size` is the width of all shared experts together, which checkpoints store as one FFN;
    `shared_gate` is Qwen2-MoE's gate on it, `correction_bias` DeepSeek's bias for balancing without a loss. GPT-OSS has
    `router_bias` and `stacked_experts`: one tensor for all experts of a layer. Experts of Nemotron 3 Super read tokens
    that are projected to `latent_size` (0: the hidden size). `norms` are the names of norms beside those of dense
    layers. `idle_experts` are chosen like others, but return the token as it is (LongCat); `num_experts_per_tok` leaves
    them out. `router_width`: the router is a network of this width.
    """

    n_routed_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    layers: tuple[int, ...]
    shared_intermediate_size: int = 0
    shared_gate: bool = False
    correction_bias: bool = False
    router_bias: bool = False
    stacked_experts: bool = False
    latent_size: int = 0
    norms: tuple[str, ...] = ()
    idle_experts: int = 0
    router_width: int = 0


@dataclass(frozen=True)
class Fp8:
    """Block quantization: one byte per element and one scale per block of a matrix, partial blocks included."""

    weight_block_size: tuple[int, int] = (128, 128)
    scale_dtype: str = "float32"


@dataclass(frozen=True)
class Projector:
    """What follows a tower: GEMMs from the tower's width to the model's, for tokens of which each stands for `merge`.

    `matrices` are (input width, output width); `norm` is the width of a norm before them (0: none). There may be
    `copies`, which read other layers' states, through norms of joined tokens.
    """

    matrices: tuple[tuple[int, int], ...]
    merge: int = 1
    bias: bool = True
    norm: int = 0
    norm_bias: bool = True
    copies: int = 1


@dataclass(frozen=True)
class Inputs:
    """What a tower reads for each sequence: `items` inputs, such as images, of `span` tokens, which see each other.

    `span` of 0 is the length of a sequence.

    Its first hidden states are made by GEMMs of `patches`: (values that each reads, how often for a token). Without
    them they are tokens, of the model's embedding, or of one of its own with so many `words`.
    `own_tokens` are parameters, such as the token of a class; `projector` follows the tower. A tower that `pools` has
    an attention and a network that make one state of all, which nothing reads here. `frozen`: only the projector has
    gradients, and not even that with `projector_frozen`.
    """

    span: int
    items: int = 1
    patches: tuple[tuple[int, int], ...] = ()
    patch_bias: bool = False
    words: int = 0
    own_tokens: int = 0
    pools: bool = False
    frozen: bool = False
    projector_frozen: bool = False
    projector: Projector | None = None

    def is_trained(self, adapters: bool) -> bool:
        """Whether anything of the tower has gradients: of a frozen one its projector, unless `adapters` are trained."""
        return not self.frozen or (self.projector is not None and not self.projector_frozen and not adapters)


@dataclass(frozen=True)
class Cross:
    """Attention to what a tower gives: in `layers`, from a width of `source`. Layers in `alone` have no FFN.

    Where a decoder's layer has both kinds of attention, its self-attention is a layer of its own here, without an FFN.
    """

    source: int
    layers: frozenset[int]
    alone: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Frozen:
    """What of the model's own stack has no gradients; `head` is what follows the last layer."""

    layers: frozenset[int] = frozenset()
    embedding: bool = False
    head: bool = False


ALL_TRAINED = Frozen()


class LayerKind(NamedTuple):
    """A kind of layer; layers of one kind hold the same tensors.

    `mixer`: it has attention or what replaces it (`linear`). `network`: it has an FFN, dense or of experts (`moe`).
    `cross`: its attention reads what a tower gives. `variant`: its place among the model's variants, from 1 on (0: none
    of them). `tower`: the number of its tower, from 1 on (0: none), whose first layer `opens` and last one `closes` it.
    Its weights have gradients if it `learns`. Without `passes` neither it nor anything before it is trained, so no
    gradient goes through it, and what it gives is `kept` only if the next layer learns.
    """

    moe: bool = False
    indexer: bool = False
    linear: bool = False
    mixer: bool = True
    network: bool = True
    cross: bool = False
    variant: int = 0
    tower: int = 0
    opens: bool = False
    closes: bool = False
    learns: bool = True
    passes: bool = True
    kept: bool = True


class Variant(NamedTuple):
    """Layers that differ from the model in some fields, such as the width of their heads."""

    layers: frozenset[int]
    fields: tuple[tuple[str, Any], ...]
