"""Equal keys as groups: what numpy's unique gives, by a table where keys are small."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.program import group_equal


@pytest.mark.parametrize("largest", [0, 5, 2**40], ids=["equal", "small", "large"])
@given(data=st.data())
def test_groups_are_those_of_unique(largest, data):
    keys = np.array(data.draw(st.lists(st.integers(0, largest), max_size=30)), np.int64)
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)

    found = group_equal(keys)

    assert [column.tolist() for column in found] == [first.tolist(), which.tolist()]
