"""Plans of updates that start at trainers: stages, buckets, what a receiver keeps; which source writes to whom."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.systems.weight_update.lower import (
    Layout,
    TransferPlan,
    make_transfer,
    single_ranks,
)
from runcast.simulator.systems.weight_update.lower.transfer.programs import assign_targets
from runcast.simulator.systems.weight_update.methods import METHODS

from ..examples import examples

MANY = examples(100)


def transfer(
    sizes,
    expert,
    layer,
    *,
    pp: int = 1,
    shard: int = 1,
    inference: Layout = Layout(),  # noqa: B008
    trainers: int = 4,
    limit: int = 20,
    apart: bool = False,
):
    return make_transfer(
        256 * np.array(sizes),
        np.array(expert, bool),
        np.array(layer),
        trainers=range(trainers),
        receivers=range(trainers, trainers + inference.engine_ranks),
        train=Layout(pp=pp, shard=shard),
        inference=inference,
        bucket_bytes=256 * limit,
        classes=single_ranks(trainers + inference.engine_ranks),
        apart=apart,
    )


def contents(plan: TransferPlan) -> list[tuple[bool, int, list[int]]]:
    """Of each bucket: whether of experts, its stage, its tensors in checkpoint numbers."""
    return [(one.phase.expert, plan.stages.index(one.stage), one.contents.tolist()) for one in plan.buckets]


# -- Targets ----------------------------------------------------------------------------------------------------------


def test_engines_of_the_same_shapes_share_sources():
    """Two engines of 2 from 2 sources: each source holds one shape and serves it twice."""
    assert assign_targets([0, 1], [8, 9, 10, 11], 2) == {0: [[8, 10]], 1: [[9, 11]]}


def test_more_shapes_than_sources_are_dealt_out():
    assert assign_targets([0, 1], [8, 9, 10, 11], 4) == {0: [[8], [10]], 1: [[9], [11]]}


def test_sources_that_are_left_over_write_nothing():
    assert assign_targets([0, 1, 2], [8, 9], 2) == {0: [[8]], 1: [[9]], 2: []}


def test_a_further_receiver_goes_to_the_holder_that_serves_fewest():
    """Three sources, engines of 2: source 2 holds shape 0 too, so the second engine's shape 0 is its one receiver."""
    assert assign_targets([0, 1, 2], [8, 9, 10, 11], 2) == {0: [[8]], 1: [[9, 11]], 2: [[10]]}


SERVED = st.tuples(st.integers(1, 9), st.integers(1, 8), st.integers(1, 6))


@MANY
@given(SERVED)
def test_every_receiver_is_served_once_by_a_source_with_its_shape(sizes):
    sources, engine, engines = sizes
    receivers = range(100, 100 + engine * engines)
    served = assign_targets(range(sources), receivers, engine)
    assert list(served) == list(range(sources))
    assert sorted(r for shapes in served.values() for targets in shapes for r in targets) == list(receivers)
    for shapes in served.values():
        kinds = [{(r - 100) % engine for r in targets} for targets in shapes]
        assert all(len(kind) == 1 for kind in kinds)
        assert len(set.union(set(), *kinds)) == len(shapes)


@MANY
@given(SERVED)
def test_the_first_receivers_go_one_to_one(sizes):
    sources, engine, engines = sizes
    served = assign_targets(range(sources), range(100, 100 + engine * engines), engine)
    assert all(served[s][0][0] == 100 + s for s in range(min(sources, engine * engines)))


