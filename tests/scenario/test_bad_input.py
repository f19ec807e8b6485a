"""What a user can get wrong: one line per fault that names the file, exit code 2, and nothing written."""

import json
from pathlib import Path

import pytest
from runcast.simulator.cli import main
from runcast.simulator.systems.keys import Values
from runcast.simulator.systems.registry import SYSTEMS

GOOD = """
name = "small"
kind = "weight_update"
cluster = "h20-hgx"
nodes = 1

[model]
preset = "qwen3-30b-a3b"

[update]
bucket = "1 GiB"
inference = { tp = 8 }
"""

CHANGES = {
    "nodes=0": "nodes = 0: expected more than 0",
    "nodes=-2": "nodes = -2: expected more than 0",
    "nodes=many": "nodes = 'many': expected a whole number",
    "nodse=2": "nodse: unknown key; did you mean nodes",
    "kind=sleep": "kind = 'sleep': expected 'weight_update'",
    "cluster=h20hgxx": "cluster = 'h20hgxx': unknown; did you mean h20-hgx",
    "profile=h21": "profile = 'h21': unknown",
    "stack=vllm": "stack = 'vllm': unknown; known: checkpoint-engine",
    "model.preset=kimi-k3": "preset = 'kimi-k3': unknown; did you mean kimi-k2?",
    "model.presett=1": "model.presett: unknown key; did you mean preset?",
    "model.bytes=1 GB": "model: bytes and tensors must be given together",
    "update.method=carrier-pigeon": "update.method = 'carrier-pigeon': expected 'broadcast'",
    "update.pipeline=four_stage": "update.pipeline = 'four_stage': expected 'two_stage', 'three_stage' or",
    "update.bucket=5 XB": "update.bucket = '5 XB': unknown unit 'XB'; expected a quantity such as",
    "update.bucket=5 GB/s": "update.bucket = '5 GB/s': unknown unit 'GB/s'",
    "update.bucket=big": "update.bucket = 'big': expected a quantity such as",
    "update.bucket=0 GiB": "update.bucket = '0 GiB': expected a size above zero",
    "update.bucket=-1 GiB": "update.bucket = '-1 GiB': expected a size above zero",
    "update.bucket=500 GiB": "update.bucket = '500 GiB': at most 26.7 GiB fit: 3 such buffers in 90% of 88.9 GiB free",
    "update.bucket=26.7 GiB": " bytes fit: 3 such buffers in 90% of 88.9 GiB free",
    "update.bucket=1 MiB": "the largest tensor has 594 MiB and is never split",
    "update.bucket=1e200 GB": "update.bucket = '1e200 GB': expected a size above zero, and at most 1 EiB",
    "update.free_memory=1 GiB": "the largest tensor has 622,329,856 bytes, a buffer can have",
    "update.free_memory=10 TB": "update.free_memory = '9.09 TiB': a device has 96 GiB, of which weights need 7.11 GiB",
    "update.inference.memory_utilization=0.01": "memory_utilization = 0.01: the weights alone need 0.07",
    "update.h2d_freed=end": "update.h2d_freed = 'end': goes with update.pipeline = 'three_stage', not 'two_stage'",
    "nodes=999999999999999999999": "nodes = 999999999999999999999: expected",
    "update.mem_fraction=1.5": "update.mem_fraction = 1.5: expected at most 1",
    "update.inference.tp=0": "update.inference.tp = 0: expected more than 0",
    "update.inference.tp=3": "update.inference.tp = 3: must divide the 8 GPUs",
    "update.inference={tp=8, dp=2}": "update.inference.dp: unknown key; known: ep, gpus, memory_utilization, tp",
    "slow=[{node=4, factor=2}]": "slow.0.node = 4: there are 1 nodes, numbered from 0",
    "slow=[{node=0, factor=0.5}]": "slow.0.factor = 0.5: expected at least 1",
    "seed=-1": "seed = -1: expected at least 0",
    "slow.0.factor=2": "slow: expected a list, such as",
    "update=3": "update = 3: expected a table with keys such as method and pipeline",
    "model=kimi-k2": "model = 'kimi-k2': expected a table with keys such as preset and config",
    "cluster=H200": "cluster = 'H200': unknown; did you mean gh200 or h200-hgx?",
    "fold=maybe": "fold = 'maybe': expected true or false",
}

FILES = {
    "empty": (b"", "kind: is missing"),
    "binary": (bytes(range(256)), "is not text; expected a TOML file"),
    "truncated": (GOOD[:60].encode(), "is not TOML"),
    "unclosed": (b'name = "x', "is not TOML"),
    "list": (b"model = [1, 2]\nkind = 'weight_update'\ncluster = 'h20-hgx'", "model"),
}


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text(GOOD)
    return path


def run(capsys, *arguments: object) -> tuple[int, list[str]]:
    with pytest.raises(SystemExit) as leave:
        main([str(argument) for argument in arguments])
    return leave.value.code, capsys.readouterr().err.splitlines()


def test_the_good_scenario_is_good(scenario, capsys):
    assert run(capsys, "simulate", scenario) == (0, [])


@pytest.mark.parametrize("change", CHANGES)
def test_a_fault_is_one_line_that_names_file_key_and_value(change, scenario, capsys):
    code, lines = run(capsys, "simulate", scenario, "--set", change, "--out", scenario.parent / "out")

    assert (code, len(lines), CHANGES[change] in lines[0], lines[0].count(str(scenario))) == (2, 1, True, 1), lines
    assert not (scenario.parent / "out").exists()


