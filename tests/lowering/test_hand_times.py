"""Steps whose time can be worked out by hand: one kernel of each kind takes time, or one exchange, and nothing else.

F and B of a layer are put on its attention kernels, the weight gradient on that of `proj`, so that embedding, head and
whatever else a layer has take nothing.
"""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.engine import simulate
from runcast.simulator.program import Place, Program
from runcast.simulator.systems.train_step.lower.assembly import Assembly
from runcast.simulator.systems.train_step.lower.held import Holdings
from runcast.simulator.systems.train_step.lower.piece import Tables
from runcast.simulator.systems.train_step.lower.script import Pass
from runcast.simulator.systems.train_step.lower.step import write_piece

from ..examples import examples
from .steps import DENSE, LAYERS, MOE, costs, labels, makespan, ops, program, resolved, run, seconds


def test_one_gpu_takes_the_sum_of_its_kernels():
    step = resolved(micro_batches=2)
    busy = [op for op in range(len(step.program)) if step.program.kind_of(op) != "issue"]
    times = costs(step.program, {kind: i + 1.0 for i, kind in enumerate(step.program.kinds) if kind != "issue"})
    assert simulate(step.program, times).makespan_s == times.work_s[busy].sum()


def test_one_gpu_of_the_catalogue_takes_the_sum_of_its_kernels_and_optimizer():
    wide = {"hidden_size": 4096, "intermediate_size": 14336}
    step = resolved(micro_batches=2, overrides=wide, batch={"seq_len": 4096})
    issue = step.program.is_kind("issue")
    made = simulate(step.program, step.costs)
    assert made.makespan_s == pytest.approx(step.costs.uncontended_s[~issue].sum(), rel=1e-3)


def test_a_slow_host_holds_the_device_up():
    made = program(micro_batches=3)
    assert makespan(made, seconds(1, 0, 0, issue=5.0)) == 2 * 3 * (LAYERS + 2) * 5  # embedding and head too


# Pipelines


@pytest.mark.parametrize(("pipeline", "micro_batches"), [(1, 3), (2, 2), (2, 7), (4, 4), (4, 8)])
@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_bubbles_of_one_stage_per_rank(name, pipeline, micro_batches):
    made = program(pipeline, micro_batches, parallel={"pp": pipeline}, schedule={"name": name})
    forward, backward = LAYERS / pipeline, 3 * LAYERS / pipeline
    expected = (micro_batches + pipeline - 1) * (forward + backward)
    assert makespan(made, seconds(1, 2, 1)) == expected


def test_each_pass_has_a_bubble():
    made = program(2, 6, parallel={"pp": 2}, schedule={"passes": 3})
    expected = 3 * (2 + 2 - 1) * (LAYERS / 2 + 3 * LAYERS / 2)
    assert makespan(made, seconds(1, 2, 1)) == expected


def test_interleaved_chunks_divide_the_bubble():
    made = program(2, 4, parallel={"pp": 2}, schedule={"name": "interleaved", "vpp": 2})
    assert makespan(made, seconds(1, 2, 1)) == (4 * 2 + 2 - 1) * (1 + 3)


def test_sends_lie_on_the_way_of_the_first_micro_batch():
    made = program(4, 8, parallel={"pp": 4})
    assert makespan(made, seconds(1, 2, 0, send_recv=0.25)) > (8 + 3) * 3
    one = program(4, 1, parallel={"pp": 4})
    assert makespan(one, seconds(1, 2, 0, send_recv=0.25)) == 4 * 3 + 2 * 3 * 0.25
    assert makespan(one, seconds(1, 2, 0, send_recv=0.25)) == makespan(
        program(4, 1, parallel={"pp": 4}, overlap={"pp": False}), seconds(1, 2, 0, send_recv=0.25)
    )


def test_stages_without_layers_pass_on_what_comes_in():
    uneven = program(4, 1, parallel={"pp": 4, "layers": [2, 2, 0, 0]})
    assert makespan(uneven, seconds(1, 2, 0, send_recv=0.25)) == 4 * 3 + 2 * 3 * 0.25


def test_weight_gradients_hold_sends_up_unless_they_are_held_back():
    at_once = program(4, 1, parallel={"pp": 4})
    held_back = program(4, 1, parallel={"pp": 4}, overlap={"wgrad": True})
    assert makespan(at_once, seconds(1, 1, 1)) == 4 * 3
    assert makespan(held_back, seconds(1, 1, 1)) == 4 * 2 + 1


