"""One stack of layers from the keys of a config, as its family builds it.

`hf` puts stacks together; see `family` for what a family fixes and `keys` for typed reading of keys.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import zip_longest
from typing import Any

from .families import KEY_OF_INDEXER
from .family import Family, LayerKeys
from .hybrid import ATTENTION, DENSE, EXPERTS, MIXERS, REPLACED, count_layers, layers_of, read_layers
from .keys import Keys
from .layer_keys import layer_keys, layer_types, moe_layers, sliding_layers, spread_lists
from .model import ACTIVATIONS, NORMS, POSITIONS, ModelSpec
from .parts import Compressed, Fp8, Indexer, Mla, Moe, Variant

DTYPES = ("bfloat16", "float16", "float32")
_MAX_LAYERS, _MAX_EXPERTS = 1000, 4096


def read_stack(keys: Keys, family: Family, model_type: str, name: str) -> ModelSpec:
    """The layers that the keys describe, with those that differ from others in some sizes; faults are noted."""
    whole = _layers(keys, family)
    keys, lists = spread_lists(keys, whole)
    spec = _spec(keys, family, model_type, name)
    of_layers = layer_keys(keys, family, spec.sliding_layers, whole)
    own = {number: lists.get(number, {}) | of_layers.get(number, {}) for number in {*lists, *of_layers}}
    return replace(spec, variants=_variants(spec, keys, family, own))


def _variants(spec: ModelSpec, keys: Keys, family: Family, own: LayerKeys) -> tuple[Variant, ...]:
    """Layers whose own keys make them differ from the model, those with the same keys together."""
    numbers: dict[str, list[int]] = {}
    for number, changes in own.items():
        numbers.setdefault(repr(sorted(changes.items())), []).append(number)
    found = []
    for alike in numbers.values():
        other = _spec(keys.change(own[alike[0]]), family, spec.model_type, spec.name)
        pairs = [(each.name, getattr(other, each.name)) for each in fields(spec)]
        if differ := tuple((name, value) for name, value in pairs if value != getattr(spec, name)):
            found.append(Variant(frozenset(alike), differ))
    return tuple(found)


def _spec(keys: Keys, family: Family, model_type: str, name: str) -> ModelSpec:
    hidden, layers = keys.whole("hidden_size"), _layers(keys, family)
    letters = read_layers(keys, layers, family.alone, family.layers_key) if family.mixer else ""
    mixer = MIXERS[family.mixer](keys, layers_of(letters, REPLACED)) if REPLACED in letters else None
    mtp_key = "mtp_num_hidden_layers" if family.design.mtp_apart else "num_nextn_predict_layers"
    mtp_layers = keys.whole(mtp_key, default=0, minimum=0, maximum=_MAX_LAYERS)
    attends = mixer is None or mixer.beside_attention or ATTENTION in letters or mtp_layers > 0
    heads = keys.whole("num_attention_heads") if attends else 0
    embedded = keys.whole("word_embed_proj_dim", default=hidden)
    keys.expect(embedded == hidden, "word_embed_proj_dim", f"hidden_size = {hidden}: others are not modelled")
    mla = _mla(keys) if family.mla else None
    positions, learned = _positions(keys, family)
    flags = _flags(keys, family)
    kinds = layer_types(keys, family, layers)
    sliding = sliding_layers(keys, family, layers, kinds)
    moe = _moe(keys, family, layers, letters)
    return replace(
        family.design,
        name=name,
        model_type=model_type,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        head_dim=mla.v_head_dim if mla else _head_dim(keys, hidden, heads),
        value_head_dim=0 if mla else keys.whole("v_head_dim", default=0, minimum=0),
        num_key_value_heads=heads if mla else _kv_heads(keys, family, heads),
        intermediate_size=_ffn_width(keys, family, hidden, moe, layers) if not family.alone or DENSE in letters else 0,
        vocab_size=keys.whole("vocab_size"),
        dtype=_dtype(keys),
        attention_out_bias=_out_bias(keys, family, flags["attention_bias"]),
        sliding_window=keys.whole("sliding_window") if sliding else None,
        sliding_layers=sliding,
        max_position_embeddings=keys.whole("max_position_embeddings", default=0),
        positions=positions,
        position_embeddings=learned,
        mla=mla,
        indexer=_indexer(keys, layers, mtp_layers, kinds) if family.indexer else None,
        linear_attention=mixer,
        network_layers=layers_of(letters, DENSE, EXPERTS) if family.alone else None,
        moe=moe,
        conv_kernel=keys.whole("conv_kernel_size") if family.design.convolved else 0,
        norm_gate_rank=keys.whole("gated_norm_rank", default=0, minimum=0),
        relative_buckets=_buckets(keys, family.design.relative_buckets),
        relative_dim=keys.whole("d_rel", default=0, minimum=0),
        compressed=_compressed(keys) if family.compressed else None,
        streams=keys.whole("hc_mult", default=1),
        modulation=keys.whole("modulation", default=family.design.modulation, minimum=0),
        weight_sets=keys.whole("weight_sets", default=family.design.weight_sets),
        conditioning=tuple((into, out) for into, out in keys.sequence("conditioning")),
        laurel_rank=keys.whole("laurel_rank", default=0, minimum=0),
        per_layer_width=(own_width := keys.whole("hidden_size_per_layer_input", default=0, minimum=0)),
        per_layer_vocab=keys.whole("vocab_size_per_layer_input", default=keys.whole("vocab_size")) if own_width else 0,
        num_nextn_predict_layers=mtp_layers,
        causal=family.design.causal or keys.flag("is_decoder", False),
        token_types=keys.whole("token_types", default=0, minimum=0) if "token_types" in family.own else 0,
        embedding_width=_other_width(keys, "embedding_width", hidden),
        head_width=_other_width(keys, "head_width", hidden),
        quantization=_quantization(keys),
        **flags,
    )


def _layers(keys: Keys, family: Family) -> int:
    stated = count_layers(keys) if family.mixer else None
    return keys.whole("num_hidden_layers", stated, maximum=_MAX_LAYERS) * family.sublayers


def _ffn_width(keys: Keys, family: Family, hidden: int, moe: Moe | None, layers: int) -> int:
    """The width of dense networks; without one it is a multiple of the hidden size, or that of experts.

    LFM2's is two thirds of what its config says, rounded up, unless that is turned off.
    """
    if keys.has("dense_intermediate_size"):
        return keys.whole("dense_intermediate_size")
    ratio = keys.whole("expansion_ratio", default=4) * hidden if family.ffn_ratio else None
    no_dense = moe.moe_intermediate_size if moe and len(moe.layers) == layers else None
    width = keys.whole(family.ffn_width, default=ratio or no_dense)
    if not family.narrow_ffn or not keys.flag("block_auto_adjust_ff_dim", True):
        return width
    step, factor = keys.whole("block_multiple_of", default=256), keys.get("block_ffn_dim_multiplier") or 1
    if not isinstance(factor, int | float):
        keys.fault("block_ffn_dim_multiplier", "a number")
        return width
    return -(-int(factor * (2 * width // 3)) // step) * step


def _other_width(keys: Keys, key: str, hidden: int) -> int:
    """The width of embeddings or logits, 0 where it is that of hidden states."""
    width = keys.whole(key, default=hidden)
    return 0 if width == hidden else width


def _buckets(keys: Keys, usual: int) -> int:
    return keys.whole("relative_attention_num_buckets", default=usual) if usual else 0


def _out_bias(keys: Keys, family: Family, attention_bias: bool) -> bool:
    return keys.flag("attention_out_bias", family.design.attention_out_bias or (attention_bias and family.out_bias))


def _flags(keys: Keys, family: Family) -> dict[str, Any]:
    """The flags of a model's structure: its family's, unless a key says otherwise."""
    design, biased = family.design, not (family.no_bias and keys.flag("no_bias", False))
    biases = ("attention_bias", "mlp_bias", "norm_bias")
    others = (
        *("gated_ffn", "embedding_norm", "parallel_residual", "tie_word_embeddings", "pre_norms", "sandwich_norms"),
        *("head_bias", "attention_sinks", "qk_norm", "shares_kv", "values_are_keys", "text_ends", "streams_mix"),
        *("output_gate", "gate_per_head"),
    )
    if keys.has("feed_forward_proj"):  # T5's: relu or gated-gelu
        gate, _, function = f"-{keys.text('feed_forward_proj', '')}".rpartition("-")
        design = replace(design, gated_ffn=bool(gate), hidden_act=function)
    found = {key: keys.flag(key, getattr(design, key) and (biased or key in others)) for key in (*biases, *others)}
    return found | {
        "hidden_act": keys.one_of("hidden_act", ACTIVATIONS, design.hidden_act),
        "norm": keys.one_of("norm", NORMS, "layer" if found["norm_bias"] else design.norm),
        "shared_norm": _shared_norm(keys, family, found["parallel_residual"]),
    }


def _positions(keys: Keys, family: Family) -> tuple[str, int]:
    """The kind of positions and how many are learned, by the keys `positions`, `alibi` and `rope`."""
    bias_or_rotary = "alibi" * keys.flag("alibi", False) or "rotary" * keys.flag("rope", False)
    bias_or_rotary = bias_or_rotary or "rotary" * (keys.get("position_embedding_type") == "rope")
    kind = keys.one_of("positions", POSITIONS, bias_or_rotary or family.design.positions)
    if kind == "learned":
        return kind, keys.whole("position_embeddings") + family.position_offset
    if kind != "rotary" or "position_embeddings" in family.own:
        return kind, 0
    learned = keys.whole("position_embeddings", default=0, minimum=0)
    return ("learned" if learned else kind), learned


def _shared_norm(keys: Keys, family: Family, parallel: bool) -> bool:
    """Attention and FFN share a norm in Falcon's first architecture, not in its later one."""
    later = family.design.shared_norm and keys.flag("new_decoder_architecture", False)
    shared = keys.flag("shared_norm", family.design.shared_norm and parallel and not later)
    keys.expect(parallel or not shared, "shared_norm", "false without parallel_residual")
    return shared


