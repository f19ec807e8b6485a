"""Activations on the host, against closed forms, a recurrence, and laws that hold for every plan.

F and B of a layer are put on its attention kernels, so a layer's forward takes `forward`, its backward `backward`, and
each copy of what a layer keeps `copy`.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.base.errors import UserError
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.program import validate
from runcast.simulator.report.report import lines
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.host_memory import copied_bytes
from runcast.simulator.systems.train_step.lower.kept import activation_bytes, activation_parts, offload_bytes
from runcast.simulator.systems.train_step.memory import rank_memory
from runcast.simulator.systems.train_step.resolve import ResolvedTrain
from runcast.simulator.systems.train_step.system import predict
from runcast.simulator.systems.train_step.text import words
from runcast.simulator.timeline.memory import peaks

from ..examples import examples
from .steps import HIDDEN, SEQ, ops, resolved, run, seconds
from .test_properties import SECONDS, steps

DEEP = 12  # layers
LAST_NORM = SEQ * HIDDEN * 2


def offloading(gpus=1, micro_batches=1, share=1.0, slots=2, layers=DEEP, **tables):
    """A step that offloads."""
    given = {"activations": share, "slots": slots} if share else {}
    return resolved(gpus, micro_batches, **({"overrides": {"num_hidden_layers": layers}, "offload": given} | tables))


def took(step, forward, backward, copy):
    return run(step.program, seconds(forward, backward, 0.0, d2h=copy, h2d=copy))


def each_layer(step, stage=0):
    """Bytes that leave of a layer; the embedding's are apart."""
    return min(offload_bytes(step.plan, stage).values())


def stays(step, stage=0):
    return activation_bytes(step.plan, stage) - sum(offload_bytes(step.plan, stage).values())


# One rank without a pipeline


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("copy", [0.25, 1.0])
def test_copies_that_are_as_fast_as_a_layer_take_no_time_and_leave_two_layers_there(copy, micro_batches):
    step = offloading(micro_batches=micro_batches)
    made = took(step, 1.0, 2.0, copy)
    embedded = activation_parts(step.plan, 0)["embedding"]
    assert made.makespan_s == micro_batches * DEEP * 3
    assert peaks(made)[0].bytes == stays(step) + 2 * each_layer(step) + embedded


@pytest.mark.parametrize("copy", [4.0, 8.0, 100.0])
def test_copies_that_are_too_slow_bound_the_step(copy):
    """All layers but two go out and come in, one after another, between the first forward and the last backward."""
    made = took(offloading(), 1.0, 2.0, copy)
    assert made.makespan_s == 1 + 2 * (DEEP - 2) * copy + 2


def test_one_slot_is_no_overlap():
    """A layer leaves before the next one begins, then copies and backwards alternate."""
    away = DEEP - 1
    out = away * 1 + (away - 1) * 1.5
    assert took(offloading(slots=1), 1.0, 2.0, 1.5).makespan_s == out + (1 + 2) + away * (1.5 + 2)


def test_slots_for_all_layers_keep_them_there():
    step = offloading(slots=DEEP)
    assert ops(step.program, label="offload") == []
    assert peaks(took(step, 1.0, 2.0, 1.0))[0].bytes == activation_bytes(step.plan, 0)


def test_layers_come_back_beside_the_backward_before_theirs():
    """With two slots, and copies that are as long: from the start of the backward of the layer behind."""
    made = took(offloading(), 1.0, 2.0, 2.0)
    layer = made.program.tags["layer"]
    backward = {int(layer[op]): op for op in ops(made.program, label="attention_dgrad")}
    for op in ops(made.program, label="onload"):
        behind = backward[int(layer[op]) + 1]
        assert made.start_s[op] == made.start_s[behind]