@pytest.mark.parametrize(("pipeline", "micro_batches"), [(2, 4), (4, 8)])
def test_zero_bubble_fills_gaps_with_weight_gradients(pipeline, micro_batches):
    made = program(pipeline, micro_batches, parallel={"pp": pipeline}, schedule={"name": "zb-h1"})
    one = LAYERS / pipeline
    bubble = (pipeline - 1) * (one + one - one)  # (p - 1)(F + I - W)
    assert makespan(made, seconds(1, 1, 1)) == micro_batches * 3 * one + bubble


@pytest.mark.parametrize(("name", "pipeline", "own"), [("dualpipe", 4, 8), ("dualpipe-v", 2, 16)])
def test_pairs_of_dualpipe_that_take_a_forward_and_a_backward(name, pipeline, own):
    made = program(pipeline, 8, parallel={"pp": pipeline}, schedule={"name": name})
    forward, backward, weights = 1, 2, 1  # of a stage, which has one layer
    bubble = forward + backward + backward - 3 * weights  # (p / 2 - 1)(FB + B - 3W) for p = 4 stages
    assert makespan(made, seconds(1, 1, 1)) == own * (forward + backward) + bubble


@pytest.mark.parametrize(("layers", "around"), [((3, 1), 0), ((1, 3), 1 + 2)])
def test_the_fullest_stage_sets_the_pace(layers, around):
    made = program(2, 10, parallel={"pp": 2, "layers": layers})
    assert makespan(made, seconds(1, 2, 0)) == 10 * 9 + around


# Data parallelism


def test_the_last_bucket_is_exposed():
    made = program(4, 3, parallel={"zero": 0}, bucket=1_000_000_000)
    assert makespan(made, seconds(1, 2, 1, reduce__gradients=7.0)) == 3 * LAYERS * 4 + 7


def test_buckets_travel_beside_the_last_backward():
    made = program(4, 3, parallel={"zero": 3, "reshard": False, "sync_each_microbatch": False})
    alone = 3 * LAYERS * 4
    assert makespan(made, seconds(1, 2, 1, reduce__gradients=2.0)) == alone + 2  # shorter than a layer: the last one
    longer = makespan(made, seconds(1, 2, 1, reduce__gradients=5.0))
    assert longer == alone - (LAYERS - 1) * 3 + LAYERS * 5  # all stand behind each other from the first on


@pytest.mark.parametrize(("zero", "bucket", "messages"), [(0, 10**9, 1), (0, 50_000, 4), (1, 50_000, 1)])
def test_late_gradients_travel_in_buckets_of_torch_or_in_one_message(zero, bucket, messages):
    late = program(4, 3, parallel={"zero": zero}, bucket=bucket, overlap={"dp": False})
    sent = makespan(late, seconds(1, 2, 1, reduce__gradients=2.0)) - 3 * LAYERS * 4
    assert sent == 2 * messages


def test_accumulated_gradients_travel_once():
    times = seconds(1, 2, 0, reduce__gradients=4.0)
    steps = [makespan(program(4, m, parallel={"zero": 0}), times) for m in (1, 2, 3)]
    assert np.diff(steps).tolist() == [3 * LAYERS] * 2


def test_new_weights_come_under_the_first_forward_or_behind_the_step():
    times = seconds(4, 8, 0, gather__weights=1.0)
    early = program(4, 2, parallel={"zero": 1})
    late = program(4, 2, parallel={"zero": 1}, overlap={"params": False})
    assert makespan(early, times) == 2 * LAYERS * 12 + 1
    assert makespan(late, times) == 2 * LAYERS * 12 + LAYERS
    assert makespan(early, seconds(1, 2, 0, gather__weights=3.0)) == 2 * LAYERS * 3 + LAYERS * 3 - (LAYERS - 1)


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_perfect_prefetch_exposes_the_first_gather_and_the_last_reduction(micro_batches):
    made = program(4, micro_batches, parallel={"zero": 3})
    alone = micro_batches * LAYERS * 4
    assert makespan(made, seconds(1, 2, 1, gather__weights=1.0, reduce__gradients=3.0)) == alone + 1 + 3


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_without_prefetch_every_gather_is_exposed(micro_batches):
    made = program(4, micro_batches, parallel={"zero": 3, "prefetch": 0})
    alone = micro_batches * LAYERS * 4
    assert makespan(made, seconds(1, 2, 1, gather__weights=1.0)) == alone + micro_batches * 2 * LAYERS


def test_hybrid_sharding_takes_both_exchanges_behind_the_last_layer():
    made = program(8, 1, parallel={"zero": 3, "shard": 4})
    times = seconds(1, 2, 1, reduce_scatter=1.5, gather__weights=0.0, agree__on__norm=0.0, all_reduce=1.25)
    assert makespan(made, times) == LAYERS * 4 + 1.5 + 1.25


