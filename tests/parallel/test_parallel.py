"""Ranks and groups: the examples of Megatron-LM's documentation, and what holds for every grid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.program.parallel import AXES, DENSE, EXPERT, ORDER, ParallelDims

SIXTEEN = ParallelDims(tp=2, pp=4, dp=2)  # the docstring of Megatron-LM's initialize_model_parallel


def pairs(text):
    return [tuple(map(int, group.split())) for group in text.split(",")]


def groups_of(dims, axis):
    return [tuple(group) for group in dims.table(axis).tolist()]


@pytest.mark.parametrize(
    ("axis", "groups"),
    [
        ("tp", "0 1,2 3,4 5,6 7,8 9,10 11,12 13,14 15"),
        ("dp", "0 2,1 3,4 6,5 7,8 10,9 11,12 14,13 15"),
        ("pp", "0 4 8 12,1 5 9 13,2 6 10 14,3 7 11 15"),
        ("model", "0 1 4 5 8 9 12 13,2 3 6 7 10 11 14 15"),
    ],
)
def test_sixteen_gpus_as_megatron_documents_them(axis, groups):
    assert groups_of(SIXTEEN, axis) == pairs(groups)


def test_context_parallel_ranks_lie_between_tp_and_dp():
    # 16 GPUs with tp 2, cp 2, dp 4: groups of test_parallel_state.py's order tp-cp-ep-dp-pp
    dims = ParallelDims(tp=2, cp=2, dp=4)

    assert groups_of(dims, "cp")[:4] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert groups_of(dims, "dp")[:2] == [(0, 4, 8, 12), (1, 5, 9, 13)]
    assert groups_of(dims, "dp_cp") == [(0, 2, 4, 6, 8, 10, 12, 14), (1, 3, 5, 7, 9, 11, 13, 15)]
    assert groups_of(dims, "tp_cp")[0] == (0, 1, 2, 3)


def test_experts_have_a_grid_of_their_own():
    # attention tp 4, experts ep 8 without tensor parallelism: an ep group spans two tp groups
    dims = ParallelDims(tp=4, dp=4, pp=2, ep=8)

    assert dims.edp == 2
    assert groups_of(dims, "ep")[0] == tuple(range(8))
    assert groups_of(dims, "edp")[0] == (0, 8)
    assert groups_of(dims, "tp_ep") == [tuple(range(first, first + 8)) for first in (0, 8, 16, 24)]


def test_pipelines_inside_data_parallelism():
    dims = ParallelDims(tp=2, pp=4, dp=2, order="tp-cp-ep-pp-dp")

    assert groups_of(dims, "pp")[:2] == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert groups_of(dims, "dp")[0] == (0, 8)


def test_copies_of_shards():
    dims = ParallelDims(tp=2, dp=8, shard=4)

    assert groups_of(dims, "dp_shard") == [(0, 2, 4, 6), (1, 3, 5, 7), (8, 10, 12, 14), (9, 11, 13, 15)]
    assert groups_of(dims, "dp_replicate")[:2] == [(0, 8), (1, 9)]


sizes = st.sampled_from([1, 2, 3, 4])


@st.composite
def grids(draw):
    tp, cp, dp, pp = (draw(sizes) for _ in range(4))
    stage = tp * cp * dp
    etp = draw(st.sampled_from([size for size in range(1, stage + 1) if stage % size == 0]))
    ep = draw(st.sampled_from([size for size in range(1, stage // etp + 1) if stage // etp % size == 0]))
    shard = draw(st.sampled_from([None, *(size for size in range(1, dp * cp + 1) if dp * cp % size == 0)]))
    nearest = draw(st.permutations(["tp", "cp", "ep", "dp"]))
    return ParallelDims(tp, cp, dp, pp, ep, etp, order="-".join([*nearest, "pp"]), shard=shard)


@given(grids())
def test_groups_of_an_axis_are_the_world(dims):
    assert dims.faults(dims.world_size) == []
    for axis in AXES:
        groups = groups_of(dims, axis)
        assert sorted(rank for group in groups for rank in group) == list(range(dims.world_size))
        assert {len(group) for group in groups} == {dims.size(axis)}
        assert all(list(group) == sorted(group) for group in groups)
        assert groups == sorted(groups)


@given(grids(), st.data())
def test_a_rank_is_in_its_group(dims, data):
    rank = data.draw(st.integers(0, dims.world_size - 1))
    for axis in AXES:
        assert rank in dims.group(axis, rank)
        assert dims.group(axis, rank) in groups_of(dims, axis)


@given(grids())
def test_a_place_on_an_axis_is_one_of_the_first_group(dims):
    for axis in {*DENSE, *EXPERT}:
        assert tuple(dims.rank(**{axis: place}) for place in range(dims.size(axis))) == dims.group(axis, 0)


@given(grids())
def test_products_of_axes(dims):
    for rank in range(dims.world_size):
        around = {other for peer in dims.group("dp", rank) for other in dims.group("cp", peer)}
        assert set(dims.group("dp_cp", rank)) == around
        copies = {other for peer in dims.group("dp_shard", rank) for other in dims.group("dp_replicate", peer)}
        assert copies == around


@given(grids(), st.data())
def test_experts_share_the_stages_of_the_pipeline(dims, data):
    rank = data.draw(st.integers(0, dims.world_size - 1))

    stage = {other for peer in dims.group("tp_cp", rank) for other in dims.group("dp", peer)}

    assert {other for peer in dims.group("tp_ep", rank) for other in dims.group("edp", peer)} == stage


@pytest.mark.parametrize(
    ("dims", "gpus", "line"),
    [
        ({"tp": 8, "dp": 3}, 64, "x: parallel.dp = 3: tp 8 x cp 1 x pp 1 x dp must be the 64 GPUs, so dp = 8"),
        ({"tp": 3, "dp": 3}, 64, "x: parallel.tp = 3: tp 3 x cp 1 x pp 1 = 3 must divide the 64 GPUs"),
        ({"tp": 2, "pp": 64}, 64, "x: parallel.pp = 64: tp 2 x cp 1 x pp 64 = 128 must divide the 64 GPUs"),
        ({"tp": 2, "dp": 4, "ep": 3}, 8, "x: parallel.ep = 3: etp 1 x ep 3 = 3 must divide the 8 GPUs of a stage"),
        ({"dp": 8, "shard": 3}, 8, "x: parallel.shard = 3: must divide dp x cp = 8"),
        ({"dp": 0}, 8, "x: parallel.dp = 0: expected 1 or more"),
        ({"dp": 8, "order": "tp-dp-dp"}, 8, f"expected each of tp, cp, ep, dp, pp once, such as {ORDER}"),
        ({"dp": 4, "pp": 2, "order": "tp-cp-ep"}, 8, "x: parallel.order = 'tp-cp-ep': expected each of"),
        (
            {"tp": 2, "pp": 2, "dp": 2, "ep": 4, "order": "tp-cp-ep-pp-dp"},
            8,
            "'tp-cp-ep-pp-dp': stages are tp x cp = 2 "
            "ranks apart, of experts etp x ep = 4, which must agree: pp last, tp-cp-ep-dp-pp",
        ),
        (
            {"tp": 2, "pp": 2, "dp": 2, "ep": 2, "order": "tp-cp-pp-ep-dp"},
            8,
            "'tp-cp-pp-ep-dp': stages are tp x cp = 2 "
            "ranks apart, of experts etp = 1, which must agree: pp last, tp-cp-ep-dp-pp",
        ),
    ],
)
def test_what_does_not_fit_is_a_line(dims, gpus, line):
    (found,) = ParallelDims(**dims).faults(gpus, "x")

    assert line in found


def test_wrong_ranks_axes_and_places():
    with pytest.raises(ValueError, match="rank = 16: expected 0 to 15"):
        SIXTEEN.group("tp", 16)
    with pytest.raises(ValueError, match="unknown"):
        SIXTEEN.table("tensor")
    with pytest.raises(ValueError, match="tp = 2: expected 0 to 1"):
        SIXTEEN.rank(tp=2)
    with pytest.raises(ValueError, match="axis = 'cp': unknown"):
        SIXTEEN.rank(ep=0, cp=0)
