"""ModelSpec: the shape of a transformer: a stack of layers, and towers of layers before it.

Field names follow the Hugging Face config.json, which `hf` reads; `blocks` has the parameters and kernels of a layer.
"""

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

from .mixers import Mixer
from .parts import ALL_TRAINED, Compressed, Cross, Fp8, Frozen, Indexer, Inputs, LayerKind, Mla, Moe, Variant

ACTIVATIONS = (  # as Hugging Face spells them; which of the GELUs it is makes no difference to sizes
    *("silu", "swish", "relu", "relu2", "sqrelu", "xielu"),
    *("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "quick_gelu"),
)
NORMS = ("rms", "layer")
POSITIONS = ("rotary", "learned", "alibi", "none")
HEAD_NORMS = ("shared", "own", "none")
"""Weights of a norm of heads: one set for all heads, one for each head (or for all heads together), none."""


def unusual(record: Any) -> dict[str, Any]:
    """The fields of a record that differ from their defaults."""
    return {f.name: value for f in fields(record) if (value := getattr(record, f.name)) != f.default}


def identity(value: Any) -> Any:
    """A record as plain values, for hashes: fields that keep their defaults are left out, sets have an order."""
    if is_dataclass(value):
        return [type(value).__name__, {name: identity(each) for name, each in unusual(value).items()}]
    if isinstance(value, frozenset):
        return sorted(value)
    return [identity(each) for each in value] if isinstance(value, tuple) else value


@dataclass(frozen=True)
class ModelSpec:
    """A transformer.

    `hidden_act` is one of ACTIVATIONS; `gated_ffn` has a second matrix whose product it gates (SwiGLU, GeGLU).
    `norm` is one of NORMS, with a weight per channel unless `norm_weights` is false; `norm_bias` adds a bias to each.
    `positions` is one of POSITIONS; `position_embeddings` counts the learned ones, and is 0 otherwise.
    `attention_bias` is on the q, k, v projections, which `fused_qkv` stores as one matrix, and `attention_out_bias` on
    o. `qk_norm` norms each head of q and k; `qk_norm_weights` is one of HEAD_NORMS, and `qk_norm_bias` adds biases.
    `output_gate` doubles q, whose second half gates what attention gives; with `gate_per_head` one value gates a head;
    with `gate_from_latents` latent attention makes it with q, both from its latents before and after their norm.
    `norm_gate_rank`: a network of this rank gates the output of each norm before attention and FFN.
    `value_head_dim` is the width of a head of v if it is not `head_dim`. `shares_kv`: keys and values are those of an
    earlier layer; `values_are_keys`: one projection gives both.
    `pre_norms` come before attention and FFN; `sandwich_norms` after them, as a second pair unless `pre_norms` is
    false; `sub_norms` come before the last GEMM of each. `embedding_norm` norms what enters the layers, `final_norm`
    what leaves them. `head_bias` is on the logits; `head_transform` is a GEMM and a norm before them, with
    `transform_bias` a bias too; a `pooler` is a GEMM of the first token.
    `parallel_residual`: attention and FFN both read what enters the layer, with `shared_norm` through one norm, and
    their sum is added to it. `sliding_layers` attend to the last `sliding_window` tokens only; with `window_is_chunk`
    to the earlier tokens of their own chunk of so many tokens.
    `relative_dim` values of each head give its bias for near tokens; one table for all layers has a bias of each head
    for each of `relative_buckets` distances. Without `key_bias` keys have none.
    Short convolutions of `conv_kernel` tokens run over what is `convolved`: projections (q, k, v), outputs of attention
    and network (o); `conv_mixes_heads`: so do convolutions of all channels of a head.
    `streams` hidden states of a token pass from layer to layer, of which `streams_mix` makes mixtures.
    With `altup` layers compute one of them and correct the others, and have a branch of rank `laurel_rank`.
    `per_layer_width`: each layer adds an embedding of its own of each token, so wide, from `per_layer_vocab` of them.
    `variants` are layers that differ in some fields.
    `mtp_copies`: each MTP layer is stored with copies of embedding and head;
    `mtp_apart`: MTP is stored beside the stack, and its layers share one projection and norms.
    Names in the checkpoint: `trunk` is what holds the layers, `moe_name` what holds router and experts, `matrix_names`
    are those of an FFN (gate, up, down), `second_norms` those of sandwich norms. `quantization` is how it is stored.
    `assumptions` says what the config left open and how it was read.
    `linear_attention` replaces attention in some layers. With `network_layers` a layer holds one part: these layers an
    FFN, all others attention or what replaces it.
    Unless `causal`, tokens also attend to later ones. `token_types` are further embeddings of a token; embeddings and
    logits may have widths of their own (`embedding_width`, `head_width`; 0: the hidden size).
    Vectors of each sequence, `modulation` for a layer, scale, shift and gate what it computes; matrices of these sizes
    (`conditioning`: input, output) make what they are of, in each layer with `own_conditioning`. With `weight_sets` two
    kinds of tokens, text and image, have weights of their own, but attend to each other; `text_ends` in this layer.
    `approximate`: some of its layers are not modelled, and count as usual ones. `unknown`: nobody has looked whether
    its layers are usual ones.
    The layers of `towers` come before the model's own; a tower has `inputs`, and `cross` reads what it gives.
    `frozen`: what of its own stack is not trained.
    """

    name: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    model_type: str = "llama"
    tie_word_embeddings: bool = False
    dtype: str = "bfloat16"
    hidden_act: str = "silu"
    gated_ffn: bool = True
    fused_gate_up: bool = False
    attention_bias: bool = False
    attention_out_bias: bool = False
    fused_qkv: bool = False
    attention_sinks: bool = False
    mlp_bias: bool = False
    norm: str = "rms"
    norm_bias: bool = False
    embedding_norm: bool = False
    parallel_residual: bool = False
    shared_norm: bool = False
    qk_norm: bool = False
    output_gate: bool = False
    sandwich_norms: bool = False
    sliding_window: int | None = None
    sliding_layers: tuple[int, ...] = ()
    max_position_embeddings: int = 0
    positions: str = "rotary"
    position_embeddings: int = 0
    mla: Mla | None = None
    indexer: Indexer | None = None
    linear_attention: Mixer | None = None
    moe: Moe | None = None
    num_nextn_predict_layers: int = 0
    mtp_copies: bool = True
    mtp_apart: bool = False
    trunk: str = "model"
    quantization: Fp8 | None = None
    assumptions: tuple[str, ...] = ()
    moe_name: str = "mlp"
    matrix_names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    second_norms: tuple[str, str] = ("post_self_attn_layernorm", "post_mlp_layernorm")
    network_layers: frozenset[int] | None = None
    norm_weights: bool = True
    pre_norms: bool = True
    sub_norms: bool = False
    final_norm: bool = True
    head_bias: bool = False
    head_transform: bool = False
    transform_bias: bool = False
    pooler: bool = False
    key_bias: bool = True
    relative_buckets: int = 0
    qk_norm_weights: str = "shared"
    qk_norm_bias: bool = False
    gate_per_head: bool = False
    gate_from_latents: bool = False
    norm_gate_rank: int = 0
    value_head_dim: int = 0
    shares_kv: bool = False
    values_are_keys: bool = False
    window_is_chunk: bool = False
    relative_dim: int = 0
    convolved: tuple[str, ...] = ()
    conv_kernel: int = 0
    conv_mixes_heads: bool = False
    compressed: Compressed | None = None
    streams: int = 1
    streams_mix: bool = False
    altup: bool = False
    laurel_rank: int = 0
    per_layer_width: int = 0
    per_layer_vocab: int = 0
    variants: tuple[Variant, ...] = ()
    causal: bool = True
    token_types: int = 0
    embedding_width: int = 0
    head_width: int = 0
    towers: tuple["ModelSpec", ...] = ()
    inputs: Inputs | None = None
    cross: Cross | None = None
    approximate: bool = False
    unknown: bool = False
    modulation: int = 0
    conditioning: tuple[tuple[int, int], ...] = ()
    own_conditioning: bool = False
    weight_sets: int = 1
    text_ends: bool = False
    frozen: Frozen = ALL_TRAINED

    @property
    def qk_head_dim(self) -> int:
        """Width of one head of q and k, the rotary part included."""
        return self.mla.qk_nope_head_dim + self.mla.qk_rope_head_dim if self.mla else self.head_dim

    @property
    def v_head_dim(self) -> int:
        """Width of one head of v, and of each head's output."""
        return self.mla.v_head_dim if self.mla else self.value_head_dim or self.head_dim

    @property
    def attends_to_latents(self) -> bool:
        """Whether attention reads one tensor as keys and as values, of which values may be a part."""
        return self.compressed is not None or self.indexer is not None

    @property
    def expert_hidden(self) -> int:
        """Width of what routed experts read and write."""
        return (self.moe.latent_size if self.moe else 0) or self.hidden_size

    @property
    def architecture(self) -> str:
        """The model's entry in data/architectures.toml; empty for a usual transformer."""
        if self.approximate:
            return "approximate"
        if self.linear_attention and self.linear_attention.architecture:
            return self.linear_attention.architecture
        if self.attends_to_latents:
            return "sparse-mla"
        return "sinks" if self.attention_sinks else "mla" if self.mla else "unknown" if self.unknown else ""

    @cached_property
    def n_layers(self) -> int:
        """The layers of towers and of the model's own stack, without MTP, in the order of their numbers."""
        return sum(tower.num_hidden_layers for tower in self.towers) + self.num_hidden_layers

    @property
    def divided_layers(self) -> int:
        """The layers that pipeline stages divide evenly: all but those of towers of other media."""
        return self.n_layers if self.cross is not None else self.num_hidden_layers

    def is_moe(self, layer: int) -> bool:
        """Whether an own layer routes to experts; an MTP layer is built like the last layer that has an FFN."""
        if self.network_layers is not None and layer >= self.num_hidden_layers:
            layer = max(self.network_layers, default=layer)
        return self.moe is not None and min(layer, self.num_hidden_layers - 1) in self.moe.layers

    def kind(self, layer: int) -> LayerKind:
        """The kind of a layer: those of towers come first, MTP layers, with plain attention and an FFN, last."""
        return self._kinds[layer]

    @cached_property
    def _kinds(self) -> tuple[LayerKind, ...]:
        towers = enumerate(self.towers, 1)
        return (*[kind._replace(tower=number) for number, tower in towers for kind in tower._kinds], *self._own_kinds)

    @cached_property
    def _own_kinds(self) -> tuple[LayerKind, ...]:
        """The kinds of the model's own layers, MTP layers behind the others."""
        variant = {layer: number for number, of in reversed([*enumerate(self.variants, 1)]) for layer in of.layers}
        layers = range(self.num_hidden_layers + self.num_nextn_predict_layers)
        return tuple(self._kind(layer, variant.get(layer, 0)) for layer in layers)

    def _kind(self, layer: int, variant: int) -> LayerKind:
        alone = self.network_layers is not None and layer < self.num_hidden_layers
        network = not alone or layer in (self.network_layers or ())
        if self.cross is not None and layer in self.cross.alone:
            network = False
        return LayerKind(
            moe=network and self.is_moe(layer),
            indexer=self.indexer is not None and layer in self.indexer.layers,
            linear=self.linear_attention is not None and layer in self.linear_attention.layers,
            mixer=not alone or not network,
            network=network,
            cross=self.cross is not None and layer in self.cross.layers,
            variant=variant,
            opens=self.inputs is not None and layer == 0,
            closes=self.inputs is not None and layer == self.num_hidden_layers - 1,
            learns=layer not in self.frozen.layers,
            passes=layer >= self.first_trained,
            kept=layer >= self.first_trained - 1,
        )

    @cached_property
    def first_trained(self) -> int:
        """The first own layer that gradients enter; 0 where they go on to what is before the stack."""
        if not self.frozen.embedding or any(tower.inputs and tower.inputs.is_trained(False) for tower in self.towers):
            return 0
        layers = range(self.num_hidden_layers)
        return next((layer for layer in layers if layer not in self.frozen.layers), self.num_hidden_layers)

    def of(self, kind: LayerKind) -> "ModelSpec":
        """The model as layers of this kind have it."""
        stack = self.towers[kind.tower - 1] if kind.tower else self
        return stack.designs[kind.variant]

    @cached_property
    def designs(self) -> tuple["ModelSpec", ...]:
        """The model, and the model as layers of each variant have it."""
        return (self, *[replace(self, **dict(variant.fields)) for variant in self.variants])

    @cached_property
    def kinds(self) -> frozenset[LayerKind]:
        """The kinds of layers in the model's own stack, without MTP."""
        return frozenset(self._own_kinds[: self.num_hidden_layers])

    @property
    def has_attention(self) -> bool:
        """Whether any layer has attention with heads of its own."""
        beside = self.linear_attention is not None and self.linear_attention.beside_attention
        return beside or any(kind.mixer and not kind.linear for kind in self.kinds)

    @property
    def has_dense_layers(self) -> bool:
        """Whether any layer has one FFN instead of experts."""
        return any(kind.network and not kind.moe for kind in self.kinds)

    @cached_property
    def first_alike(self) -> tuple[int, ...]:
        """For each layer the first one like it; each MTP layer is one of its kind."""
        first: dict[object, int] = {}
        kinds = [(kind, self.window(n), max(n - self.n_layers, -1)) for n, kind in enumerate(self._kinds)]
        return tuple(first.setdefault(kind, number) for number, kind in enumerate(kinds))

    def window(self, layer: int) -> int | None:
        """The number of near tokens to which a layer attends; None for all."""
        for tower in self.towers:
            if layer < tower.num_hidden_layers:
                return tower.window(layer)
            layer -= tower.num_hidden_layers
        return self.sliding_window if layer in self.sliding_layers else None

    @property
    def norms_per_layer(self) -> int:
        """Norms over the hidden dimension in one layer, without those of heads."""
        own = 1 if self.shared_norm or self.network_layers is not None else 2
        return self.pre_norms * own + (2 if self.sandwich_norms else 0)
