"""Attention to picked tokens between Megatron-LM's arguments and the keys of a Hugging Face config.

That is sparse latent attention (`dsa`) and DeepSeek-V4's compressed attention (`dsv4_hybrid`).
"""

import re
from itertools import product
from typing import Any

from ...models.model import ModelSpec
from ...models.parts import Indexer
from ...models.stack import layers_with_indexer
from .arguments import Arguments

SPARSE, COMPRESSED = "dsa", "dsv4_hybrid"
LOSS = "dsa_indexer_loss_coeff"
_SIZES = {"dsa_indexer_n_heads": "index_n_heads", "dsa_indexer_head_dim": "index_head_dim",
          "dsa_indexer_topk": "index_topk"}  # fmt: skip
"""Arguments that are sizes of an indexer, each with the key of a config that says the same."""
_PERIOD, _FIRST = "dsa_indexer_topk_freq", "dsa_indexer_skip_topk_offset"
_RATIOS = re.compile(r"\[(\d{1,6}(?:,\d{1,6})*)\](?:\*(\d{1,4}))?")
_LONGEST = 8  # the longest period of layers with an indexer that an export looks for
_COEFFICIENT = "0.001"  # NVIDIA-NeMo/Megatron-Bridge, recipes of GLM-5


def is_sparse(args: Arguments) -> bool:
    """Whether attention reads the latents of tokens that an indexer picks."""
    return args.hint("experimental_attention_variant") == SPARSE


def is_compressed(args: Arguments) -> bool:
    """Whether attention reads near tokens, and entries that stand for several far ones."""
    return args.hint("experimental_attention_variant") == COMPRESSED


def compressed_keys(args: Arguments, layers: int) -> dict[str, Any]:
    """Keys of compressed attention: a ratio for each layer, 0 for those that attend to near tokens alone."""
    text = re.sub(r"\s", "", args.text("csa_compress_ratios"))
    inside = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    runs = [_RATIOS.fullmatch(part) for part in inside.split("+")]
    ratios = [int(one) for run in runs if run for one in run[1].split(",") * int(run[2] or 1)]
    if None in runs or len(ratios) < layers:
        wanted = f"expected a ratio for each of {layers} layers, such as ([0,0]+[4,128]*20)"
        args.fault("csa_compress_ratios", wanted, text or "nothing")
    return {
        "q_lora_rank": args.require("q_lora_rank", "the width of the latents of queries"),
        "head_dim": args.require("v_head_dim", "the width of a head"),
        "num_key_value_heads": 1,
        "qk_rope_head_dim": args.whole("qk_pos_emb_head_dim", 64),
        "o_groups": args.require("o_groups", "groups of heads that share a latent of the output"),
        "o_lora_rank": args.require("o_lora_rank", "the width of these latents"),
        "sliding_window": args.whole("csa_window_size", 128),
        "compress_ratios": ratios,
        **{key: args.require(name, "a size of the indexer") for name, key in _SIZES.items()},
    }


def indexer_keys(args: Arguments) -> dict[str, Any]:
    """Keys of the indexer, and of the layers that have one; none without sparse attention."""
    if is_compressed(args):
        return {}
    if not is_sparse(args):
        _note_idle(args)
        return {}
    if not args.has("q_lora_rank"):
        args.fault("experimental_attention_variant", f"{SPARSE} needs latent queries: give --q-lora-rank")
    sizes = {key: args.require(name, "a size of the indexer") for name, key in _SIZES.items()}
    return {**sizes, **period_keys(args), "index_loss": has_loss(args)}


def _note_idle(args: Arguments) -> None:
    given = [args.spelling(name) for name in (*_SIZES, _PERIOD, _FIRST) if args.has(name)]
    if given:
        needed = "--experimental-attention-variant dsa"
        args.assumed.append(f"{', '.join(given)}: counts for nothing without {needed}, as in Megatron-LM")


def period_keys(args: Arguments) -> dict[str, int]:
    """Which layers have an indexer: every `index_topk_freq`-th behind the first ones, whose picks others reuse."""
    period = args.whole(_PERIOD)
    return {"index_topk_freq": period, "index_skip_topk_offset": args.whole(_FIRST, 0, minimum=int(period > 1))}


def has_loss(args: Arguments) -> bool:
    """Whether the indexer learns. With a loss on all tokens it scores more than is priced, which is noted."""
    learns = (args.number(LOSS) or 0.0) > 0
    if learns and not args.switch("dsa_indexer_use_sparse_loss"):
        args.not_modelled.append(f"{args.spelling(LOSS)}: the loss is priced on the tokens that are picked")
    return learns


def indexer_flags(spec: ModelSpec, indexer: Indexer) -> dict[str, str | int | bool]:
    """The indexer as arguments; `period_of` must be known."""
    period, first = period_of(spec) or (1, 0)
    flags: dict[str, str | int | bool] = {
        "--experimental-attention-variant": SPARSE,
        "--dsa-indexer-n-heads": indexer.num_heads,
        "--dsa-indexer-head-dim": indexer.head_dim,
        "--dsa-indexer-topk": indexer.topk,
    }
    if period > 1:
        flags |= {"--dsa-indexer-topk-freq": period, "--dsa-indexer-skip-topk-offset": first}
    if indexer.learns:
        flags |= {"--dsa-indexer-loss-coeff": _COEFFICIENT, "--dsa-indexer-use-sparse-loss": True}
    return flags


def period_of(spec: ModelSpec) -> tuple[int, int] | None:
    """(period, first layers) of the layers with an indexer; None where arguments cannot say which have one."""
    layers = spec.n_layers + spec.num_nextn_predict_layers
    found = spec.indexer.layers if spec.indexer else frozenset(range(layers))
    for period, first in product(range(1, _LONGEST + 1), repeat=2):
        if found == layers_with_indexer(layers, period, first):
            return period, first
    return None
