"""Gantt charts as text: the unit case is the picture of the two-stage pipeline."""

import numpy as np
import pytest
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.program import ProgramBuilder
from runcast.simulator.systems.weight_update.lower import (
    BucketSize,
    Layout,
    make_plan,
    make_transfer,
    two_stage,
)
from runcast.simulator.systems.weight_update.methods import METHODS
from runcast.simulator.timeline import Timeline, chart
from runcast.simulator.timeline.ranks import few_ranks

from .text_gantt import text_gantt

PICTURE = """\
time               0   4   8   12  16
dev 0  H2D buffer  HHHH....HHHH.....
       IPC half 0  ....SLdL....SLdL.
       IPC half 1  .....dLdL....dLdL
dev 1  H2D buffer  HHHH....HHHH.....
       IPC half 0  ....dLdL....dLdL.
       IPC half 1  .....SLdL....SLdL
dev 2  H2D buffer  HHHH....HHHH.....
       IPC half 0  ....dLSL....dLSL.
       IPC half 1  .....dLdL....dLdL
dev 3  H2D buffer  HHHH....HHHH.....
       IPC half 0  ....dLdL....dLdL.
       IPC half 1  .....dLSL....dLSL

H = H2D, S = broadcast (source), d = broadcast (destination), L = reload
"""


def update(buffers: int = 3, ranks: int = 4, folded: bool = True, **seconds: float) -> Timeline:
    classes = [range(ranks)] if folded else None
    program = two_stage(make_plan(np.full(2 * ranks, 256), ranks, BucketSize(256, buffers), classes=classes))
    return simulate(program, kind_costs(program, {"h2d": 4, "broadcast": 1, "reload": 1} | seconds))


@pytest.mark.parametrize("folded", [False, True])
def test_two_stage_unit_case_is_the_picture(folded: bool) -> None:
    assert text_gantt(update(folded=folded), 1.0) == PICTURE


def test_without_an_h2d_buffer_the_owner_fills_the_half_itself() -> None:
    assert (
        text_gantt(update(buffers=2, ranks=2, allocate=1, h2d=2), 1.0, [0])
        == """\
time                0   4   8   12
dev 0  IPC half 0   .HHSL..HHSL...
       IPC half 1   ......dL....dL
       other steps  x.............

H = H2D, S = broadcast (source), d = broadcast (destination), L = reload, x = set-up, sync, clean-up
"""
    )


def test_rows_of_other_programs_are_lanes() -> None:
    builder = ProgramBuilder()
    place = builder.place("r0", [0])
    forward = builder.op("forward", [builder.lane(place, "compute")])
    builder.op("fetch", [builder.lane(place, "h2d")], [forward])
    program = builder.build()
    timeline = simulate(program, kind_costs(program, {"forward": 2, "fetch": 3}))
    assert (
        text_gantt(timeline, 1.0)
        == """\
time            0   4
dev 0  compute  ff...
       h2d      ..eee

f = forward, e = fetch
"""
    )


def test_every_op_stands_once_per_rank() -> None:
    bars = chart(update(), [0, 1])
    assert not bars.duplicated(["rank", "op"]).any()
    assert set(bars.row) == {"H2D buffer", "IPC half 0", "IPC half 1", "other steps"}


def transfer() -> Timeline:
    """Two stages of four trainers each, which send to eight receivers."""
    classes = [range(16)]
    plan = make_transfer(
        np.full(4, 256), np.zeros(4, bool), np.arange(4), trainers=range(8), receivers=range(8, 16),
        train=Layout(pp=2), inference=Layout(tp=8), bucket_bytes=256, classes=classes,
    )  # fmt: skip
    program = METHODS["stage_heads"].program(plan)
    return simulate(program, kind_costs(program, {"begin": 1, "gather": 2, "broadcast": 3}))


def test_what_only_prepares_has_one_label_in_updates_that_start_at_trainers() -> None:
    shown = chart(transfer())
    assert set(shown.label) == {"set-up, sync, clean-up", "gather", "broadcast", "reload"}


def test_heads_of_stages_are_shown_beside_the_classes_of_all_others() -> None:
    assert {0, 1, 4, 5, 8} <= set(few_ranks(transfer().program))
