"""`runcast list`, `init`, `schema`, `--require-fit`, names after changes, and what a shell completes."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from runcast.simulator.answers.listing import CATALOGUES, rows_of
from runcast.simulator.answers.starter import starter_text
from runcast.simulator.base.files import read_toml
from runcast.simulator.base.shipped import shipped

from ..command import runcast

TINY = "tiny-train-pp4"
TOO_LARGE = ("simulate", TINY, "--set", "batch.seq_len=131072", "--set", "cluster.device.memory=1 GiB")


@pytest.mark.parametrize("what", CATALOGUES)
def test_list(what):
    done = runcast("list", what)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len(rows_of(what)) > 0


def test_list_of_lists():
    assert [line.split()[0] for line in runcast("list").stdout.splitlines()] == list(CATALOGUES)


def test_list_of_nothing():
    done = runcast("list", "gpus")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: list = 'gpus': expected one of scenarios, ")


@pytest.mark.parametrize("name", shipped())
def test_a_file_to_start_from_says_what_the_shipped_one_says(name):
    assert tomllib.loads(starter_text(name)) == read_toml(shipped()[name])


@pytest.mark.parametrize("name", shipped())
def test_a_file_to_start_from_keeps_the_comments_of_the_shipped_one(name):
    text = starter_text(name)
    comments = [line.partition("#")[2].strip() for line in shipped()[name].read_text().splitlines() if "#" in line]

    assert [one for one in comments if one not in text] == []


def test_init_has_a_comment_on_every_key():
    lines = starter_text().splitlines()

    assert "tp = 4  # tensor-parallel size" in lines
    assert [line for line in lines if " = " in line and "#" not in line] == []


def test_init_writes_no_file_twice(tmp_path):
    first, second = (runcast("init", TINY, cwd=tmp_path) for _ in range(2))

    assert first == (0, f"wrote {TINY}.toml\ntry it: runcast simulate {TINY}.toml\n", "")
    assert second == (2, "", f"error: {TINY}.toml: exists; --force replaces it\n")
    assert runcast("init", TINY, "--force", cwd=tmp_path).returncode == 0


def test_schema_prints_one_form_or_all():
    assert json.loads(runcast("schema", "run").stdout)["$id"] == "runcast/run/1"
    assert len(json.loads(runcast("schema").stdout)["oneOf"]) > 5


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--require-fit"], 1)])
def test_what_does_not_fit_is_an_answer_unless_it_must_fit(flags, code):
    done = runcast(*TOO_LARGE, *flags)

    assert (done.returncode, done.stderr) == (code, "")
    assert "DOES NOT FIT" in done.stdout


def test_a_cycle_must_fit_too():
    small = "model.preset=qwen3-32b", "cycle.steps=1", "cycle.warmup=0", "rollout.requests=128"
    changes = [word for change in small for word in ("--set", change)]

    assert runcast("simulate", "rl-cycle-qwen3-8b-8xh100", *changes, "--require-fit").returncode == 1


def test_what_fits_fits():
    assert runcast("simulate", TINY, "--require-fit").returncode == 0


def test_an_answer_without_memory_cannot_be_required_to_fit():
    done = runcast("simulate", "run-jobs", "--require-fit")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --require-fit: no memory is predicted of ")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (["nodes=1"], "tiny Llama, PP4, 1F1B with nodes=1"),
        (["batch.micro=2", "schedule.name=gpipe"], "tiny Llama, PP4, 1F1B with batch.micro=2, schedule.name=gpipe"),
        (["batch.micro=2", "name=mine"], "mine"),
        (['notes=["seen"]'], "tiny Llama, PP4, 1F1B"),
    ],
)
def test_a_name_tells_what_was_changed(changes, name):
    flags = [word for change in changes for word in ("--set", change)]

    assert runcast("simulate", TINY, *flags).stdout.splitlines()[0] == name


@pytest.mark.slow
def test_a_search_on_other_gpus_is_named_so(tmp_path):
    parallel = ("parallel.tp=8", "parallel.pp=8", "parallel.cp=1", "parallel.zero=1")
    fixed = (*parallel, "batch.micro=1", "schedule={name='1f1b'}", "recompute={mode='full'}", "offload={}")
    flags = [word for one in fixed for word in ("--fix", one)]
    runcast("search", "train-llama3-70b-64xh100", "--gpus", 128, *flags, "--check", 0, "--out", tmp_path / "out")

    assert read_toml(tmp_path / "out" / "winner.toml")["name"].startswith(
        "llama3-70b, 64 x H100 with nodes=16, winner: tp 8, pp "
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", TINY, "--quick"), ("compare", TINY, "tiny-train-tp2-dp2"), ("cluster", "show", "dgx-h100"),
        ("compare", TINY, "--set", "batch.micro=2"), ("plan", "export", TINY, "--nearest"),
    ],
)  # fmt: skip
def test_names_stand_wherever_files_do(arguments, tmp_path):
    done = runcast(*arguments, cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_sweep_by_name_and_its_base_by_name(tmp_path):
    (tmp_path / "own.toml").write_text(f'base = "{TINY}"\n[[axes]]\nkey = "batch.micro"\nvalues = [1, 2]\n')

    done = runcast("sweep", "own.toml", "--out", "out", "--workers", 1, cwd=tmp_path)

    assert done.returncode == 0
    assert runcast("sweep", "no-such-sweep", "--out", "out", cwd=tmp_path).stderr.startswith("error: sweep = 'no-such")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("runcast simulate tiny-train-p", ["tiny-train-pp4"]),
        ("runcast simulate ./tiny", []),  # the shell completes files then
        ("runcast sweep bucket-t", ["bucket-tiny"]),
        ("runcast list clu", ["clusters"]),
        ("runcast cluster show gb3", ["gb300-nvl72"]),
        ("runcast plan import x --cluster gb3", ["gb300-nvl72"]),
        ("runcast schema rl", ["rl_cycle"]),
        ("runcast schem", ["schema"]),
    ],
)
def test_a_shell_completes(words, found):
    asked = {"_RUNCAST_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    command = [sys.executable, "-c", "from runcast.simulator.cli import main; main()"]

    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, timeout=300)

    assert done.stdout.split() == found


def test_the_script_of_a_shell_is_printed():
    command = [Path(sys.executable).with_name("runcast"), "--show-completion", "bash"]

    named = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # whatever has started the tests

    done = subprocess.run(command, env=named, capture_output=True, text=True, timeout=300)

    assert "_RUNCAST_COMPLETE=complete_bash" in done.stdout
