"""Scenarios as TOML: what is written reads back as the same values."""

import tomllib
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.base.files import read_toml
from runcast.simulator.scenario import to_toml

SCENARIOS = sorted(
    (file for file in (files("runcast.data") / "scenarios").iterdir() if file.name.endswith(".toml")),
    key=lambda file: file.name,
)
PLAIN = st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_values_read_back(table):
    assert tomllib.loads(to_toml(table)) == table


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.name)
def test_shipped_scenarios_read_back(file):
    assert tomllib.loads(to_toml(read_toml(file))) == read_toml(file)


def test_what_says_nothing_is_left_out():
    assert to_toml({"a": None, "b": {"c": None, "d": {"e": None}}}) == "[b]\nd = {}\n"
