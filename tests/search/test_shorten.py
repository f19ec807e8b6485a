"""A schedule that is cut short holds as much as the whole one does, at every rank, whatever its stages keep."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.answers.search.floors import enough_microbatches, in_flight
from runcast.simulator.base.memo import Memo
from runcast.simulator.schedules import build

from ..examples import examples


@examples(60)
@given(
    name=st.sampled_from(["1f1b", "interleaved", "interleaved-overlap"]), ranks=st.integers(1, 6),
    groups=st.integers(1, 9), wider=st.integers(0, 3), chunks=st.integers(1, 4), rest=st.integers(0, 3),
    kept=st.lists(st.integers(0, 99), min_size=24, max_size=24),
)  # fmt: skip
def test_a_short_schedule_holds_as_much_as_a_long_one(name, ranks, groups, wider, chunks, rest, kept):
    group = ranks + wider if name != "1f1b" else None
    many, chunks = groups * (group or ranks), chunks if group else 1
    many += rest if not group or ranks <= rest < group else 0
    options = {"group": group} if group else {}
    few, of_stage = enough_microbatches(name, ranks, many, chunks, group), np.array(kept)

    held = [
        [
            (counts @ of_stage[list(own)]).max()
            for own, counts in in_flight(build(name, ranks, m, chunks, **options), Memo())
        ]
        for m in (few, many)
    ]

    assert (few <= many, held[0]) == (True, held[1])
