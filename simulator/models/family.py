"""A model family: what a `model_type` fixes that its config.json does not say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .keys import Keys
from .model import ModelSpec

LayerKeys = Mapping[int, Mapping[str, Any]]
"""Keys that have other values in some layers, by the number of the layer."""


def built(**design: Any) -> ModelSpec:
    """A model without sizes that is built like Llama, except for these fields."""
    return ModelSpec("", 0, 0, 0, 0, 0, 0, 0, **design)


def full_every(period: int) -> dict[str, int]:
    """A default: of so many layers, one has no window."""
    return {"sliding_window_pattern": period}


def first_dense(layers: int) -> dict[str, int]:
    """A default: so many layers come before the first with experts."""
    return {"first_k_dense_replace": layers}


def shared_experts(count: int) -> dict[str, int]:
    """A default: so many shared experts, as wide as the routed ones."""
    return {"n_shared_experts": count}


def all_layers_alike(keys: Keys, sliding: Sequence[int], layers: int) -> LayerKeys:
    """No layer has keys of its own beside those that its config lists."""
    return {}


class TowerFamily(NamedTuple):
    """A tower of a family's models: its name, how it is built, and what completes it, such as what it reads."""

    name: str
    family: "Family"
    complete: Callable[[Keys, ModelSpec], ModelSpec]


@dataclass(frozen=True)
class Family:
    """One `model_type`, as its Hugging Face implementation builds it.

    `design` is a model without sizes: what its code fixes, and the defaults of keys. `own` maps Llama's keys to those
    of its configs, and `defaults` are those of sizes; with a value outside of `only` the model is not the one we know.
    `out_bias`: `attention_bias` also covers the output projection. `ffn_ratio`: a missing FFN width means 4 times the
    hidden size. `ffn_width` is the key of an FFN's width. `mla`, `indexer` and `compressed`: its configs have those
    keys. `mixer` replaces attention in some layers, a key of `hybrid.MIXERS`; `alone`: each layer holds one part;
    `layers_key`: without this key, or another that says it, the layers with attention are not known.
    `narrow_ffn`: LFM2's FFN is narrower than its config says. `experts` is the key of the number of experts (None:
    dense) and `expert_width` of their width; see `Moe` for the rest. With a mixer, fewer than `fewest_experts` are
    none. `experts_need_flag` is a key without which a model
    is dense, `beside_experts` the key of the width of a dense network that a layer has beside its experts.
    `sublayers`: LongCat counts pairs of layers as one. `window_needs_flag`: Qwen's `use_sliding_window`;
    `full_first`: of each `sliding_window_pattern` layers the first has no window, not the last. `layer_keys` gives keys
    that its code changes in some layers, from the keys, the layers with a window and the number of layers.
    `position_offset`: OPT learns two positions more than it uses. `multi_query`: Falcon's key for one head of k and v.
    `no_bias`: MPT's key against all biases. `towers` come before the stack; with `cross` the second of each pair of
    layers attends to what they give.
    """

    design: ModelSpec = built()  # noqa: RUF009
    own: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    out_bias: bool = True
    ffn_ratio: bool = False
    ffn_width: str = "intermediate_size"
    mla: bool = False
    indexer: bool = False
    compressed: bool = False
    mixer: str = ""
    alone: bool = False
    layers_key: str = ""
    narrow_ffn: bool = False
    experts: str | None = None
    fewest_experts: int = 1
    expert_width: str = "moe_intermediate_size"
    shared_gate: bool = False
    correction_bias: bool = False
    router_bias: bool = False
    expert_norms: tuple[str, ...] = ()
    experts_need_flag: str = ""
    beside_experts: str = ""
    sublayers: int = 1
    window_needs_flag: bool = False
    full_first: bool = False
    layer_keys: Callable[[Keys, Sequence[int], int], LayerKeys] = all_layers_alike
    position_offset: int = 0
    multi_query: bool = False
    no_bias: bool = False
    towers: tuple[TowerFamily, ...] = ()
    cross: bool = False
