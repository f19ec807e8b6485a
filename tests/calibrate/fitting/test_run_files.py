"""What is wrong with runs of one's own is one line each, before anything is simulated; nothing is written then."""

import csv

import pytest
from runcast.calibrate.fitting.run_files import read_runs
from runcast.simulator import engine
from runcast.simulator.answers.validate.steps import shipped_table

from ...command import runcast

BASE = "megatron-core"


@pytest.fixture
def rows():
    """Three small steps of one source as dictionaries."""
    with shipped_table().open(newline="") as file:
        found = [row for row in csv.DictReader(file) if row["source"] == "simumax_b200" and row["arch"] == "dense"]
    return sorted(found, key=lambda row: float(row["gbs"]) / float(row["dp"]) * float(row["layers"]))[:3]


@pytest.fixture
def learn(tmp_path, monkeypatch):
    """Write tables, learn from them; (exit code, lines of errors, whether a stack was written). Simulates nothing."""

    def fail(*_):
        raise AssertionError("simulated before faults were found")

    monkeypatch.setattr(engine, "simulate", fail)

    def run(*tables, base=BASE, out="mine.toml"):
        names = [f"own{place or ''}.csv" for place in range(len(tables))]
        for name, table in zip(names, tables, strict=True):
            write(tmp_path / name, table)
        done = runcast("calibrate", "runs", *names, "--base", base, "--out", out, cwd=tmp_path)
        lines = [line.removeprefix("error: ") for line in done.stderr.splitlines()]
        return done.returncode, lines, (tmp_path / out).exists()

    return run


def write(path, rows):
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


def without(rows, *columns):
    return [{key: cell for key, cell in row.items() if key not in columns} for row in rows]


def tokens(row, times=1.0):
    """Tokens per second of one GPU, times a factor."""
    return str(times * float(row["gbs"]) * float(row["seq_len"]) / float(row["iter_time_s"]) / float(row["n_gpus"]))


def test_a_stack_of_updates_is_no_base(rows, learn):
    code, lines, written = learn(rows, base="slime")

    said = "--base = 'slime': is a stack of weight updates; expected one of training steps: nanotron, "
    assert (code, len(lines), lines[0].startswith(said), written) == (2, 1, True, False)


def test_a_folder_that_is_not_there_is_found_first(rows, learn, tmp_path):
    code, lines, _ = learn(rows, out="no/mine.toml")

    assert (code, lines) == (2, [f"no/mine.toml: cannot be written: there is no folder {tmp_path / 'no'}"])


def test_a_missing_column_is_one_line(rows, learn):
    found = learn(without(rows, "iter_time_s", "tokens_per_s_per_gpu"))

    said = "own.csv:1: no column iter_time_s; expected seconds of one step, or tokens_per_s_per_gpu"
    assert found == (2, [said], False)


def test_runs_of_one_configuration_that_contradict_each_other_are_both_named(rows, learn):
    twice = without([*rows, {**rows[1], "id": "again", "iter_time_s": str(2 * float(rows[1]["iter_time_s"]))}],
                    "tokens_per_s_per_gpu")  # fmt: skip
    code, lines, written = learn(twice)

    assert (code, len(lines), lines[0].startswith("own.csv:3 and own.csv:5: the same configuration took"), written) == (
        2, 1, True, False,
    )  # fmt: skip


def test_runs_of_two_files_are_compared_too(rows, learn):
    plain = without(rows, "tokens_per_s_per_gpu")
    code, lines, _ = learn(plain, [{**plain[0], "iter_time_s": str(2 * float(plain[0]["iter_time_s"]))}])

    assert (code, [line.split(":", 2)[0] for line in lines]) == (2, ["own.csv"])
    assert "own1.csv:2: the same configuration" in lines[0]


def test_milliseconds_are_told_by_the_peak_of_the_gpus(rows, learn):
    rows[1] |= {"iter_time_s": str(1000 * float(rows[1]["iter_time_s"])), "tokens_per_s_per_gpu": ""}
    code, lines, written = learn(rows)

    assert (code, len(lines), lines[0].endswith("expected seconds of one step, not milliseconds"), written) == (
        2, 1, True, False,
    )  # fmt: skip


