"""What `--set`, axes and what-ifs do to a scenario's table."""

import pytest
from runcast.simulator import simulate
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.memo import Memo
from runcast.simulator.scenario import change, check_question, parse_changes, what_ifs

TABLE = {"kind": "train_step", "cluster": "dgx-h100", "nodes": 2, "batch": {"global": 8, "micro": 2}}


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("nodes=4", "nodes", 4),
        ("update.bucket=2 GiB", "update.bucket", "2 GiB"),
        ("batch.micro={times=2}", "batch.micro", {"times": 2}),
    ],
)
def test_lines_are_toml_or_text(line, key, value):
    assert parse_changes([line]) == {key: value}


def test_a_plan_is_all_that_a_file_says_of_one(tmp_path):
    """What it leaves out is as by default; dp, the batch and the rest stay those of the table."""
    winner = tmp_path / "winner.toml"
    winner.write_text(
        'kind = "train_step"\n[parallel]\ntp = 2\ndp = 4\n[schedule]\nname = "1f1b"\n[batch]\nglobal = 64\nmicro = 1\n'
    )
    table = {**TABLE, "kind": "run", "parallel": {"pp": 4}, "recompute": {"mode": "full"}, "overlap": {"tp": False}}

    assert change(table, {"plan": str(winner), "nodes": 8}, "x") == {
        **table, "parallel": {"tp": 2}, "schedule": {"name": "1f1b"}, "recompute": {}, "offload": {}, "nodes": 8,
        "batch": {"global": 8, "micro": 1},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "plan", "line"),
    [
        ("weight_update", "tiny-2ranks", "x: plan = 'tiny-2ranks': training steps and runs alone have a plan"),
        ("run", "tiny-2ranks", "tiny-2ranks: parallel: is missing; expected a plan, such as a search's winner.toml"),
        ("run", 3, "--set: plan = 3: expected a file, such as out/winner.toml"),
        ("run", "/away/winner.toml", "--set: plan = '/away/winner.toml': no such file: /away/winner.toml"),
    ],
)
def test_what_has_no_plan_is_one_line(kind, plan, line):
    with pytest.raises(UserError) as error:
        change({**TABLE, "kind": kind}, {"plan": plan}, "x")

    assert error.value.faults == (line,)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"batch.micro": {"times": 2}}, {"batch": {"global": 8, "micro": 4}}),
        ({"experts.zipf": {"times": 0.5}}, {"experts": {"zipf": 0.5}}),
        ({"batch.micro": {"times": 0.5}}, {"batch": {"global": 8, "micro": 1}}),
        ({"bucket": "1 MiB", "bucket.": 1}, None),
        ({"cluster.nic": {"times": 2}}, {"cluster": {"base": "dgx-h100", "nic": "800 Gb/s"}}),
        ({"cluster.nics": {"times": 0.5}}, {"cluster": {"base": "dgx-h100", "nics": 4}}),
        ({"cluster.device": "h200"}, {"cluster": {"base": "dgx-h100", "device": "h200"}}),
        (
            {"cluster.device.peak_flop_per_s.bf16": {"times": 2}},
            {
                "cluster": {
                    "base": "dgx-h100",
                    "device": {"base": "h100-sxm", "peak_flop_per_s": {"bf16": "1978.8 TFLOP/s"}},
                }
            },
        ),
    ],
)
def test_changes(changes, expected):
    if expected is None:
        with pytest.raises(UserError, match="bucket is a value, not a table"):
            change(TABLE, changes, "a.toml")
    else:
        assert change(TABLE, changes, "a.toml") == {**TABLE, **expected}


def test_two_changes_below_one_key():
    peaks = {f"cluster.device.peak_flop_per_s.{kind}": {"times": 2} for kind in ("bf16", "fp8")}
    device = change(TABLE, peaks, "a.toml")["cluster"]["device"]

    assert device["peak_flop_per_s"] == {"bf16": "1978.8 TFLOP/s", "fp8": "3957.8 TFLOP/s"}


RUN = {"kind": "run", "failures": {"cause": [{"name": "GPU", "mtbf": "10 h"}, {"name": "host", "mtbf": "20 h"}]}}


