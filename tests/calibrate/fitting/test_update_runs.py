"""A few weight updates of one's own, as a stack: what made them is told, others are predicted, faults are one line."""

import csv
import tomllib

import numpy as np
import pytest
from runcast.calibrate.fitting.learning import Parts
from runcast.calibrate.fitting.update_runs import learn_parameters, learn_updates
from runcast.simulator.answers.validate.updates import read_cases, read_ledger, shipped_table
from runcast.simulator.base.errors import UserError
from runcast.simulator.profile import Z90, load_stack, meaning_of

from ...command import runcast

BASE = "checkpoint-engine"
SLOWER = {"reload.tensor_s": 1.5, "gather.tensor_s": 1.5}
"""How the stack of the rows below differs from the base: loading and gathering take longer."""

OWN, OTHERS = (2, 3, 4, 8), (9, 10)
"""Lines of the ledger, all on H800: updates of two models."""


def write(path, rows):
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return path


def published(*lines):
    """The cells of rows of the shipped ledger, without what tells whose they were."""
    with shipped_table().open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [rows[line - 2] | {"system": "our own"} for line in lines]


def slowed(path, rows, wanted=None):
    """A table of these updates as they would take with `SLOWER`."""
    cases, stated = read_cases(write(path, rows), BASE), load_stack(BASE)
    values = {name: stated.value(name) * factor for name, factor in (wanted or SLOWER).items()}
    times = [f"{case.answer(values).seconds:.6g}" for case in cases]
    return write(path, [row | {"seconds": seconds} for row, seconds in zip(rows, times, strict=True)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("updates")
    return slowed(folder / "own.csv", published(*OWN)), slowed(folder / "others.csv", published(*OTHERS))


@pytest.fixture(scope="module")
def learned(runs):
    return learn_updates([runs[0]], BASE)


@pytest.fixture(scope="module")
def stack(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("stack") / "mine.toml"
    assert (
        runcast("calibrate", "runs", runs[0], "--kind", "weight_update", "--base", BASE, "--out", path).returncode == 0
    )
    return path


def changed(path, folder, line, **cells):
    """A copy of a table whose row `line` has other cells."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows[line] |= cells
    return write(folder / "runs.csv", rows)


def learn_at(folder, table, base=BASE):
    """`runcast calibrate runs` on a table, and whether it wrote a stack."""
    out = folder / "mine.toml"
    done = runcast("calibrate", "runs", table, "--kind", "weight_update", "--base", base, "--out", out)
    return done, out.exists()


@pytest.mark.slow
def test_what_made_the_rows_is_in_the_intervals(learned):
    at = [learned.parameters.names.index(name) for name in SLOWER]

    off = np.abs(learned.posterior.u[at] - np.log([*SLOWER.values()]))

    assert (off < Z90 * learned.deviation[at]).all()


def test_what_rows_show_alone_they_tell(learned):
    """Two rows time the gathering of metadata and nothing else."""
    values = learned.parameters.values(learned.posterior.u)

    assert values["gather.tensor_s"] / load_stack(BASE).value("gather.tensor_s") == pytest.approx(1.5, rel=0.05)


def test_what_no_row_tells_of_stays_as_it_was(learned):
    assert not {"handle.open_s", "replica.byte_s"} & {*learned.parameters.names}


def test_what_a_fit_knows_of_the_ledgers_sites_is_unsure_elsewhere(learned):
    """The fit of checkpoint-engine's rows knows their loader to 4 %; software of others may load otherwise."""
    known, before = learned.parameters.known["reload.tensor_s"], load_stack(BASE, fitted=False)["reload.tensor_s"]

    assert (known.value, known.spread) == (load_stack(BASE).value("reload.tensor_s"), before.spread)


def test_a_parameter_is_no_less_sure_than_before(learned):
    assert (learned.deviation <= np.sqrt(np.diag(learned.prior)) + 1e-12).all()


def test_other_updates_are_predicted(runs, stack):
    median = {of: read_ledger(runs[1], stack=of).table["error"].abs().median() for of in (BASE, str(stack))}

    assert median[str(stack)] < median[BASE] / 2


@pytest.mark.slow
def test_intervals_shrink_as_spreads_do(runs, tmp_path):
    """On the base whose loader nobody has measured, which own rows do."""
    out = tmp_path / "mine.toml"
    runcast("calibrate", "runs", runs[0], "--kind", "weight_update", "--base", "generic", "--out", out)

    before, after = (read_cases(runs[1], of)[1].answer() for of in ("generic", str(out)))
    assert after.high_s / after.low_s < before.high_s / before.low_s


def test_one_update_gives_not_all_that_is_unexpected_to_what_is_least_known():
    """Of 5 s a large part may be off by a quarter, one of 0.3 s by e times: 18 times that is as likely, and wrong."""
    parts = Parts.one_cause_each(np.array([[4.7, 0.3]]))

    found = learn_parameters(parts, np.array([7.5]), np.diag([0.25, 1.0]) ** 2, 0.08)

    assert np.exp(found.u)[1] < 3


def test_a_stack_of_updates_says_where_its_numbers_come_from(stack):
    found = tomllib.loads(stack.read_text())

    entries = found["parameters"].values()
    assert (found["base"], {entry["provenance"] for entry in entries}, "covariance" in found) == (
        BASE,
        {"fitted"},
        False,
    )
    assert all("4 runs of own.csv" in entry["source"] for entry in entries)


def test_what_was_learned_is_said_in_words(learned):
    said = next(line for line in learned.lines() if "times as long" in line).split()

    assert (said[0], float(said[1])) == ("gather.tensor_s", pytest.approx(1.5, rel=0.05))


@pytest.mark.slow
def test_an_update_that_disagrees_is_named(runs, tmp_path):
    seconds = float(read_cases(runs[0], BASE)[1].cells["seconds"])
    longer = changed(runs[0], tmp_path, 1, seconds=f"{3 * seconds:g}")

    said = [line.split()[1] for line in learn_updates([longer], BASE).lines() if line.startswith("disagrees")]

    assert f"{longer}:3" in said


@pytest.mark.slow
def test_one_update_is_enough_and_a_learned_stack_may_be_a_base(runs, tmp_path):
    one = write(tmp_path / "one.csv", slow := published(OWN[1]))
    slowed(one, slow)
    first, second = tmp_path / "mine.toml", tmp_path / "second.toml"
    learn_at(tmp_path, one)

    done = runcast("calibrate", "runs", runs[1], "--kind", "weight_update", "--base", first, "--out", second)

    known = [load_stack(str(of))["reload.tensor_s"].spread for of in (first, second)]
    assert (done.returncode, known[1] < known[0]) == (0, True)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"seconds": "19800"}, r":4: seconds = 19800: predicted is .*; expected seconds of one weight update$"),
        ({"seconds": ""}, r":4: seconds = '': expected a number above zero$"),
        ({"seconds": "fast"}, r":4: seconds = 'fast': expected a number above zero$"),
        ({"tp": "5"}, r":4: update.inference.tp = 5: must divide "),
        ({"method": "pigeon"}, r":4: method = 'pigeon': unknown; known: .*colocated"),
        ({"gpu": "H20"}, r":4: gpu = 'H20': expected one gpu in all runs, as in .*:2: 'H800'$"),
        ({"system": "verl"}, r":4: system = 'verl': expected one system in all runs, as in .*:2: 'our own'$"),
        ({"phase": "gather"}, r":4: phase = 'gather': no prediction has it; did you mean gather_metas\?$"),
        ({"phase": "foo"}, r":4: phase = 'foo': no prediction has it; known: update, .*, rebuild\+load$"),
        ({"dst_gpus": "", "src_gpus": ""}, r":4: the number of GPUs is not stated$"),
    ],
)
def test_a_row_that_is_no_update_is_one_line_and_nothing_is_written(runs, tmp_path, cells, said):
    wrong = changed(runs[0], tmp_path, 2, **cells)

    done, written = learn_at(tmp_path, wrong)

    assert (done.returncode, written, len(done.stderr.splitlines())) == (2, False, 1)
    with pytest.raises(UserError, match=said):
        learn_updates([wrong], BASE)


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("megatron-core", "is a stack of training steps; expected one of weight updates: checkpoint-engine, "),
        ("data/profiles/h100-sxm.json", "expected a software stack, not a device's profile"),
    ],
)
def test_a_base_of_another_kind_is_refused(runs, tmp_path, base, said):
    done, written = learn_at(tmp_path, runs[0], base)

    assert (done.returncode, written, said in done.stderr) == (2, False, True)