def _kv_heads(keys: Keys, family: Family, heads: int) -> int:
    if family.multi_query and not keys.flag("new_decoder_architecture", False) and keys.flag("multi_query", True):
        return 1
    if not heads:
        return 0
    kv_heads = keys.whole("num_key_value_heads", default=heads)
    keys.expect(heads % kv_heads == 0, "num_key_value_heads", f"a divisor of num_attention_heads = {heads}")
    return kv_heads


def _head_dim(keys: Keys, hidden: int, heads: int) -> int:
    if not heads:
        return 0
    fits = keys.has("head_dim") or hidden % heads == 0
    keys.expect(fits, "num_attention_heads", f"a divisor of hidden_size = {hidden}, or give head_dim")
    return keys.whole("head_dim", default=max(hidden // heads, 1))


def _dtype(keys: Keys) -> str:
    key = "dtype" if keys.has("dtype") else "torch_dtype"
    dtype = keys.text(key, "bfloat16").removeprefix("torch.")
    if dtype not in DTYPES:
        keys.fault(key, f"one of {', '.join(DTYPES)}")
    return dtype


def _mla(keys: Keys) -> Mla:
    sizes = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return Mla(keys.optional("q_lora_rank"), *map(keys.whole, sizes))


def _compressed(keys: Keys) -> Compressed:
    """Compressed attention of a layer, by the number of tokens that its entries stand for."""
    picked = keys.flag("entries_are_picked", False)
    return Compressed(
        q_lora_rank=keys.whole("q_lora_rank"),
        rope_dim=keys.whole("qk_rope_head_dim"),
        o_groups=keys.whole("o_groups"),
        o_lora_rank=keys.whole("o_lora_rank"),
        ratio=keys.whole("compress_ratio", default=0, minimum=0),
        index_heads=keys.whole("index_n_heads") if picked else 0,
        index_dim=keys.whole("index_head_dim") if picked else 0,
        index_topk=keys.whole("index_topk") if picked else 0,
    )


def _indexer(keys: Keys, layers: int, mtp_layers: int, kinds: list[str]) -> Indexer:
    """The layers with an indexer, from a list, or from a step and an offset; those with a window have none."""
    keys.expect(keys.has("q_lora_rank"), "q_lora_rank", "a whole number: the indexer reads the compressed query")
    types = keys.sequence("indexer_types")
    if types and (len(types) < layers or not {str(kind) for kind in types} <= {"full", "shared"}):
        keys.fault("indexer_types", f"full or shared for each of {layers} layers")
    step, offset = keys.whole("index_topk_freq", default=1), keys.whole("index_skip_topk_offset", default=2, minimum=0)
    by_step = layers_with_indexer(layers + mtp_layers, step, offset)
    own = [number in by_step for number in range(layers + mtp_layers)]
    own[: len(types[:layers])] = [kind == "full" for kind in types[:layers]]
    own[:layers] = [has and kind != "sliding_attention" for has, kind in zip_longest(own[:layers], kinds)]
    return Indexer(
        num_heads=keys.whole("index_n_heads"),
        head_dim=keys.whole("index_head_dim"),
        topk=keys.whole(KEY_OF_INDEXER, default=2048),  # transformers' DeepseekV32Config and GlmMoeDsaConfig
        layers=frozenset(number for number, has in enumerate(own) if has),
        learns=keys.flag("index_loss", True),
    )


def layers_with_indexer(layers: int, step: int, offset: int) -> frozenset[int]:
    """Those up to `offset`, and of the others each `step`-th."""
    return frozenset(number for number in range(layers) if max(number + 1 - offset, 0) % step == 0)


def _moe(keys: Keys, family: Family, layers: int, letters: str) -> Moe | None:
    count_key, alone = family.experts, layers_of(letters, EXPERTS)
    if count_key is None or (family.alone and not alone):
        return None
    if family.mixer and keys.whole(count_key, minimum=0) < family.fewest_experts:
        return None
    if family.experts_need_flag and not keys.flag(family.experts_need_flag, False):
        return None
    experts = keys.whole(count_key, maximum=_MAX_EXPERTS)
    idle = keys.whole("zero_expert_num", default=0, minimum=0, maximum=_MAX_EXPERTS)
    width, top_k = keys.whole(family.expert_width), keys.whole("num_experts_per_tok")
    keys.expect(top_k <= experts + idle, "num_experts_per_tok", f"at most {count_key} = {experts}")
    return Moe(
        n_routed_experts=experts,
        num_experts_per_tok=max(round(top_k * experts / (experts + idle)), 1),
        moe_intermediate_size=width,
        layers=tuple(sorted(alone)) if family.alone else moe_layers(keys, layers),
        shared_intermediate_size=_shared_width(keys, width) + _width_beside_experts(keys, family),
        shared_gate=family.shared_gate,
        correction_bias=family.correction_bias,
        router_bias=family.router_bias,
        stacked_experts=family.router_bias,
        latent_size=keys.whole("moe_latent_size", default=0, minimum=0),
        norms=family.expert_norms,
        idle_experts=idle,
        router_width=keys.whole("router_hidden_size", default=0, minimum=0),
    )


def _width_beside_experts(keys: Keys, family: Family) -> int:
    return keys.whole(family.beside_experts) if family.beside_experts else 0


def _shared_width(keys: Keys, width: int) -> int:
    if keys.has("shared_expert_intermediate_size"):
        return keys.whole("shared_expert_intermediate_size", minimum=0)
    return width * keys.whole("n_shared_experts", default=0, minimum=0, maximum=_MAX_EXPERTS)


def _quantization(keys: Keys) -> Fp8 | None:
    """Block FP8 as DeepSeek stores it; any other method has sizes that we do not know."""
    given = keys.get("quantization_config")
    if not given:
        return None
    known = isinstance(given, Mapping) and given.get("quant_method") == "fp8"
    block = given.get("weight_block_size") if known else None
    if isinstance(block, list | tuple) and len(block) == 2 and all(type(n) is int and n > 0 for n in block):
        return Fp8((block[0], block[1]))
    keys.fault("quantization_config", 'quant_method "fp8" with a weight_block_size such as [128, 128], or none at all')
    return None