@pytest.mark.parametrize(("value", "expected"), [("1 h", "1 h"), ({"times": 0.5}, "10 h")])
def test_a_number_names_a_table_of_a_list(value, expected):
    changed = change(RUN, {"failures.cause.1.mtbf": value}, "a.toml")

    assert [one["mtbf"] for one in changed["failures"]["cause"]] == ["10 h", expected]


@pytest.mark.parametrize("key", ["failures.cause.2.mtbf", "failures.cause.host.mtbf", "failures.cause.0.mtbf.x"])
def test_a_table_that_a_list_does_not_have_is_a_fault(key):
    wanted = r"expected a number from 0 to 1 and a key behind failures\.cause, as in failures\.cause\.0\.KEY$"
    with pytest.raises(UserError, match=wanted):
        change(RUN, {key: "1 h"}, "a.toml")


def test_the_given_table_stays():
    before = repr(TABLE)

    change(TABLE, {"batch.micro": 4, "cluster.nics": 1}, "a.toml")

    assert repr(TABLE) == before


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"nodes": {"times": "two"}}, "a.toml: nodes.times = 'two': expected a number"),
        ({"batch.micro": {"times": 0.3}}, "a.toml: batch.micro = 2: times 0.3: is no whole number"),
        ({"bucket": {"times": 2}}, "a.toml: bucket = {'times': 2}: nothing to multiply: the scenario does not say it"),
        ({"cluster": {"times": 2}}, "a.toml: cluster = 'dgx-h100': times 2: is not a quantity"),
        ({"cluster.nick": {"times": 2}}, "nothing to multiply"),
        ({"a." * 3000 + "b": 1}, ": expected at most 100 names"),
    ],
)
def test_faults_are_one_line(changes, line):
    with pytest.raises(UserError) as caught:
        change(TABLE, changes, "a.toml")

    assert line in str(caught.value)
    assert len(caught.value.faults) == 1


SCENARIOS = (
    {
        "kind": "weight_update", "cluster": "dgx-h100", "nodes": 2, "model": {"preset": "qwen3-30b-a3b"},
        "update": {"bucket": "1 GiB"},
    },
    {
        "kind": "weight_update", "cluster": "dgx-h100", "nodes": 2, "model": {"preset": "qwen3-30b-a3b"},
        "stack": "checkpoint-engine",
        "update": {"method": "single_sender", "bucket": "1 GiB", "trainer": {"gpus": 8}, "inference": {"tp": 8}},
    },
    {
        "kind": "train_step", "cluster": "dgx-h100", "nodes": 2, "level": "coarse",
        "model": {"preset": "qwen3-30b-a3b"}, "parallel": {"pp": 2, "ep": 8},
        "batch": {"global": 64, "micro": 2, "seq_len": 2048},
    },
    {
        "kind": "train_step", "cluster": "dgx-h100", "nodes": 2, "level": "coarse",
        "model": {"preset": "llama3-8b"}, "parallel": {"pp": 2, "tp": 2},
        "batch": {"global": 64, "micro": 2, "seq_len": 2048},
    },
    {
        "kind": "train_step", "cluster": "dgx-h100", "model": {"preset": "gpt2"}, "parallel": {"zero": 2},
        "batch": {"global": 16, "seq_len": 1024},
    },
    {
        "kind": "weight_update", "cluster": "dgx-h100", "nodes": 2, "model": {"preset": "qwen3-0.6b"},
        "update": {"method": "p2p", "bucket": "1 GiB", "readers": "one", "ranks": 8},
    },
    {
        "kind": "weight_update", "cluster": "dgx-h100", "nodes": 2, "model": {"preset": "qwen3-0.6b"},
        "update": {"method": "static_writes", "registration": "new", "trainer": {"gpus": 8}, "inference": {"tp": 8}},
    },
)  # fmt: skip


MEMO = Memo()
OF_RUNS = [name for name, one in what_ifs().items() if one.subject == "run"]  # in tests/explain/test_explain_run.py


@pytest.mark.parametrize("name", [name for name in what_ifs() if name not in OF_RUNS])
def test_every_shipped_what_if_goes_with_a_scenario(name):
    predicted, refused = [], []
    for table in SCENARIOS:
        try:
            given = check_question(change(table, what_ifs()[name].changes, "a.toml"))
            predicted.append(simulate(given, memo=MEMO).report.to_json()["makespan_s"])
        except UserError as error:
            refused.append(str(error))

    assert [seconds > 0 for seconds in predicted], refused