def test_an_optimizer_on_the_host_waits_for_copies_both_ways():
    made = program(2, 1, offload={"optimizer": True})
    assert makespan(made, seconds(1, 2, 0, d2h=5.0, host_adam=7.0, h2d=3.0)) == 3 * LAYERS + 5 + 7 + 3
    assert ops(made, kind="adamw") == []


# Recomputation


@pytest.mark.parametrize(("layers", "again"), [(None, LAYERS), (1, 2), (2, LAYERS)])
def test_full_recomputation_takes_the_forward_once_more(layers, again):
    recompute = {"mode": "full"} | ({"layers": layers} if layers else {})
    made = program(2, 3, parallel={"pp": 2}, recompute=recompute)
    plain = program(2, 3, parallel={"pp": 2})
    names = {*labels(plain)} - {"issue"}
    of_layers = [
        {name: ((labels(one) == name) & (one.tags["layer"] >= 0)).sum() for name in names} for one in (plain, made)
    ]
    forward = {*labels(plain)[(plain.tags["action"] == 0) & (plain.tags["layer"] >= 0)]} - {"issue"}
    share = again / LAYERS
    assert of_layers[1] == {
        label: round(count * (1 + share * (label in forward))) for label, count in of_layers[0].items()
    }


@pytest.mark.parametrize("tp", [1, 2])
def test_recomputation_that_stops_early_leaves_out_the_last_product_and_what_is_behind(tp):
    made, whole = (
        program(2, 3, parallel={"tp": tp}, recompute={"mode": "full", "early_stop": early}) for early in (True, False)
    )
    fewer = Counter(labels(whole).tolist()) - Counter(labels(made).tolist())
    each = 3 * LAYERS
    assert fewer == Counter({"down": each, "residual": each} | ({"tp reduce_scatter": each} if tp > 1 else {}))


@pytest.mark.parametrize("model", [MOE, {"preset": "gemma2-9b", "overrides": DENSE["overrides"]}])
def test_recomputation_does_not_stop_where_more_is_needed(model):
    early = program(2, 3, model, recompute={"mode": "full", "early_stop": True})
    assert labels(early).tolist() == labels(program(2, 3, model, recompute={"mode": "full"})).tolist()


def test_selective_recomputation_repeats_what_it_names():
    made = program(2, 3, recompute={"mode": "selective", "modules": ["core_attn"]})
    assert len(ops(made, label="attention")) == 2 * 3 * LAYERS
    assert len(ops(made, label="qkv")) == 3 * LAYERS
    assert makespan(made, seconds(1, 2, 1)) == 3 * LAYERS * 5


def test_recomputed_attention_repeats_its_ring():
    given = {"parallel": {"cp": 4}, "recompute": {"mode": "selective", "modules": ["core_attn"]}}
    made, plain = program(4, 1, **given), program(4, 1, parallel={"cp": 4})
    assert len(ops(made, lane="cp")) - len(ops(plain, lane="cp")) == 3 * LAYERS


def test_recomputed_experts_repeat_their_exchanges():
    made = program(4, 1, MOE, parallel={"ep": 4}, recompute={"mode": "selective", "modules": ["moe"]})
    assert len(ops(made, lane="ep")) == 6 * LAYERS
    for label in ("topk", "experts", "unpermute"):
        assert len(ops(made, label=label)) == 2 * LAYERS
    whole = program(4, 1, MOE, parallel={"ep": 4}, recompute={"mode": "full"})
    assert len(ops(whole, lane="ep")) == 6 * LAYERS


@pytest.mark.parametrize(("sharded", "kinds"), [(True, ["all_gather", "reduce_scatter"]), (False, ["all_reduce"])])
def test_a_recomputed_network_exchanges_its_tokens_again(sharded, kinds):
    given = {"parallel": {"tp": 2, "sequence_parallel": sharded}}
    made = program(2, 1, **given, recompute={"mode": "selective", "modules": ["mlp"]})
    more = Counter(labels(made).tolist()) - Counter(labels(program(2, 1, **given)).tolist())
    assert more == dict.fromkeys(("up", "activation", "down", *(f"tp {kind}" for kind in kinds)), LAYERS)


def test_norm_and_network_are_recomputed_before_the_gradients_that_read_them():
    made = program(2, 1, parallel={"tp": 2}, recompute={"mode": "selective", "modules": ["mlp", "layernorm"]})
    order = [label for label in labels(made).tolist() if label in ("mlp_norm", "up", "up_dgrad", "input_norm")]
    assert order[2 * LAYERS :][LAYERS:] == ["mlp_norm", "up", "up_dgrad", "input_norm"] * LAYERS


# Pairs


