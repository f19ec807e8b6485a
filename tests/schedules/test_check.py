import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.schedules import SCHEDULES, Action, Grid, build, faults, validate

ONE = "0F0 0B0\n1F0 1B0"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ONE, []),
        ("0F0 0I0 0W0\n1F0 1B0", []),
        (
            "0F0 0B0\n1F0",
            ["stage 1, micro-batch 0: 1xF; expected one F and one B, or one F, one I and one W"],
        ),
        (
            "0F0 0B0 0B0\n1F0 1B0",
            ["stage 0, micro-batch 0: 2xB 1xF; expected one F and one B, or one F, one I and one W"],
        ),
        (
            "0F0 0I0\n1F0 1B0",
            ["stage 0, micro-batch 0: 1xF 1xI; expected one F and one B, or one F, one I and one W"],
        ),
        ("0F0 1B0\n1F0 0B0", [f"stage {s}, micro-batch 0: runs on ranks 0, 1; expected one" for s in (0, 1)]),
        ("0B0 0F0\n1F0 1B0", ["rank 0: 0B0 stands before 0F0, which it needs"]),
        ("0F0 0B0\n1F0&1B0", ["rank 1: 1B0 stands beside 1F0, which it needs"]),
        ("0F0 0W0 0I0\n1F0 1B0", ["rank 0: 0W0 stands before 0I0, which it needs"]),
        (
            "0F0 0F1 0B0&0B1\n1F0 1B0 1F1 1B1",
            ["rank 0: cell '0B0&0B1'; expected one action, or a forward and a backward"],
        ),
    ],
)
def test_faults(text, expected):
    assert faults(Grid.from_text(text)) == expected


def test_actions_outside_and_of_unknown_kind():
    rows = (((Action(0, "F", 0),), (Action(0, "B", 0),), (Action(2, "F", 0),), (Action(0, "X", 0),)),)

    assert faults(Grid("", rows, 1, 1))[:2] == [
        "rank 0: 2F0 lies outside 1 stages and 1 micro-batches",
        "rank 0: 0X0 is of kind 'X'; known: F, B, I, W",
    ]


def test_deadlock_between_ranks():
    crossed = Grid.from_text("0F1 0B1 0F0 0B0\n1F0 1B0 1F1 1B1")

    assert faults(crossed) == [
        "deadlock: 2 of 2 ranks are stuck; rank 0 stands at 0B1, which waits for 1B1 of rank 1; "
        "rank 1 stands at 1F0, which waits for 0F0 of rank 0"
    ]


def test_validate_raises_all_faults_at_once():
    with pytest.raises(ValueError, match=r"runs on ranks.*\n.*runs on ranks"):
        validate(Grid.from_text("0F0 1B0\n1F0 0B0"))


@given(st.sampled_from(sorted(SCHEDULES)), st.data())
def test_a_pass_that_is_lost_is_found(name, data):
    grid = build(name, 2, 4)
    rank = data.draw(st.integers(0, grid.ranks - 1))
    place = data.draw(st.integers(0, len(grid.rows[rank]) - 1))
    rows = [row if r != rank else row[:place] + row[place + 1 :] for r, row in enumerate(grid.rows)]

    assert faults(Grid(name, tuple(rows), grid.stages, grid.microbatches)) != []
