"""Device meshes: which ranks hold a tensor between them, who gathers which tensor, and buckets filled side by side."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.systems.weight_update.lower import Layout, TransferPlan, make_transfer, single_ranks
from runcast.simulator.systems.weight_update.lower.transfer.plan import EVERY, Mesh, deal

from ..examples import examples

MANY = examples(100)


@pytest.mark.parametrize(
    ("mesh", "groups"),
    [
        (Mesh(8), [(0, 1, 2, 3, 4, 5, 6, 7)]),
        (Mesh(4), [(0, 1, 2, 3), (4, 5, 6, 7)]),
        (Mesh(1), [(0,), (1,), (2,), (3,), (4,), (5,), (6,), (7,)]),
        (Mesh(2, stride=4), [(0, 4), (1, 5), (2, 6), (3, 7)]),
        (Mesh(2, stride=2), [(0, 2), (1, 3), (4, 6), (5, 7)]),
    ],
    ids=str,
)
def test_a_stage_splits_into_meshes(mesh, groups):
    assert mesh.split(range(8)) == groups


def test_dense_tensors_lie_inside_nodes_and_those_of_experts_across_them():
    """Two nodes of 8 train a stage with EP 8: FSDP of all else over a node, of experts over the same GPU of both nodes.

    So does the example of https://le.qun.ch/en/blog/2025/09/07/rl-weight-transfer (its stages alternate by node).
    """
    layout = Layout(pp=2, ep=8, shard=8, expert_shard=2)
    dense, experts = (layout.mesh(expert).split(range(16)) for expert in (False, True))
    assert dense == [tuple(range(8)), tuple(range(8, 16))]
    assert experts == [(gpu, gpu + 8) for gpu in range(8)]


LAYOUTS = st.builds(
    Layout, tp=st.sampled_from([1, 2]), ep=st.sampled_from([1, 2, 4]), shard=st.sampled_from([1, 2, 4]),
    expert_shard=st.sampled_from([1, 2]),
)  # fmt: skip


@MANY
@given(LAYOUTS, st.booleans(), st.sampled_from([8, 16]))
def test_every_rank_is_in_one_mesh_and_meshes_make_up_copies(layout, expert, ranks):
    meshes = layout.mesh(expert).split(range(ranks))
    copies = [set(copy) for copy in layout.copy(expert).split(range(ranks))]
    assert sorted(rank for mesh in meshes for rank in mesh) == list(range(ranks))
    assert all(sum(copy.issuperset(mesh) for copy in copies) == 1 for mesh in meshes)


SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=60)


@MANY
@given(SIZES, st.integers(1, 6), st.integers(1, 3))
def test_tensors_are_dealt_evenly(sizes, meshes, stages):
    """No mesh has more than another but for its last tensor; every mesh has those above an even share."""
    sizes_bytes, stage = np.array(sizes), np.sort(np.arange(len(sizes)) % stages)
    dealt = deal(sizes_bytes, stage, meshes)
    for s in np.unique(stage):
        own, part = sizes_bytes[stage == s], dealt[stage == s]
        loads = [int(own[part == mesh].sum()) for mesh in range(meshes)]
        assert (part == EVERY).tolist() == (own > own.sum() / meshes).tolist()
        assert max(loads) - min(loads) <= max([0, *own[part != EVERY].tolist()])


def made(sizes: list[int], train: Layout, *, trainers: int, limit: int, expert: bool = False) -> TransferPlan:
    """Tensors of 256 bytes times `sizes`, each mesh on its own, in buckets of `limit` such units."""
    return make_transfer(
        256 * np.array(sizes), np.full(len(sizes), expert), np.full(len(sizes), -1), trainers=range(trainers),
        receivers=[trainers], train=train, inference=Layout(), bucket_bytes=256 * limit,
        classes=single_ranks(trainers + 1), apart=True,
    )  # fmt: skip


def test_meshes_fill_buckets_side_by_side():
    """Six tensors on two meshes, two in a bucket: both fill one, then each has one tensor left."""
    plan = made([1] * 6, Layout(tp=2), trainers=4, limit=2)
    assert [bucket.contents.tolist() for bucket in plan.buckets] == [[0, 2, 1, 3], [4, 5]]
    assert [bucket.parts.tolist() for bucket in plan.buckets] == [[0, 0, 1, 1], [0, 1]]
    assert [(bucket.tensors, bucket.bytes) for bucket in plan.buckets] == [(4, 4 * 256), (2, 2 * 256)]
    assert [(bucket.part, bucket.part_tensors) for bucket in plan.buckets] == [(2 * 256, 2), (256, 1)]
    assert [bucket.groups for bucket in plan.buckets] == [[(0, 1), (2, 3)]] * 2
    assert (plan.n_buckets, plan.rounds, plan.bucket_bytes) == (4, 2, 2 * 256)


def test_a_tensor_above_an_even_share_is_gathered_by_every_mesh_first():
    """Seven in all for four meshes: one of five is for all, two of one go to the first two."""
    plan = made([1, 5, 1], Layout(ep=4), trainers=4, limit=5, expert=True)
    assert [bucket.contents.tolist() for bucket in plan.buckets] == [[1], [0, 2]]
    assert [bucket.parts.tolist() for bucket in plan.buckets] == [[EVERY], [0, 1]]
    assert [bucket.groups for bucket in plan.buckets] == [[(0,), (1,), (2,), (3,)], [(0,), (1,)]]


@MANY
@given(SIZES, LAYOUTS, st.booleans(), st.integers(1, 60), st.sampled_from([1, 2]))
def test_each_mesh_gathers_tensors_of_its_own_within_the_limit(sizes, layout, expert, limit, pp):
    layout = Layout(layout.tp, pp, layout.ep, layout.shard, layout.expert_shard)
    plan = made(sizes, layout, trainers=8 * pp, limit=limit, expert=expert)
    buckets = plan.buckets
    held = [
        {part: [sizes[i] for i in bucket.contents[bucket.parts == part]] for part in range(EVERY, 8)}
        for bucket in buckets
    ]
    assert sorted(i for bucket in buckets for i in bucket.contents.tolist()) == list(range(len(sizes)))
    assert [of[EVERY] == [] or sum(map(bool, of.values())) == 1 for of in held] == [True] * len(held)
    assert [bucket.bytes for bucket in buckets] == [256 * sum(map(sum, of.values())) for of in held]
    assert [bucket.part for bucket in buckets] == [256 * max(map(sum, of.values())) for of in held]
    assert [bucket.part_tensors for bucket in buckets] == [max(map(len, of.values())) for of in held]
    assert plan.n_buckets == sum(sum(map(bool, of.values())) for of in held)
    assert all(sum(own) <= limit or len(own) == 1 for of in held for own in of.values())
    turns = [(bucket.round, plan.stages.index(bucket.stage)) for bucket in buckets]
    assert turns == sorted(set(turns))