def test_tokens_of_a_node_are_told_by_the_time(rows, learn):
    rows[2]["tokens_per_s_per_gpu"] = tokens(rows[2], float(rows[2]["gpus_per_node"]))
    code, lines, _ = learn(rows)

    assert (code, len(lines), lines[0].startswith("own.csv:4: tokens_per_s_per_gpu = ")) == (2, 1, True)
    assert lines[0].endswith("tokens/s of one GPU, as the time of the step says; this is that of a node")


def test_tokens_of_a_node_are_told_by_the_peak_where_no_time_stands(rows, learn):
    rows[2] |= {"tokens_per_s_per_gpu": tokens(rows[2], float(rows[2]["gpus_per_node"])), "iter_time_s": ""}
    code, lines, _ = learn(rows)

    assert (code, len(lines), lines[0].endswith("expected tokens/s of one GPU, not of a node of 8")) == (2, 1, True)


def test_tokens_per_second_are_a_time(rows, tmp_path):
    write(tmp_path / "own.csv", [{**row, "tokens_per_s_per_gpu": tokens(row), "iter_time_s": ""} for row in rows])
    found = [run.seconds for run in read_runs([tmp_path / "own.csv"], BASE)]

    assert found == pytest.approx([float(row["iter_time_s"]) for row in rows])


def test_faults_are_listed_by_line(rows, learn):
    rows[0]["tp"], rows[1]["iter_time_s"], rows[2]["gpu"] = "3", "fast", "Z900"
    code, lines, _ = learn(rows)

    assert (code, [line.split()[0] for line in lines]) == (2, ["own.csv:2:", "own.csv:3:", "own.csv:4:"])


def test_another_accumulation_than_that_of_the_batch_is_refused(rows, learn):
    micro_batches = int(rows[1]["gbs"]) // (int(rows[1]["mbs"]) * int(rows[1]["dp"]))
    rows[1]["grad_accum"] = str(micro_batches + 1)
    said = f"own.csv:3: grad_accum = {micro_batches + 1}: expected gbs / (mbs x dp) = {micro_batches}"

    assert learn(rows) == (2, [said], False)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("tflops_per_gpu", "2999", "is above the 1,654 TFLOP/s of B200 SXM in bf16; expected TFLOP/s of one GPU"),
        ("tflops_per_gpu", "8", "expected some 826 TFLOP/s of one GPU, as the time of the step says"),
        ("mfu_pct", "101", "expected at most 100"),
        ("mfu_pct", "0.45", "expected some 50 %, as the time of the step says"),
        ("peak_mem_gib", "60000", "is above the 180 GiB of B200 SXM; expected GiB of one GPU, not MiB"),
    ],
)
def test_more_than_a_gpu_has_is_refused(rows, learn, column, value, said):
    rows[1][column] = value

    assert learn(rows) == (2, [f"own.csv:3: {column} = {value}: {said}"], False)


def test_a_base_that_is_a_file_is_named_from_the_folder_of_the_stack(rows, tmp_path):
    write(tmp_path / "own.csv", rows)
    (tmp_path / "deep").mkdir()
    for base, out in ((BASE, "first.toml"), ("first.toml", "deep/second.toml")):
        runcast("calibrate", "runs", "own.csv", "--base", base, "--out", out, cwd=tmp_path)

    second = (tmp_path / "deep" / "second.toml").read_text()
    assert ('base = "../first.toml"' in second, str(tmp_path) in second) == (True, False)


