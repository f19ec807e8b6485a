"""Memory as a timeline: buffers live from their first writer to their last accessor."""

import numpy as np
import pytest
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.program import Program, ProgramBuilder
from runcast.simulator.systems.weight_update.lower import BucketSize, make_plan, two_stage
from runcast.simulator.timeline import Peak, Timeline, lifetimes, memory, peak_bytes, peaks

SECONDS = {"gather_metas": 2, "allocate": 1, "h2d": 4, "broadcast": 1, "reload": 1, "free_buffers": 1, "post_hook": 3}


def update(buffers: int = 3, folded: bool = False) -> Timeline:
    classes = [range(4)] if folded else None
    program = two_stage(make_plan(np.full(8, 256), 4, BucketSize(256, buffers), classes=classes))
    return simulate(program, kind_costs(program, SECONDS))


def steps(timeline: Timeline, *args, **options) -> list[list[float]]:
    return memory(timeline, *args, **options).values.tolist()


@pytest.mark.parametrize("folded", [False, True])
def test_three_buffers_from_allocate_to_free(folded: bool) -> None:
    timeline = update(folded=folded)
    assert steps(timeline, 2) == [[0, 0], [2, 3 * 256], [timeline.span_of("free_buffers")[1], 0]]


def test_two_buffers_without_an_h2d_buffer() -> None:
    assert peak_bytes(update(buffers=2)).bytes == 2 * 256


@pytest.mark.parametrize("folded", [False, True])
def test_the_peak_names_what_held_it(folded: bool) -> None:
    owners = (("kv cache", 1000.0), ("ipc0", 256.0), ("ipc1", 256.0), ("h2d", 256.0))
    assert peak_bytes(update(folded=folded), static_bytes={"kv cache": 1000}) == Peak(0, 1768.0, 2.0, owners)


def test_static_bytes_may_differ_by_rank() -> None:
    found = peaks(update(folded=True), static_bytes={"weights": [10, 20, 40, 30]})
    assert [peak.bytes - 3 * 256 for peak in found] == [10, 20, 40, 30]
    assert peak_bytes(update(folded=True), static_bytes={"weights": [10, 20, 40, 30]}).rank == 2


def test_host_buffers_that_are_only_read_were_there_before() -> None:
    assert steps(update(), 1, "host") == [[0, 512], [15, 0]]


def chain() -> Program:
    """Op i writes buffer i and reads buffer i - 1; nobody touches the last buffer."""
    builder = ProgramBuilder()
    lane = builder.lane(builder.place("r0", [0]), "compute")
    buffers = [builder.buffer(f"x{i}", 0, size) for i, size in enumerate((10, 20, 40, 80))]
    for i in range(3):
        reads = [(buffers[i - 1], 0, 1)] if i else []
        builder.op("step", [lane], reads=reads, writes=[(buffers[i], 0, 1)])
    return builder.build()


def test_a_buffer_ends_with_its_last_reader_before_the_next_begins() -> None:
    timeline = simulate(chain(), kind_costs(chain(), {"step": 1}))
    assert lifetimes(timeline)[["name", "start_s", "end_s"]].values.tolist() == [
        ["x0", 0, 2],
        ["x1", 1, 3],
        ["x2", 2, 3],
    ]
    assert steps(timeline, 0) == [[0, 10], [1, 30], [2, 60], [3, 0]]
    assert peak_bytes(timeline) == Peak(0, 60.0, 2.0, (("x2", 40.0), ("x1", 20.0)))
