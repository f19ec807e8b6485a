import pytest
from runcast.simulator.schedules import Action, DeadlockError, Grid, build, dry_run
from runcast.simulator.schedules.interleaved import interleaved

FB = {"F": 1.0, "B": 2.0}


def starts(dry):
    return {str(action): start for action, start in dry.start.items()}


def test_two_ranks_and_one_microbatch():
    dry = dry_run(build("1f1b", 2, 1), FB)

    assert starts(dry) == {"0F0": 0, "1F0": 1, "1B0": 2, "0B0": 4}
    assert (dry.makespan, dry.work, dry.idle, dry.bubbles, dry.bubble) == (6, (3, 3), (3, 0), (3, 3), 3)


def test_a_send_delays_what_another_rank_needs_and_nothing_else():
    dry = dry_run(build("zb-v", 2, 1), {"F": 1.0, "I": 1.0, "W": 1.0}, send_s=10.0)

    assert starts(dry) == {
        "0F0": 0, "1F0": 11, "2F0": 12, "3F0": 23, "3I0": 24, "2I0": 35, "1I0": 36, "0I0": 47, "3W0": 25, "2W0": 37,
        "1W0": 38, "0W0": 48,
    }  # fmt: skip


def test_seconds_of_single_actions():
    dry = dry_run(build("gpipe", 1, 2), lambda action: 1.0 + 10.0 * action.microbatch)

    assert starts(dry) == {"0F0": 0, "0F1": 1, "0B0": 12, "0B1": 13}


def test_a_pair_is_one_step_as_long_as_both_unless_told():
    grid = build("interleaved-overlap", 1, 2)

    assert [starts(dry_run(grid, FB, pair)) for pair in (None, lambda f, b: 2.0 + f.microbatch + b.microbatch)] == [
        {"0F0": 0, "0F1": 1, "0B0": 1, "0B1": 4},
        {"0F0": 0, "0F1": 1, "0B0": 1, "0B1": 4},
    ]
    assert dry_run(grid, FB, lambda f, b: 2.0).end[Action(0, "B", 0)] == 3


def test_activations_are_held_until_the_backward_or_the_weight_gradient_ends():
    texts = ["0F0 0B0 0F1 0B1", "0F0 0I0 0F1 0W0 0I1 0W1", "0F0 0F1&0B0 0B1"]

    assert [dry_run(Grid.from_text(text), {**FB, "I": 1.0, "W": 1.0}).peaks for text in texts] == [(1,), (2,), (2,)]


def test_standard_order_with_pairs_deadlocks_and_the_error_names_the_cycle():
    grid = interleaved(4, 8, chunks=2, extra_warmup=0, overlap=True)

    with pytest.raises(
        DeadlockError, match=r"4 of 4 ranks are stuck; rank 3 stands at 7F0&7B0, which waits for 7F0 of rank 3$"
    ):
        dry_run(grid, FB)


def test_a_cycle_over_two_ranks():
    with pytest.raises(
        DeadlockError,
        match=r"0B1, which waits for 1B1 of rank 1; rank 1 stands at 1F0, which waits for 0F0 of rank 0$",
    ):
        dry_run(Grid.from_text("0F1 0B1 0F0 0B0\n1F0 1B0 1F1 1B1"), FB)


def test_what_no_rank_runs():
    with pytest.raises(DeadlockError, match=r"rank 0 stands at 0B0, which waits for 1B0, which no rank runs$"):
        dry_run(Grid.from_text("0F0 0B0\n1F0"), FB)


def test_a_grid_without_actions_takes_no_time():
    assert dry_run(Grid("", ((), ()), 0, 0), FB).makespan == 0