def test_a_missing_column_is_named(runs, tmp_path):
    rows = [{key: cell for key, cell in row.items() if key != "seconds"} for row in published(*OWN)]

    with pytest.raises(UserError, match=r"runs.csv:1: no column seconds; expected those of data/validation/"):
        learn_updates([write(tmp_path / "runs.csv", rows)], BASE)


def test_repeated_updates_that_contradict_each_other_are_refused(tmp_path):
    """The gather of metadata and the whole are two parts of one configuration; equal parts have to be near."""
    row = published(OWN[1])[0]
    table = write(tmp_path / "runs.csv", [row, row | {"seconds": "25"}])

    with pytest.raises(UserError, match=r"runs.csv:2 and .*runs.csv:3: the same configuration took 3.47 s and 25 s"):
        learn_updates([table], BASE)


def test_a_log_and_a_cluster_go_with_steps_only(runs, tmp_path):
    of_updates = ("--kind", "weight_update", "--base", BASE, "--out", tmp_path / "mine.toml")

    said = [
        runcast("calibrate", "runs", *arguments, *of_updates).stderr
        for arguments in (("first.log",), (runs[0], "--cluster", "dgx-h100"))
    ]

    assert said == [
        "error: first.log: logs are read of training steps only; expected a table of weight updates\n",
        "error: --cluster: goes with --kind train_step only\n",
    ]