@MANY
@given(SERVED)
def test_sources_hold_few_shapes_and_serve_evenly(sizes):
    """As few shapes as there must be; where sources or shapes divide each other, as many receivers each."""
    sources, engine, engines = sizes
    served = assign_targets(range(sources), range(100, 100 + engine * engines), engine)
    assert max(map(len, served.values())) == -(-engine // sources)
    loads = [sum(map(len, shapes)) for shapes in served.values()]
    if sources % engine == 0 or engine % sources == 0:
        assert max(loads) - min(loads) <= (1 if sources >= engine else 0)


# -- Stages and buckets -----------------------------------------------------------------------------------------------


def test_layers_are_split_evenly_and_what_stands_around_them_goes_to_the_ends():
    """Embedding, four layers of two tensors, final norm and head, on two stages."""
    plan = transfer([3] * 11, [False] * 11, [-1, 0, 0, 1, 1, 2, 2, 3, 3, -1, -1], pp=2, limit=100)
    assert contents(plan) == [(False, 0, [0, 1, 2, 3, 4]), (False, 1, [5, 6, 7, 8, 9, 10])]


def test_experts_go_in_buckets_of_their_own_after_all_others():
    plan = transfer([1, 2, 1, 2], [False, True, False, True], [0, 0, 1, 1], limit=3)
    assert contents(plan) == [(False, 0, [0, 2]), (True, 0, [1]), (True, 0, [3])]


def test_without_layers_tensors_are_split_by_count():
    plan = transfer([1] * 5, [False] * 5, [-1] * 5, pp=2)
    assert contents(plan) == [(False, 0, [0, 1, 2]), (False, 1, [3, 4])]


@pytest.mark.parametrize(
    ("layout", "others", "experts", "walked"),
    [
        (Layout(), 1, 1, 1),
        (Layout(tp=4), 1 / 4, 1 / 4, 1),
        (Layout(tp=4, ep=4), 1 / 4, 1 / 4, 1 / 4),
        (Layout(tp=2, ep=8), 1 / 2, 1 / 8, 1 / 8),
        (Layout(tp=8, ep=4), 1 / 8, 1 / 8, 1 / 4),
    ],
    ids=str,
)
def test_a_receiver_keeps_its_share(layout, others, experts, walked):
    """Of other tensors 1/tp; of experts 1/max(tp, ep) of the bytes, in 1/ep of the tensors."""
    plan = transfer([8, 8], [False, True], [0, 0], inference=layout)
    assert [(phase.kept_bytes, phase.kept_tensors) for phase in plan.phases] == [(others, 1), (experts, walked)]
    assert plan.kept_bytes == 256 * 8 * (others + experts)


@pytest.mark.parametrize(
    ("trainers", "layout", "groups"),
    [
        (8, Layout(shard=8, expert_shard=8), [8, 8]),  # FSDP: all hold one copy
        (8, Layout(shard=4, ep=2, expert_shard=2), [4, 4]),  # HSDP: two copies
        (8, Layout(tp=2, shard=4, ep=4, expert_shard=2), [8, 8]),
        (8, Layout(pp=2), [1, 1]),
        (8, Layout(tp=2), [2, 1]),
        (8, Layout(tp=2, ep=8), [2, 8]),
        (8, Layout(tp=2, pp=2, ep=4), [2, 4]),
    ],
    ids=str,
)
def test_a_stage_gathers_in_groups_that_hold_one_copy(trainers, layout, groups):
    plan = make_transfer(
        np.full(4, 256), np.arange(4) > 1, np.full(4, -1), trainers=range(trainers), receivers=[trainers],
        train=layout, inference=Layout(), bucket_bytes=256, classes=single_ranks(trainers + 1),
    )  # fmt: skip
    assert [phase.mesh.size for phase in plan.phases] == groups
    assert plan.trainers == tuple(range(trainers))


@st.composite
def checkpoints(draw: st.DrawFn) -> tuple[list[int], list[bool], list[int]]:
    """Tensors before, in and after layers, some of them experts'."""
    layers = draw(st.lists(st.integers(0, 5), max_size=30).map(sorted))
    layer = [-1] * draw(st.integers(0, 2)) + layers + [-1] * draw(st.integers(0, 2)) or [-1]
    expert = [index >= 0 and draw(st.booleans()) for index in layer]
    return [draw(st.integers(1, 20)) for _ in layer], expert, layer


@MANY
@given(checkpoints(), st.integers(1, 4), st.integers(20, 60))
def test_every_tensor_is_in_one_bucket_of_its_phase(checkpoint, pp, limit):
    sizes, expert, _ = checkpoint
    plan = transfer(*checkpoint, pp=pp, limit=limit)
    found = contents(plan)
    assert sorted(i for _, _, tensors in found for i in tensors) == list(range(len(sizes)))
    assert all(expert[i] == of_experts for of_experts, _, tensors in found for i in tensors)
    assert [of_experts for of_experts, _, _ in found] == sorted(of_experts for of_experts, _, _ in found)
    sent = [bucket.bytes for bucket in plan.buckets]
    assert sent == [256 * sum(sizes[i] for i in tensors) for _, _, tensors in found]
    assert (max(sent) <= 256 * limit, plan.n_buckets) == (True, len(found))


@MANY
@given(checkpoints(), st.integers(1, 4))
def test_a_layer_is_on_one_stage_and_stages_follow_layers(checkpoint, pp):
    _, _, layer = checkpoint
    stage_of = {i: stage for _, stage, tensors in contents(transfer(*checkpoint, pp=pp)) for i in tensors}
    pairs = sorted({(layer[i], stage) for i, stage in stage_of.items() if layer[i] >= 0})
    assert len({one for one, _ in pairs}) == len(pairs)
    assert [stage for _, stage in pairs] == sorted(stage for _, stage in pairs)
    assert set(stage_of.values()) <= set(range(pp))


def test_a_tensor_above_the_bucket_travels_alone():
    plan = transfer([1, 21, 1, 1], [False] * 4, [0] * 4)
    assert [bucket.tensors for bucket in plan.buckets] == [1, 1, 2]
    assert plan.bucket_bytes == 21 * 256


# -- Who sends --------------------------------------------------------------------------------------------------------


def roots(method: str, plan: TransferPlan) -> list[int]:
    program = METHODS[method].program(plan)
    return program.root[program.is_kind("broadcast")].tolist()


def test_heads_send_for_their_stages_in_turn():
    plan = transfer([10] * 6, [False] * 6, [-1] * 6, pp=2, limit=10)
    assert roots("single_sender", plan) == roots("stage_heads", plan) == [0, 2, 0, 2, 0, 2]


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_all_senders_send_equally_often_whatever_the_stages(pp):
    """Also where stages alternate in the bucket order: stage by stage, not bucket by bucket."""
    plan = transfer([10] * 8, [False] * 8, [-1] * 8, pp=pp, limit=10)
    assert np.bincount(roots("all_senders", plan)).tolist() == [2, 2, 2, 2]


def test_relays_and_receivers_are_in_the_group_of_a_broadcast():
    plan = transfer([10] * 2, [False] * 2, [-1] * 2, pp=2, limit=10, inference=Layout(tp=2))
    groups = [METHODS[method].program(plan).groups for method in ("single_sender", "relays")]
    assert {(0, 4, 5), (2, 4, 5)} <= set(groups[0])
    assert {(0, 1, 4, 5), (2, 3, 4, 5)} <= set(groups[1])


def writes(method: str, plan: TransferPlan) -> list[tuple[int, ...]]:
    """Pairs of source and target, flat, of each write."""
    program = METHODS[method].program(plan)
    return [program.groups[program.group[op]] for op in np.flatnonzero(program.is_kind("write", "forward"))]


def test_static_writes_reach_every_receiver_and_shift_sources():
    plan = transfer([10] * 3, [False] * 3, [-1] * 3, shard=4, limit=10, inference=Layout(tp=2), apart=True)
    assert writes("static_writes", plan) == [(0, 4, 1, 5), (1, 4, 2, 5), (2, 4, 3, 5)]


def test_static_writes_shift_sources_stage_by_stage():
    plan = transfer([10] * 4, [False] * 4, [-1] * 4, pp=2, shard=2, limit=10, apart=True)
    assert writes("static_writes", plan) == [(0, 4), (2, 4), (1, 4), (3, 4)]


def test_every_mesh_writes_its_own_tensors_to_every_receiver():
    """Three tensors, two meshes: both write at first, one in the second round."""
    plan = transfer([10] * 3, [False] * 3, [-1] * 3, shard=2, limit=10, inference=Layout(tp=2), apart=True)
    assert writes("static_writes", plan) == [(0, 4, 2, 4, 1, 5, 3, 5), (1, 4, 0, 5)]


def test_meshes_share_the_receivers_of_a_tensor_that_is_too_large_to_deal():
    """All gather it first: of two meshes of two ranks, each writes to two of four receivers."""
    plan = transfer([5, 1, 1], [False] * 3, [-1] * 3, shard=2, limit=9, inference=Layout(tp=4), apart=True)
    program = METHODS["static_writes"].program(plan)
    sizes = [program.bytes[program.is_kind(kind)].tolist() for kind in ("gather", "write")]
    assert sizes == [[5 * 256, 256], [5 * 256 // 4, 256 // 4]]
    assert writes("static_writes", plan)[0] == (0, 4, 2, 5, 1, 6, 3, 7)


def test_a_chain_passes_on_from_receiver_to_receiver():
    plan = transfer([10], [False], [-1], limit=10, inference=Layout(tp=3))
    assert writes("chain", plan) == [(0, 4), (4, 5), (5, 6)]


# -- What travels together -------------------------------------------------------------------------------------------


def test_tensors_of_one_unit_share_a_bucket():
    """Two experts' matrices at the same place on their trainers: 0 and 2, 1 and 3."""
    plan = make_transfer(
        256 * np.array([1, 1, 1, 1]), np.ones(4, bool), np.zeros(4, int), trainers=range(2), receivers=range(2, 4),
        train=Layout(ep=2), inference=Layout(ep=2), bucket_bytes=3 * 256, classes=single_ranks(4),
        unit=np.array([0, 1, 0, 1]),
    )  # fmt: skip
    assert [bucket.contents.tolist() for bucket in plan.buckets] == [[0, 2], [1, 3]]
    assert plan.phases[0].local_tensors == 0.5


def test_meshes_of_static_writes_gather_at_the_same_time_and_write_what_they_have():
    """Four equal tensors, two meshes: each copies in, gathers and writes two of them."""
    plan = make_transfer(
        np.full(4, 256), np.zeros(4, bool), np.zeros(4, int), trainers=range(4), receivers=range(4, 6),
        train=Layout(tp=2), inference=Layout(), bucket_bytes=2 * 256, classes=single_ranks(6),
        apart=True,
    )  # fmt: skip
    program = METHODS["static_writes"].program(plan)
    staged, gathered, written = (np.flatnonzero(program.is_kind(kind)) for kind in ("stage_in", "gather", "write"))
    assert program.bytes[staged].tolist() == [256]
    assert [(program.bytes[op], program.shape[op].tolist()) for op in gathered] == [(2 * 256, [2, 2, 2])]
    assert program.groups[program.group[gathered[0]]] == (0, 1, 2, 3)
    assert (program.bytes[written].tolist(), writes("static_writes", plan)) == ([2 * 256], [(0, 4, 2, 4, 1, 5, 3, 5)])
