"""A History as a Timeline: its spans and events as ops on lanes, for charts, traces and CSV files."""

import numpy as np

from ...program import ProgramBuilder
from ...timeline import Timeline
from .history import History, Span


def timeline(history: History) -> Timeline:
    """Spans in the order of their start, and events, which take no time; a place for each lane."""
    events = [Span("events", one.what, one.at_s, one.at_s, f"{one.what}: {one.detail}") for one in history.events]
    builder, lanes = ProgramBuilder(), dict[str, int]()
    spans = sorted([*history.spans, *events], key=lambda span: span.start_s)
    for span in spans:
        if span.lane not in lanes:
            lanes[span.lane] = builder.lane(builder.place(span.lane, [len(lanes)]), "run")
        builder.op(span.kind, [lanes[span.lane]], (), name=span.name or span.kind)
    return Timeline(
        program=builder.build(),
        start_s=np.array([span.start_s for span in spans]),
        end_s=np.array([span.end_s for span in spans]),
        cause=np.full(len(spans), -1),
        cancelled=np.zeros(len(spans), bool),
    )
