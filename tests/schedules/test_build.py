import inspect

import pytest
from runcast.simulator.schedules import SCHEDULES, build


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("2f2b", 4, 8), {}, f"schedule '2f2b'; known: {', '.join(SCHEDULES)}"),
        (("1f1b", 0, 8), {}, "1f1b with 0 pipeline ranks; expected at least 1"),
        (("1f1b", 4, 0), {}, "1f1b with 0 micro-batches; expected at least 1"),
        (("interleaved", 4, 8, 0), {}, "interleaved with 0 chunks; expected at least 1"),
        (
            ("1f1b", 4, 8, 2),
            {},
            "1f1b with 2 chunks per rank; it has 1, interleaved takes any number: leave vpp out, or set it to 1",
        ),
        (
            ("zb-v", 4, 8, 3),
            {},
            "zb-v with 3 chunks per rank; it has 2, interleaved takes any number: leave vpp out, or set it to 2",
        ),
        (("1f1b", 4, 8), {"group": 4}, "1f1b has no option 'group'; known: none"),
        (("interleaved", 4, 8), {"grp": 4}, "interleaved has no option 'grp'; known: group, extra_warmup, overlap"),
        (("interleaved", 4, 3), {}, "interleaved with 3 micro-batches on 4 pipeline ranks; expected at least 4"),
        (
            ("interleaved", 4, 10, 2),
            {},
            "interleaved with 2 of 10 micro-batches in the last group of 4; expected a full group or at least 4"
            " (pipeline ranks)",
        ),
        (
            ("interleaved-overlap", 4, 8),
            {"group": 9},
            "interleaved-overlap with groups of 9 micro-batches; expected 4 (pipeline ranks) to 8 (all)",
        ),
        (("interleaved", 4, 8), {"extra_warmup": 2}, "interleaved with extra_warmup 2; expected 0 or 1"),
        (
            ("interleaved", 4, 8),
            {"overlap": True},
            "interleaved with overlap and extra_warmup 0 deadlocks; expected extra_warmup 1",
        ),
        (("dualpipe", 3, 8), {}, "dualpipe on 3 pipeline ranks; expected an even number"),
        (("dualpipe", 4, 9), {}, "dualpipe with 9 micro-batches; expected an even number, half for each direction"),
        (("dualpipe", 4, 6), {}, "dualpipe with 6 micro-batches on 4 pipeline ranks; expected at least 8"),
        (("dualpipe-v", 4, 7), {}, "dualpipe-v with 7 micro-batches on 4 pipeline ranks; expected at least 8"),
    ],
)
def test_sizes_that_do_not_exist(arguments, options, message):
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        build(*arguments, **options)

    assert str(raised.value) == message


def test_a_ragged_last_group_of_at_least_the_pipeline_ranks():
    grid = build("interleaved", 4, 13, chunks=2, group=8)

    assert [a.microbatch for a in grid.actions(0) if a.kind == "F" and a.stage == 4] == list(range(13))


def test_own_number_of_chunks_may_be_said():
    assert build("zb-v", 4, 8, chunks=2) == build("zb-v", 4, 8)


def test_overlap_of_interleaved_is_the_schedule_of_that_name():
    assert build("interleaved", 4, 8, 2, extra_warmup=1, overlap=True) == build("interleaved-overlap", 4, 8, 2)


@pytest.mark.parametrize("name", SCHEDULES)
def test_options_are_those_of_the_function(name):
    parameters = set(inspect.signature(SCHEDULES[name].make).parameters)

    assert parameters - {"pipeline_ranks", "microbatches", "chunks"} == set(SCHEDULES[name].options)


ONE_RANK = {
    "gpipe": "0F0 0F1 0B0 0B1",
    "1f1b": "0F0 0B0 0F1 0B1",
    "interleaved": "0F0 0B0 0F1 0B1",
    "interleaved-overlap": "0F0 0F1&0B0 0B1",
    "zb-h1": "0F0 0I0 0W0 0F1 0I1 0W1",
    "zb-h2": "0F0 0I0 0W0 0F1 0I1 0W1",
    "zb-v": "0F0 1F0 1I0 1W0 0F1 0I0 0W0 1F1 1I1 0I1 1W1 0W1",
    "v-half": "0F0 1F0 1I0 1W0 0I0 0W0 0F1 1F1 1I1 0I1 1W1 0W1",
    "v-min": "0F0 1F0 1I0 0I0 1W0 0W0 0F1 1F1 1I1 0I1 1W1 0W1",
    "dualpipe-v": "0F0 1F0 0F1 1B0 1F1&0B0 1B1 0I1 0W1",
}


@pytest.mark.parametrize("name", ONE_RANK)
def test_one_rank(name):
    assert str(build(name, 1, 2)) == ONE_RANK[name]
