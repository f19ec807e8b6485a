"""Parameter counts of whole models, as they are published."""

from collections import Counter
from math import prod

from .blocks import embedding_parameters, head_parameters, layer_parameters, mtp_parameters
from .model import LayerKind, ModelSpec
from .parameters import n_elements


def total_params(spec: ModelSpec, mtp: bool = False) -> int:
    """All parameters, counted as published totals are: a tied matrix once, and without the MTP layers unless `mtp`."""
    return _params(spec, mtp, active=False)


def active_params(spec: ModelSpec, mtp: bool = False) -> int:
    """Parameters on one token's path: its experts only, embedding and head counted whole.

    Published figures differ in whether they count the embedding; `vocab_size * hidden_size` is its size.
    """
    return _params(spec, mtp, active=True)


def layer_params(spec: ModelSpec, kind: LayerKind, active: bool = False) -> int:
    """A layer of one kind; with `active`, only what one token passes through."""
    table = layer_parameters(spec, kind)
    if not active or spec.moe is None:
        return n_elements(table)
    chosen = spec.moe.num_experts_per_tok
    return sum(prod(each.shape) * (chosen if each.experts else 1) for each in table)


def _params(spec: ModelSpec, mtp: bool, active: bool) -> int:
    extra = spec.num_nextn_predict_layers * mtp
    kinds = Counter(spec.kind(number) for number in range(spec.num_hidden_layers + extra))
    layers = sum(count * layer_params(spec, kind, active) for kind, count in kinds.items())
    ends = n_elements(embedding_parameters(spec)) + n_elements(head_parameters(spec, spec.tie_word_embeddings))
    return layers + ends + (min(extra, 1) if spec.mtp_apart else extra) * n_elements(mtp_parameters(spec))