def test_a_file_that_is_named_twice_is_refused(rows, tmp_path):
    write(tmp_path / "own.csv", rows)
    done = runcast("calibrate", "runs", "own.csv", "./own.csv", "--base", BASE, "--out", "m.toml", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (2, "error: own.csv: is named twice\n")


def test_a_missing_out_is_told_beside_what_else_is_wrong(rows, tmp_path):
    write(tmp_path / "own.csv", rows)
    done = runcast("calibrate", "runs", "own.csv", "no.log", "--base", BASE, cwd=tmp_path)

    missing = "error: --out: missing; expected the stack file to write, which ends in .toml"
    assert (done.returncode, done.stderr.splitlines()) == (2, [missing, "error: no.log: no such file"])


def test_validate_says_what_cannot_have_been_measured(rows, tmp_path):
    write(tmp_path / "own.csv", [{**rows[0], "iter_time_s": str(1000 * float(rows[0]["iter_time_s"]))}])
    done = runcast("validate", "--kind", "train_step", "--rows", "own.csv", cwd=tmp_path)

    assert (done.returncode, done.stderr.count("\n"), "not milliseconds" in done.stderr) == (2, 1, True)


def test_validate_of_unknown_software_says_that_a_stack_is_needed(rows, tmp_path):
    write(tmp_path / "own.csv", [{**row, "framework": "mine"} for row in rows])
    done = runcast("validate", "--kind", "train_step", "--rows", "own.csv", cwd=tmp_path)

    said = "framework = 'mine': no stack is known for it; name the most similar one: --stack NAME\n"
    assert (done.returncode, done.stderr) == (2, f"error: own.csv: no row can be predicted; line 2: {said}")


def test_local_batches_that_fill_a_pipeline_are_its_passes(rows, tmp_path):
    sizes = {"pp": "2", "tp": "1", "cp": "1", "dp": "4", "n_gpus": "8", "mbs": "1", "gbs": "64", "vpp": ""}
    write(
        tmp_path / "own.csv",
        [rows[0] | sizes | {"schedule": "1f1b", "grad_accum": "4", "iter_time_s": "9", "tokens_per_s_per_gpu": ""}],
    )
    (run,) = read_runs([tmp_path / "own.csv"], "torchtitan")

    assert (run.resolved.scenario.schedule.passes, run.resolved.microbatches) == (4, 16)


NO_COLUMNS = "no column of a table of runs; expected comma-separated CSV with a header"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("own.csv", "preset;n_gpus;iter_time_s\nllama3-8b;8;7.0\n", f"own.csv:1: {NO_COLUMNS}"),
        ("own.tsv", "preset\tn_gpus\titer_time_s\nllama3-8b\t8\t7.0\n", f"own.tsv:1: {NO_COLUMNS}"),
        ("own.jsonl", '{"preset": "llama3-8b", "n_gpus": 8, "iter_time_s": 7.0}\n', f"own.jsonl:1: {NO_COLUMNS}"),
        ("own.toml", '[[runs]]\npreset = "llama3-8b"\n', f"own.toml:1: {NO_COLUMNS}"),
        ("two.toml", "[[runs]]\nshape = [2, 4]\n", "two.toml:2: 2 cells; expected comma-separated CSV with a header"),
    ],
)
@pytest.mark.parametrize("kind", ["train_step", "weight_update"])
def test_rows_that_are_not_comma_separated(tmp_path, kind, name, text, said):
    (tmp_path / name).write_text(text)
    base = {"train_step": BASE, "weight_update": "slime"}[kind]
    done = runcast("calibrate", "runs", name, "--kind", kind, "--base", base, "--out", "m.toml", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (2, f"error: {said}\n")


def test_rows_of_json_are_no_log(tmp_path):
    (tmp_path / "own.json").write_text('[{"preset": "llama3-8b", "iter_time_s": 7.0}]')
    done = runcast("calibrate", "runs", "own.json", "--base", BASE, "--out", "m.toml", cwd=tmp_path)

    assert done.stderr.endswith("Hugging Face Trainer, or runs as comma-separated CSV (NAME.csv)\n")


def test_blanks_around_cells_are_no_part_of_them(rows, tmp_path):
    write(tmp_path / "own.csv", rows[:1])
    text = (tmp_path / "own.csv").read_text()
    (tmp_path / "wide.csv").write_text(text.replace(",", " , "))
    (plain,), (wide,) = (read_runs([tmp_path / name], BASE) for name in ("own.csv", "wide.csv"))

    assert (wide.seconds, wide.configuration) == (plain.seconds, plain.configuration)