def test_a_share_of_each_layer_leaves():
    step = offloading(share=0.25)
    moved = {int(step.program.bytes[op]) for op in ops(step.program, label="offload")}
    parts = activation_parts(step.plan, 0)
    layer = (activation_bytes(step.plan, 0) - parts["embedding"] - parts["head"] - LAST_NORM) / DEEP
    assert moved == {round(0.25 * layer), round(0.25 * (layer + parts["embedding"]))}


def by_hand(order, layers, slots, forward, backward, copy):
    """When a rank is done with its actions, (kind, micro-batch) in a row, layer by layer."""
    units = [(kind, mb, n) for kind, mb in order for n in (range(layers) if kind == "F" else reversed(range(layers)))]
    place = {unit: i for i, unit in enumerate(units)}
    backwards = [unit for unit in units if unit[0] == "B"]
    frees = {unit: backwards[i - slots] if i >= slots else None for i, unit in enumerate(backwards)}
    end, gone, out, now, lane_out, lane_in = {}, {}, [], 0.0, 0.0, 0.0
    for kind, mb, n in units:
        slot = frees["B", mb, n]
        moves = slot is not None and place[slot] > place["F", mb, n]
        if kind == "F":
            now = max(now, out[-slots] if moves and len(out) >= slots else 0.0) + forward
            if moves:
                lane_out = max(lane_out, now) + copy
                gone[mb, n] = lane_out
                out.append(lane_out)
        else:
            if moves:
                lane_in = max(lane_in, gone[mb, n], end[slot]) + copy
                now = max(now, lane_in)
            now += backward
        end[kind, mb, n] = now
    return now


@examples(60)
@given(
    name=st.sampled_from(["gpipe", "1f1b"]),
    micro_batches=st.integers(1, 3),
    layers=st.integers(1, 6),
    slots=st.integers(1, 4),
    times=st.tuples(*[st.integers(1, 9)] * 3),
)
def test_a_rank_takes_what_its_order_and_its_slots_allow(name, micro_batches, layers, slots, times):
    step = offloading(micro_batches=micro_batches, slots=slots, layers=layers, schedule={"name": name})
    order = [(action.kind, action.microbatch) for cell in step.grid.rows[0] for action in cell]
    expected = by_hand(order, layers, slots, *times)
    assert took(step, *map(float, times)).makespan_s == expected


# Pipelines


def test_ranks_of_a_pipeline_hold_two_layers_each_way():
    """What is made and what leaves; what is used next and what comes. Before, rank r held 4 - r micro-batches."""
    step = offloading(4, 8, layers=16, parallel={"pp": 4})
    made = took(step, 1.0, 2.0, 1.0)
    held = [peaks(made)[rank].bytes for rank in range(4)]
    layer, embedded = each_layer(step, 1), activation_parts(step.plan, 0)["embedding"]
    assert made.makespan_s == (8 + 3) * 4 * 3
    assert held == [4 * layer + embedded, 4 * layer, 4 * layer, 2 * layer + stays(step, 3)]


def test_pairs_stream_the_last_forward_out_and_the_next_backward_in():
    """Two layers a chunk, as in Kimi K2: a copy has the time of a pair of layers, and slower ones set the pace."""
    given = {"parallel": {"pp": 2}, "schedule": {"name": "interleaved-overlap", "vpp": 2}}
    few, many, plain = (offloading(2, m, share, layers=8, **given) for m, share in ((16, 1.0), (24, 1.0), (24, 0.0)))
    assert took(many, 1.0, 2.0, 1.0).makespan_s == run(plain.program, seconds(1.0, 2.0)).makespan_s
    for copy in (3.0, 6.0, 9.0):
        each = (took(many, 1.0, 2.0, copy).makespan_s - took(few, 1.0, 2.0, copy).makespan_s) / 8
        assert each == 4 * copy


