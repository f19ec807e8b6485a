import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.schedules import SCHEDULES, Action, Grid, build, needs

sizes = st.integers(0, 40)


@st.composite
def grids(draw):
    """Any rows at all, sensible or not, as long as no rank is empty."""
    action = st.builds(Action, sizes, st.sampled_from("FBIW"), sizes)
    cell = st.lists(action, min_size=1, max_size=2).map(tuple)
    rows = draw(st.lists(st.lists(cell, min_size=1, max_size=6).map(tuple), min_size=1, max_size=4))
    actions = [action for row in rows for cell in row for action in cell]
    stages, microbatches = (1 + max(action[field] for action in actions) for field in (0, 2))
    return Grid("any", tuple(rows), stages, microbatches)


@given(grids())
def test_text_reads_back(grid):
    assert Grid.from_text(str(grid), "any") == grid


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_reads_back_from_its_text(name):
    grid = build(name, 2, 4)

    assert Grid.from_text(str(grid), name) == grid


def test_text_is_one_row_per_rank():
    assert str(build("interleaved-overlap", 2, 2)) == "0F0 0F1 0B0 0B1\n1F0 1F1&1B0 1B1"


def test_passes_follow_each_other_with_further_micro_batches():
    assert str(build("1f1b", 2, 1).repeat(2)) == "0F0 0B0 0F1 0B1\n1F0 1B0 1F1 1B1"


@pytest.mark.parametrize("text", ["0X0", "F0", "0F0&", "0F-1"])
def test_text_that_is_no_action(text):
    with pytest.raises(ValueError, match="is no action"):
        Grid.from_text(text)


def test_needs_of_a_full_backward():
    grid = build("1f1b", 2, 1)

    waits = {str(action): " ".join(map(str, needs(grid, action))) for rank in (0, 1) for action in grid.actions(rank)}

    assert waits == {"0F0": "", "1F0": "0F0", "1B0": "1F0", "0B0": "0F0 1B0"}


def test_needs_of_a_split_backward():
    grid = build("zb-h1", 2, 1)

    waits = {str(action): " ".join(map(str, needs(grid, action))) for rank in (0, 1) for action in grid.actions(rank)}

    assert waits == {"0F0": "", "1F0": "0F0", "1I0": "1F0", "1W0": "1I0", "0I0": "0F0 1I0", "0W0": "0I0"}


def test_a_full_backward_may_follow_a_split_one_and_the_other_way_round():
    grid = Grid.from_text("0F0 0B0 0F1 0I1 0W1\n1F0 1I0 1W0 1F1 1B1")

    assert [needs(grid, Action(0, kind, k))[1] for kind, k in (("B", 0), ("I", 1))] == [(1, "I", 0), (1, "B", 1)]


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("1f1b", [(0,), (1,), (2,), (3,)]),
        ("interleaved", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("zb-v", [(0, 7), (1, 6), (2, 5), (3, 4)]),
        ("dualpipe", [(0, 3), (1, 2), (1, 2), (0, 3)]),
        ("dualpipe-v", [(0, 7), (1, 6), (2, 5), (3, 4)]),
    ],
)
def test_stages_of_ranks(name, stages):
    grid = build(name, 4, 8, 2 if name == "interleaved" else 1)

    assert [grid.stages_of(rank) for rank in range(4)] == stages


def test_ranks_of_dualpipe_depend_on_the_microbatch():
    grid = build("dualpipe", 4, 8)

    assert [grid.rank_of(0, k) for k in range(8)] == [0, 0, 0, 0, 3, 3, 3, 3]