def test_a_scenario_file_in_a_column_is_an_update_too(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'kind = "weight_update"\ncluster = "h20-hgx"\nnodes = 2\nstack = "miles"\n'
        'model = { preset = "deepseek-v3.1" }\n'
        'update = { method = "broadcast", inference = { tp = 16 } }\n'
    )
    table = slowed(tmp_path / "runs.csv", [{"scenario": "mine.toml", "seconds": "1"}], {"reload.tensor_s": 3.0})

    found = learn_updates([table], BASE)

    assert (found.runs[0].stack, found.before[0] < found.after[0] < 0) == (BASE, True)


def test_what_parameters_cannot_explain_is_not_said_to_be_learned(tmp_path):
    """Updates twice as fast as predicted, of which the network alone takes more: the second sum leads away again."""
    row = {"system": "our own", "model": "m", "gpu": "H800", "gpus_per_node": "8", "transport": "nccl", "seconds": "1",
           "method": "broadcast_two_stage", "bucket_bytes": "3242700308"}  # fmt: skip
    large = {"src_gpus": "16", "dst_gpus": "16", "tp": "16", "bytes": "470000000000", "n_tensors": "55000"}
    small = {"src_gpus": "8", "dst_gpus": "8", "tp": "8", "bytes": "60000000000", "n_tensors": "400"}
    reads = {"method": "p2p_read+broadcast", "transport": "rdma_mooncake+nccl"}
    rows = [row | size | how for size in (large, small) for how in ({}, reads)]
    cases = read_cases(write(tmp_path / "runs.csv", rows), "generic")
    halves = [row | {"seconds": f"{case.answer_s({}) / 2:g}"} for row, case in zip(rows, cases, strict=True)]

    found = learn_updates([write(tmp_path / "runs.csv", halves)], "generic")

    missed = np.median(np.abs(found.after))
    assert (missed < 0.25, missed < 1.2 * np.median(np.abs(found.without))) == (True, True)


def test_the_same_is_spelled_out():
    assert meaning_of("replica.expert_byte_s") == "copying a byte into a host replica, for pieces of experts"