@pytest.mark.parametrize("name", ["zb-h1", "zb-v", "dualpipe"])
def test_what_weight_gradients_read_stays_until_they_are_made(name):
    step = offloading(4, 8, layers=16, parallel={"pp": 4}, schedule={"name": name})
    made = took(step, 1.0, 2.0, 0.5)
    tags, table = made.program.tags, made.program.access_table
    learned = {of(tags, op): made.end_s[op] for op in ops(made.program, label="proj_wgrad")}
    buffers = {table[at].buffer: of(tags, op) for op in ops(made.program, label="onload") for at in accesses(made, op)}
    ends = {table[at].buffer: made.end_s[op] for op in range(len(made.program)) for at in accesses(made, op)
            if not table[at].write}  # fmt: skip
    assert buffers
    assert all(ends[buffer] >= learned[which] for buffer, which in buffers.items())


def of(tags, op):
    return int(tags["layer"][op]), int(tags["microbatch"][op])


def accesses(made, op):
    return made.program.accesses[op].tolist()


# Laws


def timed(step, copy):
    table = dict.fromkeys(step.program.kinds, 1.0) | SECONDS | {"d2h": copy, "h2d": copy}
    return simulate(step.program, kind_costs(step.program, table))


def with_offload(step, **given):
    return ResolvedTrain(step.scenario.model_copy(update={"offload": step.scenario.offload.model_copy(update=given)}))


@examples(30)
@given(step=steps(), slots=st.integers(1, 3), copies=st.lists(st.sampled_from([0.0, 0.5, 3.0, 40.0]), min_size=2))
def test_faster_copies_never_make_a_step_slower(step, slots, copies):
    away = with_offload(step, activations=1.0, slots=slots)
    validate(away.program)
    slow, fast = (timed(away, copy).makespan_s for copy in (max(copies), min(copies)))
    assert fast <= slow + 1e-9


@examples(30)
@given(step=steps(), slots=st.integers(1, 3), copy=st.sampled_from([0.0, 3.0, 40.0]))
def test_offload_never_raises_what_a_rank_holds(step, slots, copy):
    shares = [peaks(timed(with_offload(step, activations=share, slots=slots), copy)) for share in (0.0, 0.5, 1.0)]
    for none, half, whole in zip(*shares, strict=True):
        assert max(half.bytes, whole.bytes) <= none.bytes
        if copy == 0 and slots == 1:  # slower copies and more slots hold more of what is on its way
            assert whole.bytes <= half.bytes


@examples(30)
@given(step=steps(), slots=st.integers(1, 3), copy=st.sampled_from([0.0, 3.0, 40.0]))
def test_slots_bound_what_is_on_its_way(step, slots, copy):
    """Of schedules whose weight gradients follow at once: those that wait keep what they read."""
    away = with_offload(step, activations=1.0, slots=slots)
    if away.grid.split or away.plan.hold_wgrad:
        return
    found, none = peaks(timed(away, copy)), peaks(timed(with_offload(step, activations=0.0, slots=slots), copy))
    for rank in range(away.grid.ranks):
        stages = away.grid.stages_of(rank)
        largest = max(size for stage in stages for size in offload_bytes(away.plan, stage).values())
        resident = sum(stays(away, stage) for stage in stages) * away.microbatches
        at = away.plan.first_rank(rank)
        assert found[at].bytes <= min(none[at].bytes, resident + 2 * slots * largest)


# Reports and both levels

REAL = {
    "kind": "train_step", "cluster": "dgx-h100", "nodes": 1, "model": {"preset": "llama3-8b"},
    "batch": {"global": 16, "seq_len": 4096},
}  # fmt: skip


def real(**tables):
    return ResolvedTrain(check_train(REAL | tables))