def pair(step, rank=0, forward=0, backward=0) -> Program:
    """A forward and a backward of a stage that overlap, alone."""
    tables = Tables()
    alone = Assembly(tables, [Place("rank", (0,))])
    passes = Pass(forward, "F"), Pass(backward, "B")
    piece = write_piece(step.plan, Holdings(step.plan, rank), passes, tables, {})
    alone.stamp(piece, 0, (forward, 0, "F"), (backward, 1, "B"))
    return alone.program()


CELLS = ("Af", "Df", "Mf", "Cf", "Cb", "Mb", "Wm", "Db", "Ab", "Wa")
LABELS = {
    "Af": "attention", "Df": "dispatch", "Mf": "experts", "Cf": "combine", "Cb": "combine_back",
    "Mb": "experts_dgrad", "Wm": "experts_wgrad", "Db": "dispatch_back", "Ab": "attention_dgrad", "Wa": "proj_wgrad",
}  # fmt: skip


def longest_path(layers, time):
    """Of the graph of a pair: two streams in their issue order, and what each cell needs."""
    streams = {"comm": ("Cb", "Df", "Db", "Cf"), "comp": ("Af", "Mb", "Wm", "Mf", "Ab", "Wa")}
    needs = {"Df": "Af", "Mb": "Cb", "Db": "Mb", "Mf": "Df", "Cf": "Mf", "Ab": "Db"}
    across = {"Af": "Cf", "Cb": "Ab"}  # of the layer before
    edges = {(cell, i): [] for i in range(layers) for cell in CELLS}
    for stream in streams.values():
        order = [(cell, i) for i in range(layers) for cell in stream]
        for before, after in pairwise(order):
            edges[after].append(before)
    for i in range(layers):
        for cell, need in needs.items():
            edges[cell, i].append((need, i))
        for cell, need in across.items():
            if i:
                edges[cell, i].append((need, i - 1))
    end: dict = {}

    def at(node):
        if node not in end:
            end[node] = max(map(at, edges[node]), default=0.0) + time[node[0]]
        return end[node]

    return max(map(at, edges))


@examples(60)
@given(st.lists(st.integers(0, 9), min_size=len(CELLS), max_size=len(CELLS)))
def test_a_pair_takes_the_longest_path_of_its_graph(times):
    step = PAIRS
    time = dict(zip(CELLS, map(float, times), strict=True))
    made = pair(step)
    took = makespan(made, {LABELS[cell]: value for cell, value in time.items()} | {"unpermute": 0.0})  # of kind combine
    assert took == longest_path(LAYERS, time)


PAIRS = resolved(4, 2, MOE, parallel={"ep": 4}, overlap={"wgrad": True})


def test_without_delay_weight_gradients_hold_tokens_up():
    time = {"Cb": 1, "Mb": 2, "Wm": 4, "Db": 8, "Ab": 1}
    given = {LABELS[cell]: float(value) for cell, value in time.items()}
    made = pair(resolved(4, 2, MOE, parallel={"ep": 4}))
    assert makespan(made, given) == LAYERS * (1 + 2 + 4 + 8 + 1)
    assert makespan(pair(PAIRS), given) == LAYERS * (1 + 2 + 8 + 1)


# Slow nodes


def test_a_slow_node_slows_kernels_and_not_the_wire():
    slow = resolved(16, 1, parallel={"pp": 2}, slow=[{"node": 1, "factor": 2.0}])
    even = resolved(16, 1, parallel={"pp": 2})
    ratio = slow.costs.work_s / np.where(even.costs.work_s, even.costs.work_s, 1)
    place = np.array([lane.place for lane in slow.program.lanes])[
        slow.program.lanes_of.values[slow.program.lanes_of.start[:-1]]
    ]
    own = slow.program.is_kind("gemm", "attention", "issue", "adamw")
    assert np.allclose(ratio[own], np.where(place[own] == 1, 2.0, 1.0))
    wire = slow.program.is_kind("send_recv", "reduce_scatter", "all_gather") & (even.costs.work_s > 0)
    assert np.allclose(ratio[wire], 1.0)


def test_multi_token_prediction_is_one_more_layer_and_loss():
    made = run(program(2, 2, MTP, parallel={"pp": 2}, overrides=SMALL_V3), seconds(1, 2, 0))
    assert len(ops(made.program, label="logits")) == 2 * 2
    assert made.makespan_s == 2 * (3 * 3) + 2 * 3
    without = {**MTP, "mtp": False}
    assert makespan(program(2, 2, without, parallel={"pp": 2}, overrides=SMALL_V3), seconds(1, 2, 0)) == 3 * 6


MTP = {"preset": "deepseek-v3", "overrides": {}}
SMALL_V3 = {"num_hidden_layers": 4, "first_k_dense_replace": 1, "n_routed_experts": 8}
