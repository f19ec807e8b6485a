"""FLOP of small models of each architecture are those that torch counts while transformers runs them.

counted.jsonl has the counts; what needs transformers itself is slow and skips where it is not installed, as in
test_built.py.
"""

from dataclasses import replace
from importlib.util import find_spec

import pytest
from runcast.simulator.base.op_kinds import ATTENTION, op_kind
from runcast.simulator.models import from_hf_config
from runcast.simulator.models.blocks import embedding, head, layer
from runcast.simulator.models.kernels import flop
from runcast.simulator.models.mixers import Mamba, Mamba2
from runcast.simulator.models.shard import Shard
from runcast.simulator.models.sparse_mla import LEARNING

from .counted import BATCH, CONFIGS, SEQ, count, read_counted

SHARD = Shard(BATCH, SEQ)
SMALL = {"gemma3n_text": 0.01, "doge": 0.001}
"""Types with products of a few columns, which we price by their bytes: up to this share of the model's FLOP."""


def whole(kernel):
    """A kernel with all scores of its attention, which the eager code of transformers computes."""
    masked = op_kind(kernel.kind).form == ATTENTION and kernel.name != "cross_attention"
    return replace(kernel, shape=(*kernel.shape[:6], 0, 0, kernel.shape[8])) if masked else kernel


def of_layers(spec, *names):
    """The FLOP of kernels with these names, all without names."""
    kernels = [kernel for number in range(spec.n_layers) for kernel in layer(spec, number, SHARD).all]
    return sum(flop(whole(kernel)) for kernel in kernels if not names or kernel.name in names)


def counted_otherwise(spec):
    """What transformers computes, or torch counts, in another way than fused kernels do.

    A delta rule solves triangles, which torch does not count. Mamba-2 repeats B and C for all heads of a group, and
    passes states on by a matrix of all chunks. Mamba-1 multiplies its states by C in a product. Streams are mixed by a
    product, which we price by its bytes.
    """
    of, mixed = spec.linear_attention, streams_mixed(spec)
    if spec.indexer or spec.compressed:
        return mixed + otherwise_of_indexers(spec)
    if isinstance(of, Mamba2):
        again, chunks = of.num_heads // of.num_groups - 1, SEQ // of.chunk_size + 1
        passed = BATCH * chunks**2 * 2 * of.num_heads * of.head_dim * of.state_size
        return again * of_layers(spec, "chunk_scores") + passed * len(of.layers)
    if isinstance(of, Mamba):
        return len(of.layers) * BATCH * SEQ * 2 * of.inner_width * of.state_size
    return -of_layers(spec, "chunk_solved")


def streams_mixed(spec):
    """Products of the streams with mixtures of them, at both blocks of each layer."""
    return spec.streams_mix * spec.n_layers * 2 * BATCH * SEQ * 2 * spec.streams**2 * spec.hidden_size


def otherwise_of_indexers(spec):
    """Of scores we count the half before each token, and none while a model learns.

    DeepSeek-V3.2's sum over heads is a product there; its attention makes keys and values, and does not read latents.
    """
    rest = of_layers(spec, "index_scores")
    if spec.indexer is None:
        return rest
    heads, mla, pairs = spec.indexer.num_heads, spec.mla, spec.n_layers * BATCH * SEQ**2
    made = mla.qk_nope_head_dim + mla.v_head_dim - 2 * mla.kv_lora_rank
    return rest - of_layers(spec, *LEARNING) + 2 * pairs * (heads + spec.num_attention_heads * made)


@pytest.mark.parametrize("model", read_counted(), ids=lambda model: model.model_type)
def test_a_forward_takes_the_operations_that_torch_counts(model):
    spec = from_hf_config(model.config)
    ours = of_layers(spec) + sum(map(flop, (*embedding(spec, SHARD), *head(spec, SHARD))))
    assert ours + counted_otherwise(spec) == pytest.approx(model.flop, rel=SMALL.get(model.model_type, 1e-12))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
@pytest.mark.parametrize("model_type", CONFIGS)
def test_counts_are_those_of_transformers(model_type):
    stored = {model.model_type: model for model in read_counted()}
    assert count(model_type) == stored[model_type]