@pytest.mark.parametrize("kind", SYSTEMS)
@pytest.mark.parametrize("value", ["x", [1], {"a": 1}, 2.5])
def test_needs_are_asked_of_values_of_any_type(kind, value):
    class All(Values):
        def gives(self, key):
            return True

        def __getitem__(self, key):
            return value

    asked = [need.fails(All({}, SYSTEMS[kind].schema)) for need in SYSTEMS[kind].needs]

    assert {type(one) for one in asked} <= {bool}


def test_all_faults_are_told_at_once(scenario, capsys):
    changes = ["nodes=0", "update.bucket=5 XB", "model.x=1"]

    _, lines = run(capsys, "simulate", scenario, *(part for change in changes for part in ("--set", change)))

    assert len(lines) == 3


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("nodes", "--set nodes: expected key=value"),
        ("=3", "--set =3: expected key=value"),
        ("model.preset.deeper=3", "model.preset.deeper = 3: preset is a value, not a table"),
    ],
)
def test_a_change_that_is_no_change(change, told, scenario, capsys):
    code, lines = run(capsys, "simulate", scenario, "--set", change)

    assert (code, len(lines), told in lines[0]) == (2, 1, True), lines


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file(name, tmp_path, capsys):
    content, expected = FILES[name]
    path = tmp_path / "broken.toml"
    path.write_bytes(content)

    code, lines = run(capsys, "simulate", path)

    assert (code, all(str(path) in line for line in lines), any(expected in line for line in lines)) == (2, True, True)


def test_a_folder_or_nothing_instead_of_a_file(tmp_path, capsys):
    lines = [run(capsys, "simulate", path) for path in (tmp_path, tmp_path / "none.toml")]

    assert lines == [
        (2, [f"error: {tmp_path}: is a folder; expected a TOML file"]),
        (2, [f"error: {tmp_path / 'none.toml'}: no such file"]),
    ]


@pytest.mark.parametrize("key", ["model.config", "cluster", "cluster.node", "cluster.device", "stack", "profile"])
def test_a_file_that_is_not_there_is_named_with_its_key(key, capsys):
    code, lines = run(capsys, "simulate", "tiny-train-pp4", "--set", f"{key}=/gone/x.toml")

    assert (code, lines) == (2, [f"error: tiny-train-pp4: {key} = '/gone/x.toml': no such file: /gone/x.toml"])


def test_an_unreadable_file(capsys):
    assert run(capsys, "simulate", "/proc/self/mem") == (2, ["error: /proc/self/mem: cannot read: Input/output error"])


@pytest.mark.parametrize("text", ["", "{", '{"model_type": "llama"}', "[]", '{"hidden_size": "wide"}', "\x00\x01"])
def test_a_broken_hugging_face_config(text, scenario, capsys):
    config = scenario.parent / "config.json"
    config.write_text(text)
    scenario.write_text(GOOD.replace('preset = "qwen3-30b-a3b"', f'config = "{config}"'))

    code, lines = run(capsys, "simulate", scenario)

    assert (code, bool(lines), all(str(config) in line for line in lines)) == (2, True, True), lines


@pytest.mark.parametrize("flag", ["--json", "--csv", "--trace", "--html", "--png"])
def test_an_output_that_cannot_be_written_is_told_before_any_other_is_written(flag, scenario, capsys):
    good, bad = scenario.parent / "good.json", scenario.parent / "nowhere" / "x.html"
    first = ["--json", good] if flag != "--json" else ["--trace", good]

    code, lines = run(capsys, "simulate", scenario, *first, flag, bad)

    assert (code, len(lines), str(bad) in lines[0], good.exists()) == (2, 1, True, False)


def test_an_output_folder_that_is_a_file(scenario, capsys):
    code, lines = run(capsys, "simulate", scenario, "--out", scenario)

    assert (code, len(lines), str(scenario) in lines[0]) == (2, 1, True)


def test_a_cluster_without_a_route(scenario, capsys):
    scenario.write_text(GOOD.replace('cluster = "h20-hgx"', 'cluster = { base = "h20-hgx", nics = 0 }'))
    scenario.write_text(scenario.read_text().replace("nodes = 1", "nodes = 2"))

    code, lines = run(capsys, "simulate", scenario)

    assert (code, lines) == (2, [f"error: {scenario}: cluster.nics = 0: no NIC is attached to n1.gpu0"])


def test_two_outputs_in_one_file(scenario, capsys):
    same = scenario.parent / "same.json"

    code, lines = run(capsys, "simulate", scenario, "--json", same, "--trace", same)

    assert (code, lines, same.exists()) == (2, [f"error: --trace {same}: is written by --json too"], False)


def test_json_on_stdout_is_all_there_is(scenario, capsys):
    with pytest.raises(SystemExit) as leave:
        main(["simulate", str(scenario), "--json", "-", "--csv", str(scenario.parent / "t.csv")])

    report = json.loads(capsys.readouterr().out)

    assert (leave.value.code, report["kind"], Path(scenario.parent / "t.csv").exists()) == (0, "weight_update", True)


@pytest.mark.parametrize("verb", ["simulate", "explain", "compare"])
@pytest.mark.parametrize("varied", ["[[axes]]\nkey = 'nodes'\nvalues = [1, 2]\n", "points = [{nodes = 1}]\n"])
def test_a_sweep_is_told_with_the_verb_that_takes_it(tmp_path, capsys, verb, varied):
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(f"base = 'base.toml'\n{varied}")

    code, lines = run(capsys, verb, sweep, *([sweep] if verb == "compare" else []))

    assert (code, lines) == (2, [f"error: {sweep}: is a sweep: runcast sweep {sweep}"])
