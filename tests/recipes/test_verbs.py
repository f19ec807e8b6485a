"""`runcast plan`: what it prints, and one line with exit code 2 for a mistake, with nothing half-written."""

import json
from pathlib import Path

import pytest
from runcast.simulator.cli import main
from runcast.simulator.formats.recipes import load_training
from runcast.simulator.formats.recipes.reading import FORMS

FILES = Path(__file__).parent / "files"


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in ("plan", *arguments)])
    printed = capsys.readouterr()
    return left.value.code or 0, printed.out, printed.err


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_import_tells_what_became_of_every_argument(here, capsys):
    code, out, err = run(
        capsys, "import", FILES / "llama3-70b.sh", "--cluster", "dgx-h100", "--nodes", 8, "-o", "a.toml"
    )

    assert (code, err) == (0, "")
    assert out.startswith("read 33 arguments as megatron: --nproc_per_node 8,")
    assert "not modelled: --manual-gc: pauses of Python are not modelled\n" in out
    assert out.endswith("wrote a.toml\n")


def test_the_help_of_import_names_every_form(here, capsys):
    code, out, _ = run(capsys, "import", "--help")
    said = " ".join(out.split())

    assert (code, [form for form in FORMS if form not in said]) == (0, [])


def test_export_prints_arguments(here, capsys):
    run(capsys, "import", FILES / "llama3-70b.sh", "--cluster", "dgx-h100", "--nodes", 8, "-o", "a.toml")
    code, out, err = run(capsys, "export", "a.toml")

    assert (code, err) == (0, "")
    assert "--num-virtual-stages-per-pipeline-rank 5\n" in out


def test_a_step_that_cannot_be_priced_is_not_exported(here, capsys):
    profile = json.loads((SCENARIOS.parent / "profiles/h100-sxm.json").read_text())
    profile["models"] = {name: one for name, one in profile["models"].items() if not name.startswith("attention")}
    (here / "mine.json").write_text(json.dumps({**profile, "base": None}))
    changes = {"profile=mine.json": "is missing", "level=coarse": "zero = 3 gathers across actions"}
    ends = [run(capsys, "export", "train-llama3-8b-8xh100", "--set", change) for change in changes]

    assert [(code, out) for code, out, _ in ends] == [(2, "")] * 2
    assert all(said in err for said, (_, _, err) in zip(changes.values(), ends, strict=True)), ends


SCENARIOS = Path(__file__).parents[2] / "data/scenarios"


def test_what_is_exported_says_on_how_many_nodes_it_runs(here, capsys):
    scenario = SCENARIOS / "train-qwen3-30b-a3b-16xh100.toml"
    _, out, _ = run(capsys, "export", scenario, "--set", "overlap.pp=false")
    (here / "args").write_text(out)
    code, _, _ = run(capsys, "import", "args", "--cluster", "dgx-h100", "-o", "again.toml")

    assert (code, load_training("again.toml")) == (
        0, load_training(scenario, ["overlap.pp=false"]).model_copy(update={"name": "again"}),
    )  # fmt: skip


def test_machines_that_are_a_table_come_back_without_a_flag(here, capsys):
    scenario = SCENARIOS / "tiny-train-tp2-dp2.toml"
    (here / "args").write_text(run(capsys, "export", scenario)[1])
    code, _, _ = run(capsys, "import", "args", "-o", "again.toml")

    assert (code, load_training("again.toml").cluster) == (0, load_training(scenario).cluster)


def test_machines_that_nothing_names_are_asked_for(here, capsys):
    (here / "args").write_text("--num-layers 32")

    assert run(capsys, "import", "args", "-o", "a.toml") == (
        2, "", "error: args: does not say on which machines; give --cluster\n",
    )  # fmt: skip


def test_the_first_step_of_the_readme_is_refused_unless_the_nearest_is_asked_for(here, capsys):
    """Megatron-LM recomputes the activations of experts alone, so that its nearest plan needs more memory."""
    scenario = SCENARIOS / "train-llama3-70b-64xh100.toml"
    refused, nearest = run(capsys, "export", scenario), run(capsys, "export", scenario, "--nearest")

    assert (refused[:2], refused[2].count("\n")) == ((2, ""), 1)
    assert 'recompute.modules = ["layernorm", "activation"]: activations alone are' in refused[2]
    assert (nearest[0], nearest[2]) == (0, "")
    assert nearest[1].startswith("# another plan than asked for: recompute.modules = ")
    assert "--recompute-modules layernorm\n" in nearest[1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["import", "none.sh", "--cluster", "dgx-h100"], "error: none.sh: no such file"),
        (["import", "l.sh", "--cluster", "dgx-h101"], "error: --cluster: "),
        (
            ["import", "l.sh", "--cluster", "dgx-h100", "--format", "maxtext"],
            "error: --format = 'maxtext': expected one of auto",
        ),
        (["import", "l.sh", "--cluster", "dgx-h100", "-o", "x.json"], "error: --out = 'x.json': expected a name"),
        (["import", "l.sh", "--cluster", "dgx-h100"], "error: l.sh: "),
        (["import", "l.sh", "--cluster", "dgx-h100", "--nodes", "8", "-o", "no/x.toml"], "error: no/x"),
        (
            ["import", "l.sh", "--cluster", "dgx-h100", "--nodes", "8", "-o", "l.toml"],
            "error: l.toml: is there already",
        ),
        (
            ["import", "l.sh", "--cluster", "dgx-h100", "--seq-len", "8"],
            "error: --seq-len: goes with recipes of bridge, nemo, axolotl",
        ),
        (
            ["import", FILES / "axolotl-lora.yaml", "--cluster", "dgx-h100", "--model", "no.json", "-o", "x.toml"],
            "error: --model = 'no.json': no such config.json",
        ),
        (
            ["import", FILES / "zero2.json", "--cluster", "dgx-h100", "-o", "x.toml"],
            f"error: {FILES / 'zero2.json'}: says neither model nor length of sequences; give --model and --seq-len",
        ),
        (["export", "l.toml"], "error: l.toml: kind = None: expected 'train_step'"),
        (
            ["export", "l.toml", "--to", "maxtext"],
            "error: --to = 'maxtext': expected one of megatron",
        ),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(here, capsys, arguments, line):
    text = (
        (FILES / "llama3-70b.sh").read_text().replace("--num-query-groups 8", "--num-query-groups 4 --vocab-size 999")
    )
    (here / "l.sh").write_text(text)
    (here / "l.toml").write_text("")
    code, out, err = run(capsys, *arguments)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(line)
    assert sorted(file.name for file in here.iterdir()) == ["l.sh", "l.toml"]


def test_broken_yaml_is_not_taken_for_arguments(here, capsys):
    (here / "broken.yaml").write_text("a: [1, 2\nb: {")
    code, _, err = run(capsys, "import", "broken.yaml", "--cluster", "dgx-h100")
    assert (code, "is not YAML" in err) == (2, True)
