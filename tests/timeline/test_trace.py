"""The Chrome trace: valid, with one op at a time on each track."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.program import ProgramBuilder
from runcast.simulator.systems.weight_update.lower import BucketSize, make_plan, serial, three_stage, two_stage
from runcast.simulator.timeline import Timeline, trace, write_trace

from ..examples import examples

KINDS = ("gather_metas", "allocate", "open_handle", "h2d", "copy", "broadcast", "wait_worker", "agree", "reload")


def update(ranks=4, sizes=(256,) * 8, pipeline=two_stage, buffers=3, folded=True, seconds=None) -> Timeline:
    classes = [range(ranks)] if folded else None
    program = pipeline(make_plan(np.array(sizes), ranks, BucketSize(1024, buffers), classes=classes))
    return simulate(program, kind_costs(program, seconds or {"h2d": 4, "broadcast": 1, "reload": 1}))


def events(found: dict, phase: str) -> list[dict]:
    return [event for event in found["traceEvents"] if event["ph"] == phase]


updates = st.builds(
    update,
    ranks=st.integers(1, 5),
    sizes=st.lists(st.integers(1, 1024), min_size=5, max_size=20),
    pipeline=st.sampled_from([two_stage, serial]),
    buffers=st.sampled_from([2, 3]),
    folded=st.booleans(),
    seconds=st.fixed_dictionaries({kind: st.floats(0, 3, allow_subnormal=False) for kind in KINDS}),
) | st.builds(
    update, pipeline=st.just(three_stage), folded=st.booleans(), seconds=st.just({"h2d": 0.1, "reload": 1e-7})
)


@examples(40)
@given(updates)
def test_no_two_ops_overlap_on_a_track(timeline: Timeline) -> None:
    tracks = defaultdict(list)
    for event in events(trace(timeline), "X"):
        start = round(event["ts"] * 1e3)
        tracks[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1e3)))
    for spans in tracks.values():
        assert all(end <= start for (_, end), (start, _) in zip(sorted(spans), sorted(spans)[1:], strict=False))


@examples(20)
@given(updates)
def test_arrows_begin_in_a_slice_and_end_at_the_start_of_one(timeline: Timeline) -> None:
    found = trace(timeline)
    slices = [(e["pid"], e["tid"], e["ts"], e["ts"] + e["dur"]) for e in events(found, "X")]
    starts = {(pid, tid, begun) for pid, tid, begun, _ in slices}
    assert all((e["pid"], e["tid"], e["ts"]) in starts for e in events(found, "f"))
    for e in events(found, "s"):
        assert any((e["pid"], e["tid"]) == (pid, tid) and a <= e["ts"] <= b for pid, tid, a, b in slices)


def test_a_track_for_each_lane_with_names() -> None:
    names = {(e["pid"], e["args"]["name"]) for e in events(trace(update(), [3]), "M") if e["name"] == "thread_name"}
    assert names == {(3, lane) for lane in ("comm", "copy", "h2d", "ps", "worker")}


def test_a_lane_of_a_class_and_of_its_rank_that_overlap_get_a_track_each() -> None:
    builder = ProgramBuilder()
    for place in (builder.place("all", [0, 1]), builder.place("r0", [0])):
        builder.op("wait", [builder.lane(place, "ps")])
    program = builder.build()
    found = trace(simulate(program, kind_costs(program, {"wait": 3})), [0])
    names = {e["args"]["name"] for e in events(found, "M") if e["name"] == "thread_name"}
    assert names == {"ps of r0", "ps of all"}


def test_a_slice_says_what_was_moved() -> None:
    (first, *_) = [e for e in events(trace(update(), [1]), "X") if e["cat"] == "h2d"]
    assert first == {
        "ph": "X", "name": "h2d b1 on r1", "cat": "h2d", "pid": 1, "tid": 3, "ts": 0.0, "dur": 4e6,
        "args": {"bytes": 512, "rate_bytes_per_s": 128.0, "queued_s": 0.0, "bucket": 1, "round": 0},
    }  # fmt: skip


def test_memory_is_a_counter() -> None:
    counters = [(e["ts"], e["args"]["bytes"]) for e in events(trace(update(), [1]), "C")]
    assert counters[0] == (0.0, 3072.0)
    assert counters[-1][1] == 0


def test_the_files_hold_the_trace_and_name_the_rank(tmp_path: Path) -> None:
    timeline = update(ranks=9, sizes=(256,) * 9)
    for name, read in (("t.json", Path.read_bytes), ("t.json.gz", lambda path: gzip.decompress(path.read_bytes()))):
        write_trace(timeline, tmp_path / name)
        assert json.loads(read(tmp_path / name)) == trace(timeline)
    assert trace(timeline)["distributedInfo"] == {"rank": 0, "world_size": 9}
    assert trace(timeline)["otherData"]["ranks"] == "8 of 9: 0, 1, 2, 3, 4, 5, 6, 7"


def test_equal_timelines_give_equal_bytes(tmp_path: Path) -> None:
    for name in "ab":
        write_trace(update(), tmp_path / f"{name}.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_another_suffix_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"t\.txt: a trace is a \.json or \.json\.gz file"):
        write_trace(update(), tmp_path / "t.txt")
