"""Who waits for whom where ranks fall into several classes; the closed forms cannot see it, as all ranks are alike."""

import numpy as np
import pytest
from runcast.simulator.systems.weight_update.lower import BucketSize, make_plan, serial, two_stage


@pytest.mark.parametrize("write", [two_stage, serial])
@pytest.mark.parametrize("buffers", [2, 3])
def test_a_broadcast_waits_until_every_server_has_sent_the_metadata_before(write, buffers):
    program = write(make_plan(np.ones(8, int) * 2**20, 4, BucketSize(2**20, buffers), classes=[range(2), range(2, 4)]))
    bucket = program.tags["bucket"]
    for op in np.flatnonzero(program.is_kind("broadcast") & (bucket > 0)):
        told = np.flatnonzero(program.is_kind("send_meta") & (bucket == bucket[op] - 1))
        assert len(told) == 2
        assert set(told.tolist()) <= set(program.deps[op].tolist())
