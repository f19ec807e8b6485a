"""Memory of a training step, worked out by hand for a small dense model."""

from dataclasses import replace

import pytest
from runcast.simulator.engine import simulate
from runcast.simulator.models.states import activation_bytes
from runcast.simulator.predict import simulate as predict
from runcast.simulator.systems.train_step.memory import memory_table, rank_memory, static_bytes
from runcast.simulator.systems.train_step.report import make_train_report
from runcast.simulator.systems.train_step.resolve import ResolvedTrain
from runcast.simulator.systems.train_step.text import words

from ..lowering.steps import (
    DENSE,
    DIM,
    EXPERT_INTER,
    EXPERTS,
    HEADS,
    HIDDEN,
    INTER,
    KV_HEADS,
    LAYER,
    LAYERS,
    MOE,
    SEQ,
    TABLE,
    WORDS,
    ops,
    resolved,
)

PARAMETERS = LAYERS * LAYER + 2 * TABLE + HIDDEN
WIDTH = DIM * (HEADS + 2 * KV_HEADS)
KEPT = {  # bytes per token of a layer: everything that a product, a norm or the activation reads later, in bf16
    "layernorm": 2 * HIDDEN * 2,
    "qkv": WIDTH * 2,
    "core_attn": HEADS * 4,  # log-sum-exps
    "proj": HEADS * DIM * 2,
    "residual": 2 * HIDDEN * 2,
    "mlp": 2 * INTER * 2,
    "activation": INTER * 2,
}
ENDS = {"embedding": HIDDEN * 2, "layernorm": HIDDEN * 2, "head": WORDS * 4}


def peak(step, rank=0):
    return rank_memory(step, simulate(step.program, step.costs))[rank]


def activations(step, rank=0):
    return {name.removeprefix("activations: "): size for name, size in peak(step, rank).held if "activations" in name}


@pytest.mark.parametrize(
    ("zero", "weights", "gradients", "optimizer"), [(0, 1, 1, 1), (1, 1, 1, 4), (2, 1, 4, 4), (3, 4, 4, 4)]
)
def test_states_are_sharded_stage_by_stage(zero, weights, gradients, optimizer):
    found = static_bytes(resolved(4, 2, parallel={"zero": zero}), 0)
    assert found["weights"] == pytest.approx(2 * PARAMETERS / weights, abs=8)
    assert found["gradients"] == pytest.approx(4 * PARAMETERS / gradients, abs=8)
    assert found["master weights"] == pytest.approx(4 * PARAMETERS / optimizer, abs=8)
    assert found["optimizer moments"] == pytest.approx(8 * PARAMETERS / optimizer, abs=8)


def test_gradients_that_wait_for_the_last_micro_batch_are_whole():
    found = static_bytes(resolved(4, 2, parallel={"zero": 3, "sync_each_microbatch": False}), 0)
    assert found["gradients"] == 4 * PARAMETERS
    assert "gradients on their way" not in found


def test_gradients_of_later_passes_add_to_the_shards_of_earlier_ones():
    tables = {"parallel": {"pp": 2, "zero": 3, "reshard": False, "sync_each_microbatch": False}}
    one, two = (static_bytes(resolved(4, 4, schedule={"passes": n}, **tables), 0)["gradients"] for n in (1, 2))
    assert two == one + one / 2


@pytest.mark.parametrize("model", [DENSE, MOE])
def test_one_rank_shards_nothing_whatever_zero_says(model):
    """What nobody shares is neither gathered nor on its way."""
    levels = [static_bytes(resolved(2, 2, model, parallel={"tp": 2, "zero": zero}), 0) for zero in (1, 2, 3)]
    assert levels[1:] == levels[:1] * 2


@pytest.mark.parametrize(("prefetch", "units"), [(0, 1), (1, 2), (2, 3)])
def test_gathered_weights_are_those_at_work_and_those_ahead(prefetch, units):
    found = static_bytes(resolved(4, 2, parallel={"zero": 3, "prefetch": prefetch}), 0)
    largest = [LAYER + TABLE + HIDDEN, LAYER + TABLE, LAYER, LAYER]
    assert found["gathered weights"] == 2 * sum(largest[:units])
    assert found["gradients on their way"] == (2 + 4) * largest[0]


