"""Cost classes: names, features, and what their coefficients may be."""

import numpy as np
import pytest
from runcast.simulator import UserError
from runcast.simulator.hardware import Limits
from runcast.simulator.profile.forms import FEATURES, cost_class, known_classes

H = Limits({"bf16": 1e15}, 3e12, 100, 50e6, 400e9, 60e9, 50e9, 8)

CLASSES = [name.replace("<name>", "anything") for name in known_classes()]


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_reads_known_features_only(name):
    known = cost_class(name)
    assert set(known.features) <= set(FEATURES)


@pytest.mark.parametrize("name", CLASSES)
def test_coefficients_start_within_their_bounds(name):
    coefficients = cost_class(name).form.coefficients
    assert all(0 < c.low <= c.start <= c.high < np.inf for c in coefficients)


@pytest.mark.parametrize("name", ["", "all_reduces", "memory", "memory.", "gemm.bf17", "gemm.bf16.forward", ".add"])
def test_what_is_no_class(name):
    assert cost_class(name) is None


def test_columns_have_one_length_and_the_line_rate_of_the_hardware():
    columns = cost_class("all_reduce.network").columns({"bytes": [1, 2, 3], "gpus": 16, "nodes": 2}, H)
    assert {name: column.tolist() for name, column in columns.items()} == {
        "bytes": [1, 2, 3],
        "gpus": [16, 16, 16],
        "nodes": [2, 2, 2],
        "network_bytes_per_s": [400e9, 400e9, 400e9],
        "hop_s": [0, 0, 0],
    }


def test_a_feature_that_is_missing_is_named():
    with pytest.raises(UserError, match="gpus: missing"):
        cost_class("all_reduce").columns({"bytes": 1}, H)
