"""What each rank did: a class of ranks stands for all of them."""

import numpy as np
import pandas as pd
import pytest
from runcast.simulator import UserError
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.program import Program
from runcast.simulator.systems.weight_update.lower import BucketSize, make_plan, three_stage, two_stage
from runcast.simulator.timeline import Timeline, few_ranks, spans_of_ranks


def program(ranks: int = 4, pipeline=two_stage, folded: bool = False) -> Program:
    plan = make_plan(
        np.full(ranks * 2, 256), ranks, BucketSize(256, 3), classes=[range(ranks)] if folded else None, dtype="bf16"
    )
    return pipeline(plan)


def timeline(*args, **options) -> Timeline:
    built = program(*args, **options)
    return simulate(built, kind_costs(built, {"h2d": 4, "copy": 0.5, "broadcast": 1, "reload": 1.25, "allocate": 2}))


def what_ran(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows in a fixed order, but for the host's wait: on a class it need not queue behind the H2D of one rank."""
    columns = ["rank", "lane", "kind", "role", "ready_s", "start_s", "end_s", "bytes", "bucket", "round"]
    return frame.loc[frame.kind != "wait_worker", columns].sort_values(columns, ignore_index=True)


@pytest.mark.parametrize("ranks", [[0, 1, 2, 3], [2]])
def test_folded_and_unfolded_ranks_do_the_same(ranks: list[int]) -> None:
    folded, unfolded = timeline(folded=True), timeline(folded=False)
    pd.testing.assert_frame_equal(
        what_ran(spans_of_ranks(folded, ranks)), what_ran(spans_of_ranks(unfolded, ranks)), check_exact=True
    )


def test_a_broadcast_has_one_source() -> None:
    spans = spans_of_ranks(timeline(folded=True))
    sources = spans[spans.role == "src"].sort_values("start_s")
    assert sources["rank"].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert (spans.role == "dst").sum() == 3 * len(sources)


def test_an_h2d_stands_on_both_lanes_that_it_holds() -> None:
    spans = spans_of_ranks(timeline(folded=True), [1])
    assert spans[spans.kind == "h2d"][["lane", "rate_bytes_per_s"]].values.tolist() == [["h2d", 64.0], ["ps", 64.0]] * 2


def test_few_ranks_are_all_or_the_first_of_the_first_class() -> None:
    assert few_ranks(program(4, folded=True)) == (0, 1, 2, 3)
    assert few_ranks(program(9, folded=True)) == tuple(range(8))
    assert few_ranks(program(9, folded=False)) == tuple(range(8))


def test_a_rank_outside_the_world_is_an_error() -> None:
    with pytest.raises(UserError, match="rank 4 is unknown: there are ranks 0 to 3"):
        spans_of_ranks(timeline(), [0, 4])


def test_three_stage_unfolds_too() -> None:
    folded, unfolded = timeline(pipeline=three_stage, folded=True), timeline(pipeline=three_stage)
    columns = ["rank", "kind", "start_s", "end_s"]
    one, other = (what_ran(spans_of_ranks(each))[columns] for each in (folded, unfolded))
    pd.testing.assert_frame_equal(one, other, check_exact=True)


def test_the_few_ranks_shown_come_from_every_class() -> None:
    program = two_stage(make_plan(np.full(24, 256), 24, BucketSize(256, 3), classes=[range(16), range(16, 24)]))
    assert few_ranks(program) == (0, 1, 2, 3, 16, 17, 18, 19)
