"""Sparse latent attention between Megatron-LM's arguments (`dsa`) and the keys of a Hugging Face config."""

from itertools import product
from typing import Any

from ...models.model import Indexer, ModelSpec
from .arguments import Arguments

SPARSE = "dsa"
SIZES = {"dsa_indexer_n_heads": "index_n_heads", "dsa_indexer_head_dim": "index_head_dim",
         "dsa_indexer_topk": "index_topk"}  # fmt: skip
"""Sizes of an indexer that arguments must give, each with the key of a config that it says."""
_PERIOD, _FIRST = "dsa_indexer_topk_freq", "dsa_indexer_skip_topk_offset"
_LONGEST = 8  # period of layers with an indexer that is looked for


def picks(args: Arguments) -> bool:
    """Whether attention reads the latents of tokens that an indexer picks."""
    return args.hint("experimental_attention_variant") == SPARSE


def indexer_keys(args: Arguments) -> dict[str, Any]:
    """Keys of the indexer, and of the layers that have one; none without sparse attention."""
    if not picks(args):
        return {}
    for name, of in (("q_lora_rank", "queries"), ("num_experts", "experts")):
        if not args.has(name):
            args.fault(
                "experimental_attention_variant", f"{SPARSE} is read of models with latent {of}: {name} is missing"
            )
    sizes = {key: args.require(name, "a size of the indexer") for name, key in SIZES.items()}
    return {**sizes, "index_topk_freq": args.whole(_PERIOD), "index_skip_topk_offset": args.whole(_FIRST, 0, 0)}


def indexer_flags(spec: ModelSpec, of: Indexer) -> dict[str, str | int]:
    """The indexer as arguments; `sharing` must be known."""
    period, first = sharing(spec) or (1, 0)
    flags: dict[str, str | int] = {"--experimental-attention-variant": SPARSE, "--dsa-indexer-n-heads": of.num_heads,
             "--dsa-indexer-head-dim": of.head_dim, "--dsa-indexer-topk": of.topk}  # fmt: skip
    return flags | ({"--dsa-indexer-topk-freq": period, "--dsa-indexer-skip-topk-offset": first} if period > 1 else {})


def sharing(spec: ModelSpec) -> tuple[int, int] | None:
    """(period, first layers) of the layers with an indexer; None where arguments cannot say which have one."""
    layers = range(spec.n_layers + spec.num_nextn_predict_layers)
    found = spec.indexer.layers if spec.indexer else frozenset(layers)
    for period, first in product(range(1, _LONGEST + 1), repeat=2):
        if found == {layer for layer in layers if max(layer + 1 - first, 0) % period == 0}:
            return period, first
    return None
