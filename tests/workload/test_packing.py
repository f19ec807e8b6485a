"""Packed sequences: moments of lengths, the slowest rank, and the attention that is left."""

import numpy as np
import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.models import preset
from runcast.simulator.models.blocks import layer
from runcast.simulator.models.kernels import flop, visible
from runcast.simulator.models.shard import Shard
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.lengths import Lengths
from runcast.simulator.systems.train_step.packing import packing_of
from runcast.simulator.systems.train_step.resolve import ResolvedTrain
from runcast.simulator.systems.train_step.scenario import Batch


def batch(mean, p99, seq_len, micro, replicas, microbatches):
    sequences = micro * replicas * microbatches
    documents = {"mean": mean} | ({"p99": p99} if p99 else {})
    return Batch.model_validate({"global": sequences, "micro": micro, "seq_len": seq_len, "documents": documents})


def pairs_of_ranks(lengths, batch, ranks):
    """Sums of squares of the lengths that each rank draws, its sequences filled one after another."""
    random, found = np.random.default_rng(0), []
    for _ in range(ranks):
        drawn = np.clip(random.lognormal(lengths.mu, lengths.sigma, 40 * batch.micro * batch.seq_len // 300), 1, None)
        ends = np.cumsum(np.minimum(drawn, batch.seq_len))
        own = np.minimum(drawn, batch.seq_len)[ends <= batch.micro * batch.seq_len]
        found.append((own**2).sum() / max(own.sum(), 1))
    return np.array(found)


@pytest.mark.parametrize("most", [None, 3000])
@pytest.mark.parametrize("power", [1, 2])
def test_moments_are_those_of_what_is_drawn(most, power):
    lengths = Lengths.lognormal(1000.0, 3000.0, most=most)
    drawn = np.array(lengths.draw(400_000, seed=0, batch=0), np.float64)
    assert lengths.moment(power) == pytest.approx((drawn**power).mean(), rel=0.02)


def test_moments_of_a_histogram():
    assert Lengths.histogram([10, 40], [3, 1], most=20).moment(2) == 0.75 * 100 + 0.25 * 400


@pytest.mark.parametrize(("mean", "p99", "seq_len", "replicas"), [(500.0, 1500.0, 8192, 16), (300.0, 900.0, 8192, 64)])
def test_the_slowest_rank_is_that_of_drawn_batches(mean, p99, seq_len, replicas):
    given = batch(mean, p99, seq_len, 2, replicas, 1)
    pairs = pairs_of_ranks(Lengths.lognormal(mean, p99, most=seq_len), given, 40 * replicas).reshape(40, replicas)
    drawn = (pairs.max(axis=1) / pairs.mean()).mean()
    assert packing_of(given, replicas, 1).slowest == pytest.approx(drawn, rel=0.15)


def test_equal_documents_make_equal_ranks():
    found = packing_of(batch(512.0, None, 4096, 1, 64, 1), 64, 1)
    assert (found.length, found.slowest) == (512, 1)


def test_ranks_that_meet_seldom_are_more_alike():
    given = batch(500.0, 2000.0, 8192, 1, 8, 16)
    assert packing_of(given, 8, 1).slowest > packing_of(given, 8, 16).slowest > 1


@pytest.mark.parametrize("mean", [1000.0, 3276.0, 3300.0, 5400.0, 5500.0, 8192.0])
def test_pairs_grow_with_the_length_of_documents(mean):
    (kernel,) = [k for k in layer(preset("llama3-8b"), 0, Shard(1, 8192, document=mean)).all if k.kind == "attention"]
    (whole,) = [k for k in layer(preset("llama3-8b"), 0, Shard(1, 8192)).all if k.kind == "attention"]
    assert flop(kernel) == pytest.approx(flop(whole) * mean / 8192, rel=2e-3)


@pytest.mark.parametrize(("model", "number", "window"), [("gemma3-1b", 0, 512), ("deepseek-v3.2", 4, 2048)])
@pytest.mark.parametrize("mean", [256.0, 3300.0, 5400.0, 5500.0, 8192.0])
def test_tokens_of_documents_see_no_more_than_a_window(model, number, window, mean):
    (kernel,) = [k for k in layer(preset(model), number, Shard(1, 8192, document=mean)).all if k.name == "attention"]
    (whole,) = [k for k in layer(preset(model), number, Shard(1, 8192)).all if k.name == "attention"]
    of_documents = 8192 / mean * visible(mean, True, window) / visible(8192, True, window)
    assert flop(kernel) == pytest.approx(flop(whole) * of_documents, rel=2e-3)


@pytest.mark.parametrize("causal", [True, False])
def test_a_window_that_is_longer_than_documents_changes_nothing(causal):
    shard = Shard(1, 8192, document=300.0)
    assert shard.texts(causal, 1024) == shard.texts(causal)


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ({"attention": "unfused"}, "none, as attention = 'unfused' computes all pairs"),
        ({"model": {"preset": "t5-11b"}}, "none, as t5-11b attends to an encoder"),
        ({"batch": {"global": 8, "seq_len": 512, "documents": {"mean": 600.0}}}, "at most seq_len = 512"),
    ],
)
def test_documents_that_are_not_priced_are_refused(table, fault):
    batch = {"global": 8, "seq_len": 512, "documents": {"mean": 100.0}}
    given = {"kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"}, "batch": batch}
    with pytest.raises(UserError, match=fault):
        ResolvedTrain(check_train(given | table)).dims  # noqa: B018


def test_attention_is_that_of_as_many_texts():
    spec = preset("llama3-8b")
    packed, texts = Shard(2, 4096, document=512.0), Shard(16, 512)
    of_packed, of_texts = ([k for k in layer(spec, 0, shard).all if k.kind == "attention"] for shard in (packed, texts))
    assert [kernel.shape for kernel in of_packed] == [kernel.shape for kernel in of_texts]
    assert flop(of_packed[0]) == flop(of_texts[0])


@pytest.mark.parametrize(("zero", "meetings"), [(1, 4), (3, 1)])
def test_ranks_that_gather_weights_meet_in_every_micro_batch(zero, meetings):
    table = {"global": 32, "seq_len": 4096, "documents": {"mean": 500.0, "p99": 2000.0}}
    step = ResolvedTrain(check_train({
        "kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "llama3-8b"}, "parallel": {"zero": zero},
        "batch": table,
    }))  # fmt: skip
    assert step.packing == packing_of(step.scenario.batch, 8, meetings)
