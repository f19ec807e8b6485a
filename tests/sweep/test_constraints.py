"""Constraints: what is read, what is refused, what holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError, simulate
from runcast.simulator.answers.sweep import flat_columns
from runcast.simulator.answers.sweep.columns import columns_of
from runcast.simulator.answers.sweep.constraints import (
    column_dimension,
    key_dimension,
    product_dimension,
    read_constraint,
    values_in_row,
)  # fmt: skip
from runcast.simulator.report.columns import named_values

from .conftest import ROOT


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("parallel.tp * parallel.pp <= 32", (("parallel.tp", "parallel.pp"), "<=", 32.0)),
        ("peak_memory_bytes<=80 GiB", (("peak_memory_bytes",), "<=", 80 * 2.0**30)),
        ("peak_memory_bytes <= '60 GiB'", (("peak_memory_bytes",), "<=", 60 * 2.0**30)),
        ("step_time_s < 500 ms", (("step_time_s",), "<", 0.5)),
        ("cluster.nic == 400 Gb/s", (("cluster.nic",), "==", 5e10)),
        ("a*b*c > -1e-3", (("a", "b", "c"), ">", -1e-3)),
    ],
)
def test_a_constraint_is_names_a_comparison_and_a_number(text, read):
    one = read_constraint(text, "sweep.toml", "constraints.0")

    assert (one.names, one.compare, one.limit) == read


@pytest.mark.parametrize(
    "text", ["", "a", "a <= ", "<= 3", "a <= b", "a + b <= 3", "1 <= a <= 3", "a * <= 3", "a * a <= 4", "f(a) <= 3"]
)
def test_anything_else_is_one_line(text):
    with pytest.raises(UserError, match=r"^sweep.toml: constraints.0 = ") as refused:
        read_constraint(text, "sweep.toml", "constraints.0")

    assert len(refused.value.faults) == 1


@given(st.integers(-50, 50), st.integers(-50, 50), st.sampled_from(["<=", "<", ">=", ">", "=="]), st.integers(-99, 99))
def test_the_product_is_compared(a, b, compare, limit):
    one = read_constraint(f"a * b {compare} {limit}", "here", "constraints.0")
    expected = {"<=": a * b <= limit, "<": a * b < limit, ">=": a * b >= limit, ">": a * b > limit}

    assert one.holds({"a": a, "b": b}) is expected.get(compare, a * b == limit)


def test_what_has_no_value_breaks_a_constraint_and_says_so():
    one = read_constraint("cost_usd < 3", "here", "constraints.0")
    values = values_in_row(one.names, {"cost_usd": None}, "train_step")

    assert (one.holds(values), one.reason(values)) == (False, "cost_usd < 3: cost_usd is not given")


def test_a_phase_that_the_report_leaves_out_takes_no_time_and_what_it_does_not_say_is_not_given():
    values = values_in_row(("exposed_tp_s", "goodput"), {}, "train_step")

    assert values == {"exposed_tp_s": 0.0, "goodput": None}


SMALL = ["tiny-2ranks", "tiny-colocated", "tiny-p2p", "tiny-stage-heads", "rl-split-given-update-8xh100-nodes"]


@pytest.mark.parametrize("name", SMALL)
def test_columns_of_a_report_are_known(name):
    found = simulate(ROOT / f"data/scenarios/{name}.toml").report.to_json()

    assert [column for column in flat_columns(found) if column not in columns_of(found["kind"])] == []


def test_columns_of_a_training_step_are_known():
    changes = ["level=coarse", "model.preset=qwen3-30b-a3b", "lora={}", "run={tokens=1e9}"]
    found = simulate(ROOT / "data/scenarios/train-qwen3-30b-a3b-16xh100.toml", changes).report.to_json()

    assert [column for column in flat_columns(found) if column not in columns_of("train_step")] == []


def test_no_column_comes_twice():
    found = simulate(ROOT / "data/scenarios/train-qwen3-30b-a3b-16xh100.toml", ["level=coarse"]).report.to_json()
    names = [name for name, _ in named_values(found)]

    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("kind", "key", "of"),
    [
        ("weight_update", "update.bucket", "bytes"),
        ("weight_update", "update.storage.write", "bytes_per_s"),
        ("weight_update", "update.drain", "seconds"),
        ("weight_update", "nodes", "number"),
        ("weight_update", "cluster.nic", "bytes_per_s"),
        ("weight_update", "cluster.nics", "number"),
        ("weight_update", "cluster.device.memory", "bytes"),
        ("weight_update", "cluster.device.memori", "unknown"),
        ("train_step", "run.gpu_mtbf", "seconds"),
        ("train_step", "run.tokens", "number"),
        ("rl_cycle", "rollout.token_time", "seconds"),
        ("run", "failures.cause.0.mtbf", "seconds"),
    ],
)
def test_a_key_is_of_a_dimension(kind, key, of):
    assert key_dimension(kind, key, {"cluster": "dgx-h100"}, "here") == of


@pytest.mark.parametrize(
    ("names", "of"),
    [
        (["step_time_s"], "seconds"),
        (["peak_memory_bytes", "gpus"], "bytes"),
        (["effective_bytes_per_s", "update_time_s"], "bytes"),
        (["effective_bytes_per_s"], "bytes_per_s"),
        (["tokens_per_s"], "number"),
        (["bytes", "bytes"], "number"),
    ],
)
def test_a_product_of_columns_is_of_a_dimension(names, of):
    assert product_dimension([column_dimension(name) for name in names]) == of


def test_sizes_in_a_reason_are_readable():
    one = read_constraint("peak_memory_bytes <= 80 GiB", "here", "constraints.0")

    assert one.reason({"peak_memory_bytes": 2.0**37}).endswith(": peak_memory_bytes = 128 GiB")
