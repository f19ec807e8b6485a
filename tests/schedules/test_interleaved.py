"""Interleaved 1F1B: the worked example by hand, closed forms of makespan and memory, pairs."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from runcast.simulator.schedules import Grid, build, dry_run, faults, peaks
from runcast.simulator.schedules.interleaved import interleaved, schedule_table, warmup

BY_HAND = """\
F1a F2a F3a F4a F1b F2b F3b F4b F5a F6a F7a | F8a B1b  F5b B2b  F6b B3b  F7b B4b  F8b B1a | B2a B3a B4a B5b B6b B7b B8b B5a B6a B7a B8a
F1a F2a F3a F4a F1b F2b F3b F4b F5a | F6a B1b  F7a B2b  F8a B3b  F5b B4b  F6b B1a  F7b B2a  F8b B3a | B4a B5b B6b B7b B8b B5a B6a B7a B8a
F1a F2a F3a F4a F1b F2b F3b | F4b B1b  F5a B2b  F6a B3b  F7a B4b  F8a B1a  F5b B2a  F6b B3a  F7b B4a  F8b B5b | B6b B7b B8b B5a B6a B7a B8a
F1a F2a F3a F4a F1b | F2b B1b  F3b B2b  F4b B3b  F5a B4b  F6a B1a  F7a B2a  F8a B3a  F5b B4a  F6b B5b  F7b B6b  F8b B7b | B8b B5a B6a B7a B8a"""  # noqa: E501


def drawn(grid: Grid) -> str:
    """As in papers: micro-batches from 1, chunks as letters, warm-up | pairs | cool-down."""
    rows = []
    for row in grid.rows:
        cells = [" ".join(f"{a.kind}{a.microbatch + 1}{'ab'[a.stage // grid.ranks]}" for a in cell) for cell in row]
        pairs = [len(cell) == 2 for cell in row]
        first, end = pairs.index(True), len(pairs) - pairs[::-1].index(True)
        rows.append(" | ".join([" ".join(cells[:first]), "  ".join(cells[first:end]), " ".join(cells[end:])]))
    return "\n".join(rows)


def seconds(f: float, b: float) -> dict[str, float]:
    return {"F": f, "B": b}


def test_worked_example_with_one_extra_warmup():
    assert drawn(build("interleaved-overlap", 4, 8, chunks=2)) == BY_HAND


def test_last_row_of_the_figure_by_microbatch_number():
    last = [action.microbatch + 1 for action in build("interleaved-overlap", 4, 8, chunks=2).actions(3)]

    assert last[6:27] == [int(number) for number in "132435461728354657687"]


def test_table_of_megatron_with_a_ragged_last_group():
    assert [column.tolist() for column in schedule_table(5, chunks=2, group=3)] == [
        [0, 1, 2, 0, 1, 2, 3, 4, 3, 4], [0, 0, 0, 1, 1, 1, 0, 0, 1, 1],
    ]  # fmt: skip


@pytest.mark.parametrize("extra", [0, 1])
def test_serial_makespan_of_the_example_is_57(extra):
    assert dry_run(build("interleaved", 4, 8, chunks=2, extra_warmup=extra), seconds(1, 2)).makespan == 57


@pytest.mark.parametrize(("pair", "makespan"), [(2, 46), (3, 57)])
def test_makespan_of_the_example_with_pairs(pair, makespan):
    assert dry_run(build("interleaved-overlap", 4, 8, chunks=2), seconds(1, 2), lambda f, b: pair).makespan == makespan


@pytest.mark.parametrize(("extra", "expected"), [(0, (11, 9, 7, 5)), (1, (12, 10, 8, 6))])
def test_peaks_of_the_example(extra, expected):
    assert peaks(build("interleaved", 4, 8, chunks=2, extra_warmup=extra)) == expected


sizes = {"p": st.integers(1, 6), "rounds": st.integers(1, 5), "v": st.integers(1, 4), "x": st.integers(0, 1)}
times = {"f": st.integers(1, 20), "b": st.integers(1, 20)}


@given(**sizes, **times)
def test_serial_makespan(p, rounds, v, x, f, b):
    m = p * rounds

    assert dry_run(build("interleaved", p, m, v, extra_warmup=x), seconds(f, b)).makespan == (m * v + p - 1) * (f + b)


@given(**{**sizes, "x": st.just(1)}, **times, share=st.floats(0, 1))
def test_makespan_with_pairs(p, rounds, v, x, f, b, share):
    m, n, w = p * rounds, p * rounds * v, warmup(0, p, v, p, x)
    assume(w <= n)
    pair = max(f, b) + round(share * min(f, b))

    makespan = dry_run(build("interleaved-overlap", p, m, v), seconds(f, b), lambda *_: pair).makespan

    assert makespan == w * (f + b) + (n - w) * pair + (p - 1) * (2 * pair - f - b)


@given(**sizes)
def test_peaks_are_the_warmup_and_one_more(p, rounds, v, x):
    n = p * rounds * v

    held = peaks(build("interleaved", p, p * rounds, v, extra_warmup=x))

    assert held == tuple(min(min(warmup(rank, p, v, p, x), n) + 1, n) for rank in range(p))


@given(p=st.integers(1, 6), v=st.integers(1, 3), group=st.integers(1, 9), m=st.integers(1, 30), overlap=st.booleans())
def test_groups_of_any_size_that_megatron_allows(p, v, group, m, overlap):
    assume(p <= group <= m and (m % group == 0 or m % group >= p))
    name = "interleaved-overlap" if overlap else "interleaved"

    assert faults(build(name, p, m, v, group=group)) == []


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("v", [1, 2, 3])
def test_pairs_without_extra_warmup_stand_beside_what_they_need(p, v):
    grid = interleaved(p, 4 * p, v, extra_warmup=0, overlap=True)
    last = p * v - 1

    assert faults(grid)[0] == f"rank {p - 1}: {last}B0 stands beside {last}F0, which it needs"


def test_one_rank_with_pairs_overlaps_neighbouring_microbatches():
    assert str(build("interleaved-overlap", 1, 4)) == "0F0 0F1&0B0 0F2&0B1 0F3&0B2 0B3"


def test_one_chunk_on_one_rank_is_plain_accumulation():
    assert str(build("interleaved", 1, 3)) == str(build("1f1b", 1, 3)) == "0F0 0B0 0F1 0B1 0F2 0B2"