@pytest.mark.parametrize(
    "plan",
    [
        {"parallel": {"pp": 1}},
        {"parallel": {"pp": 8}},
        {"parallel": {"pp": 4}, "schedule": {"name": "interleaved-overlap", "vpp": 2}, "overlap": {"wgrad": True}},
        {"parallel": {"pp": 4}, "schedule": {"name": "zb-h1"}},
        {"parallel": {"pp": 4}, "schedule": {"name": "dualpipe"}},
    ],
    ids=["pp 1", "pp 8", "pairs", "zb-h1", "dualpipe"],
)
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_the_coarser_level_takes_as_long_and_holds_as_much(plan, share):
    fine, few = (real(**plan, level=level, offload={"activations": share}) for level in ("kernels", "coarse"))
    made = [simulate(one.program, one.costs) for one in (fine, few)]
    assert made[1].makespan_s == pytest.approx(made[0].makespan_s, rel=0.02)
    held = [[one.peak_bytes for one in rank_memory(of, run)] for of, run in zip((fine, few), made, strict=True)]
    assert held[1] == pytest.approx(held[0], rel=0.02)


@pytest.mark.parametrize(("pp", "share"), [(1, 0.8), (2, 0.8), (8, 0.6)])
def test_memory_falls_with_any_number_of_stages(pp, share):
    plain, away = (real(parallel={"pp": pp}, offload=given) for given in ({}, {"activations": 1.0}))
    held = [
        max(
            sum(size for name, size in one.held if name.startswith("activations"))
            for one in rank_memory(of, simulate(of.program, of.costs))
        )
        for of in (plain, away)
    ]
    assert held[1] < share * held[0]


def test_the_parts_that_a_rank_holds_are_those_of_its_layers():
    step = real(offload={"activations": 1.0}, parallel={"pp": 8})
    parts = dict(rank_memory(step, simulate(step.program, step.costs))[1].held)
    kept = activation_parts(step.plan, 1)
    ratios = {parts[f"activations: {part}"] / size for part, size in kept.items()}
    assert max(ratios) == pytest.approx(min(ratios))


def test_copies_and_exchanges_between_nodes_slow_each_other_at_both_levels():
    """Tokens leave through the PCIe lanes that activations take to the host."""
    given = {"model": {"preset": "qwen3-30b-a3b"}, "nodes": 2, "parallel": {"ep": 16}, "offload": {"activations": 0.3}}
    fine, few = (real(**given, level=level) for level in ("kernels", "coarse"))
    made = [simulate(one.program, one.costs).makespan_s for one in (fine, few)]
    assert made[1] == pytest.approx(made[0], rel=0.02)


def test_slots_go_with_activations():
    with pytest.raises(UserError, match=r"slots = 3: goes with offload\.activations"):
        check_train(REAL | {"offload": {"slots": 3}})


# Host memory


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_the_host_holds_all_that_left_of_a_micro_batch(micro_batches):
    step = offloading(micro_batches=micro_batches)
    made = took(step, 1.0, 2.0, 0.25)

    left = sum(made.program.bytes[op] for op in range(len(made.program)) if made.program.kind_of(op) == "d2h")
    assert copied_bytes(made).tolist() == [left / micro_batches]


def on_host(size, **tables):
    cluster = {"base": "dgx-h100", "gpus_per_node": 1, "host_memory": size}
    return predict(offloading(cluster=cluster, **tables)).report


def test_a_step_whose_host_is_too_small_does_not_fit_and_says_so():
    small, large = (on_host(size) for size in ("1 kB", "2 TB"))

    assert (small.fits, small.fits_probability, large.fits) == (False, 0.0, True)
    assert "DOES NOT FIT: node 0 needs" in "\n".join(lines(small, words(small)))


def test_the_host_holds_activations_and_what_an_optimizer_there_works_on():
    """12 bytes of states a parameter all the time, and in the end 4 of its gradient, when activations are gone."""
    activations = on_host("2 TB").host.needed_bytes
    states = on_host("2 TB", share=0, offload={"optimizer": True})
    both = on_host("2 TB", offload={"activations": 1.0, "optimizer": True})

    assert states.host.needed_bytes == 16 * states.parameters
    assert both.host.needed_bytes == max(activations, 4 * states.parameters) + 12 * states.parameters