@pytest.mark.parametrize(("ep", "experts"), [(2, EXPERTS // 2), (4, 0)])
def test_experts_that_no_other_rank_holds_are_neither_gathered_nor_on_their_way(ep, experts):
    step = resolved(4, 2, MOE, parallel={"zero": 3, "ep": ep})
    found, layer = static_bytes(step, 0), step.plan.parameters_of(0).dense + experts * 3 * HIDDEN * EXPERT_INTER
    last, first = layer + TABLE + HIDDEN, layer + TABLE
    assert (found["gathered weights"], found["gradients on their way"]) == (2 * (last + first), 6 * last)


def test_types_of_states_are_those_asked_for():
    precision = {"gradients": "bf16", "moments": "bf16", "master": False}
    found = static_bytes(resolved(1, precision=precision, parallel={"zero": 0}), 0)
    assert (found["weights"], found["gradients"], found["optimizer moments"]) == (*[2 * PARAMETERS] * 2, 4 * PARAMETERS)
    assert "master weights" not in found


def test_copies_in_8_bits_are_of_layers_alone_and_beside_bf16():
    found = static_bytes(resolved(1, precision={"compute": "fp8"}), 0)
    assert (found["weights"], found["quantized copies"]) == (2 * PARAMETERS, 2 * LAYERS * LAYER)
    sharded = resolved(4, precision={"compute": "fp8"}, parallel={"zero": 3})
    assert "quantized copies" not in static_bytes(sharded, 0)
    assert sharded.plan.types.weights == 2


def test_layers_may_have_weights_in_8_bits_alone():
    given = {"precision": {"compute": "fp8-block", "weights": "fp8"}, "parallel": {"zero": 1}}
    step = resolved(4, **given)
    found = static_bytes(step, 0)
    assert (found["weights"], found["quantized copies"]) == (2 * (2 * TABLE + HIDDEN), 2 * LAYERS * LAYER)
    assert found["master weights"] == pytest.approx(PARAMETERS, abs=8)  # 4 bytes on each of 4 ranks
    sizes = [int(step.program.bytes[op]) for op in ops(step.program, label="gather weights")]
    assert sizes == [LAYER + 2 * TABLE, LAYER, LAYER, LAYER + 2 * (TABLE + HIDDEN)]


def test_tensor_and_pipeline_parallel_ranks_hold_their_part():
    split = static_bytes(resolved(4, 2, parallel={"tp": 2, "pp": 2, "zero": 0}), 0)
    norms, last_norm = 2 * HIDDEN, HIDDEN
    layers = LAYERS // 2 * ((LAYER - norms) / 2 + norms)
    assert split["weights"] == 2 * (layers + TABLE / 2)
    last = static_bytes(resolved(4, 2, parallel={"tp": 2, "pp": 2, "zero": 0}), 1)
    assert last["weights"] == split["weights"] + 2 * last_norm


def test_experts_are_spread_over_expert_parallel_ranks():
    one, four = (static_bytes(resolved(4, 1, MOE, parallel={"ep": ep, "zero": 0}), 0) for ep in (1, 4))
    assert one["weights"] - four["weights"] == 2 * LAYERS * EXPERTS * 3 / 4 * 3 * HIDDEN * 32


def test_tokens_on_their_way_to_experts_are_as_wide_as_what_experts_read():
    """Nemotron 3 Super: 1,024 of 4,096 values, for each of 22 experts, there and back in bf16."""
    latent = {"preset": "nemotron-3-super", "overrides": {}}
    assert static_bytes(resolved(2, 1, latent, parallel={"ep": 2}), 0)["exchange buffers"] == SEQ * 22 * 1024 * (2 + 2)


def test_a_tied_embedding_is_a_copy_only_where_the_first_stage_is_elsewhere():
    tied = {"tie_word_embeddings": True}
    apart = resolved(2, 4, parallel={"pp": 2, "zero": 0}, overrides=tied)
    assert static_bytes(apart, 1)["weights"] == 2 * (2 * LAYER + TABLE + HIDDEN)
    together = resolved(2, 4, parallel={"pp": 2, "zero": 0}, schedule={"name": "zb-v"}, overrides=tied)
    assert static_bytes(together, 0)["weights"] == 2 * (2 * LAYER + TABLE + HIDDEN)


def test_dualpipe_holds_two_stages():
    plain = resolved(2, 4, parallel={"pp": 2, "zero": 0})
    both = resolved(2, 4, parallel={"pp": 2, "zero": 0}, schedule={"name": "dualpipe"})
    total = sum(static_bytes(plain, rank)["weights"] for rank in (0, 1))
    assert [static_bytes(both, rank)["weights"] for rank in (0, 1)] == [total, total]


def test_one_micro_batch_keeps_what_the_backward_reads():
    parts = {part: LAYERS * SEQ * size for part, size in KEPT.items()}
    for part, size in ENDS.items():
        parts[part] = parts.get(part, 0) + SEQ * size
    assert activations(resolved(1, 3)) == pytest.approx(parts)


def test_full_recomputation_keeps_what_enters_a_layer_and_one_layer_at_work():
    step = resolved(1, 3, recompute={"mode": "full"})
    whole = SEQ * sum(KEPT.values())
    entering = SEQ * HIDDEN * 2
    assert activations(step)["residual"] == LAYERS * entering
    assert set(activations(step)) == {"residual", *ENDS}
    assert static_bytes(step, 0)["layer at work"] == whole - entering + SEQ * KEPT["mlp"]


@pytest.mark.parametrize(("logits", "softmax", "beside"), [(12, 4, 8), (6, 4, 2), (2, 2, 0), (0, 0, 0)])
def test_a_loss_needs_the_bytes_per_logit_that_are_stated(logits, softmax, beside):
    words = SEQ * WORDS
    step = resolved(1, 3, memory={"logits": logits})
    layer = static_bytes(resolved(1, 3, memory={"logits": 0}), 0)["layer at work"]
    assert (activations(step).get("head", 0), static_bytes(step, 0)["layer at work"]) == (
        softmax * words, max(beside * words, layer),
    )  # fmt: skip


def test_what_software_keeps_may_all_be_stated():
    said = {"gathered": True, "gate": True, "norms": 4, "repeated": True, "logits": 12}
    plain, all_of_it = (peak(resolved(2, 1, parallel={"tp": 2}, memory=of)).peak_bytes for of in ({}, said))
    assert all_of_it > plain


def test_gradients_are_there_where_a_class_of_replicas_has_several_micro_batches():
    said = {"memory": {"fresh": True}, "batch": {"seq_len": 4096}, "parallel": {"zero": 0}}
    even, uneven = (peak(resolved(2, number, **said)) for number in (1, 2))
    assert ("gradients" in dict(even.held), "gradients" in dict(uneven.held)) == (False, True)


def test_gradients_that_the_backward_makes_are_there_when_activations_are_gone():
    kept, fresh = (peak(resolved(1, 1, memory={"fresh": made})) for made in (False, True))
    logits, layer = SEQ * WORDS * 2, SEQ * KEPT["mlp"]
    freed = min(4 * PARAMETERS, kept.activation_bytes + logits - layer)
    assert fresh.peak_bytes == pytest.approx(kept.peak_bytes - 1.05 * freed)


def test_gradients_of_earlier_micro_batches_are_there():
    one, two = (peak(resolved(1, number, memory={"fresh": True}, batch={"seq_len": 4096})) for number in (1, 2))
    assert ("gradients" in dict(one.held), dict(two.held)["gradients"]) == (False, 4 * PARAMETERS)


@pytest.mark.parametrize(("gpus", "parallel", "ranks"), [(1, {}, 1), (2, {"tp": 2}, 2), (2, {"cp": 2}, 2)])
def test_logits_of_a_micro_batch_are_at_work_where_they_are_more_than_a_layer(gpus, parallel, ranks):
    found = static_bytes(resolved(gpus, 3, parallel=parallel), 0)
    assert found["layer at work"] == SEQ * WORDS * 2 / ranks


def test_a_stage_without_a_head_has_a_layer_at_work():
    found = static_bytes(resolved(2, 4, parallel={"pp": 2}), 0)
    assert found["layer at work"] == SEQ * KEPT["mlp"]


@pytest.mark.parametrize(
    ("schedule", "at_once"), [("1f1b", (2, 1)), ("gpipe", (6, 6)), ("zb-h1", (2, 2)), ("zb-h2", (3, 3))]
)
def test_ranks_hold_as_many_micro_batches_as_the_schedule_says(schedule, at_once):
    step = resolved(2, 6, parallel={"pp": 2}, schedule={"name": schedule})
    for rank, count in enumerate(at_once):
        assert activations(step, rank)["mlp"] == count * LAYERS / 2 * SEQ * KEPT["mlp"]


def test_dualpipe_holds_one_micro_batch_more_than_ranks():
    """Ranks at the ends begin their last forward of the warm-up beside a backward, which makes room for it."""
    step = resolved(4, 8, parallel={"pp": 4}, schedule={"name": "dualpipe"})
    assert [activations(step, rank)["mlp"] / (SEQ * KEPT["mlp"]) for rank in range(4)] == pytest.approx([4, 5, 5, 4])


@pytest.mark.parametrize("level", ["kernels", "coarse"])
def test_a_forward_beside_a_backward_takes_the_room_that_this_frees(level):
    """On one rank: two micro-batches are at work at once; one is held, and a layer of the other."""
    said = {"level": level, "memory": {"logits": 0}}
    step, one = resolved(1, 4, MOE, schedule={"name": "interleaved-overlap"}, **said), resolved(1, 1, MOE, **said)
    more = static_bytes(step, 0)["layer at work"] - static_bytes(one, 0)["layer at work"]
    assert (activations(step), more) == (activations(one), activation_bytes(step.plan.layer(0)))


@pytest.mark.parametrize("schedule", [{"name": "interleaved-overlap", "vpp": 2}, {"name": "dualpipe-v"}])
@pytest.mark.parametrize("share", [0.01, 0.5])
def test_offloading_makes_no_pair_hold_more(schedule, share):
    plain, away = (
        peak(resolved(2, 8, parallel={"pp": 2}, schedule=schedule, offload={"activations": of})).activation_bytes
        for of in (0.0, share)
    )
    assert away <= plain * 1.02


def test_offload_halves_what_lies_there_long_enough():
    given = {"schedule": {"name": "gpipe"}}
    plain, away = resolved(1, 8, **given), resolved(1, 8, **given, offload={"activations": 1.0})
    ratio = activations(away)["mlp"] / activations(plain)["mlp"]
    assert ratio <= 0.5


def test_an_optimizer_on_the_host_leaves_the_device():
    found = static_bytes(resolved(1, offload={"optimizer": True}), 0)
    assert {"master weights", "optimizer moments"}.isdisjoint(found)


def test_adapters_have_states_and_the_base_has_weights():
    step = resolved(1, lora={"rank": 4, "targets": ["qkv"]}, parallel={"zero": 0})
    adapters = LAYERS * 4 * (HIDDEN + WIDTH)
    found = static_bytes(step, 0)
    assert found["weights"] == 2 * (PARAMETERS + adapters)
    assert (found["gradients"], found["optimizer moments"]) == (4 * adapters, 8 * adapters)


MATRICES = HIDDEN * WIDTH + HEADS * DIM * HIDDEN + 3 * HIDDEN * INTER  # of a layer: those with a product


@pytest.mark.parametrize(("base", "each"), [("nf4", 0.5625), ("nf4-double", 0.515869140625)])
@pytest.mark.parametrize(("zero", "ranks"), [(0, 1), (3, 2)])
def test_a_packed_base_takes_four_bits_and_its_scales(base, each, zero, ranks):
    given = {"parallel": {"zero": zero}, "lora": {"rank": 4}}
    wide = static_bytes(resolved(ranks, 2, **given), 0)
    packed = static_bytes(resolved(ranks, 2, **given | {"lora": {"rank": 4, "base": base}}), 0)

    saved = LAYERS * MATRICES * (2 - each) / ranks
    assert wide["weights"] - packed["weights"] == pytest.approx(saved, abs=1)


def test_a_packed_matrix_is_there_in_16_bits_while_its_product_runs():
    given = {"lora": {"rank": 4}, "recompute": {"mode": "full"}}
    wide, packed = (
        static_bytes(resolved(1, **given | {"lora": {"rank": 4} | base}), 0) for base in ({}, {"base": "nf4"})
    )

    assert packed["layer at work"] - wide["layer at work"] == 2 * HIDDEN * 2 * INTER  # gate and up, the largest


def test_context_and_fragmentation_are_the_stacks():
    step = resolved(1)
    found = dict(peak(step).held)
    assert found["context and libraries"] == step.profile.value("memory.context_bytes")
    rest = sum(size for name, size in found.items() if name != "fragmentation")
    assert found["fragmentation"] == pytest.approx(rest * step.profile.value("memory.fragmentation"))


def test_a_step_that_does_not_fit_names_stage_micro_batch_and_owner():
    step = resolved(2, 6, parallel={"pp": 2})
    report = make_train_report(step, simulate(step.program, step.costs))
    assert dict(words(report).rows)["memory"].startswith("fits: pipeline rank ")
    small = replace(report, memory=tuple(replace(rank, device_bytes=10**9) for rank in report.memory))
    assert not small.fits
    memory = dict(words(small).rows)["memory"]
    assert "DOES NOT FIT: pipeline rank 0 needs 1.47 GiB of 954 MiB, from micro-batch 1 on" in memory
    assert memory.endswith("most of it context and libraries")
    assert predict(step.scenario).report.to_json()["fits"]


def test_ranks_share_one_error_so_the_fullest_decides_how_likely_all_fit():
    step = resolved(2, 6, parallel={"pp": 2})
    report = make_train_report(step, simulate(step.program, step.costs))
    full, roomy = report.memory
    room = full.interval_bytes[1]  # the 95 % quantile of the first rank, and far more than the second needs
    tight = replace(report, memory=(replace(full, device_bytes=round(room)), replace(roomy, device_bytes=10**12)))

    assert tight.fits_probability == pytest.approx(0.95)
    assert dict(words(tight).rows)["memory"].endswith("; fits with 95%)")


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved-overlap"])
def test_the_micro_batch_is_that_with_which_the_device_is_full(schedule):
    """Room for two micro-batches of the first rank and a half: the third one's forward does not fit."""
    plan = {"parallel": {"pp": 4}, "schedule": {"name": schedule}, "batch": {"seq_len": 2048}}
    step = resolved(4, 8, **plan)
    run = simulate(step.program, step.costs)
    held = memory_table(step, run, 0)
    room = held.total.min() + 2.5 * held.total.diff().max()
    scenario = {"base": "dgx-h100", "gpus_per_node": 4, "device": {"base": "h100", "memory": f"{round(room)} B"}}
    tight = ResolvedTrain(step.scenario.model_copy(update={"cluster": scenario}))

    assert rank_memory(tight, run)[0].microbatch == 2


@pytest.mark.parametrize(
    ("zero", "memory", "each"),
    [(1, {}, 0), (1, {"gradients": 2.5}, 2.5), (0, {"gradients": 2.0, "buckets": True}, 4)],
)
def test_gradients_beside_those_that_are_kept(zero, memory, each):
    found = static_bytes(resolved(4, 2, parallel={"zero": zero}, memory=memory), 0)
    assert found.get("gradients on their way", 0) == each * PARAMETERS
