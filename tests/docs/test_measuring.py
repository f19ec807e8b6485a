"""docs/measuring.md stays true: its example runs, its commands have flags that exist, its manifest is one."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.cases import FAMILIES
from runcast.calibrate.measure.command import _parser

from ..command import runcast

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "measuring.md").read_text()
JOB = (DOCS / "measuring-job.yaml").read_text()


def commands():
    """The flags of every `runcast.calibrate run` in a block of the page or in the manifest."""
    blocks = re.findall(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()] + [" ".join(JOB.split())]
    found = [re.search(r"runcast\.calibrate run([^'&|]*)", line) for line in lines]
    return [match.group(1).partition(" resources:")[0] for match in found if match]


def run(*command, cwd):
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_has_flags_that_exist():
    assert len(commands()) >= 6
    for flags in commands():
        assert _parser().parse_args(shlex.split(flags)).out.suffix == ".jsonl"


def test_every_family_is_named():
    assert [family for family in FAMILIES if f"`{family}`" not in PAGE] == []


def test_the_manifest_agrees_with_itself():
    nodes = re.findall(r"(?:completions|parallelism|--nnodes)[: ]+(\d+)", JOB)
    gpus = re.findall(r"(?:--nproc-per-node|nvidia\.com/gpu)[: ]+(\d+)", JOB)
    assert (len(nodes), len(set(nodes)), len(gpus), len(set(gpus))) == (3, 1, 2, 1)


@pytest.mark.slow
def test_a_kernel_of_ones_own_becomes_a_class_of_ones_own(tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "mykernels.py").write_text(code)
    flags = ("--cases", "mykernels", "--only", "mykernels", "--quick", "--rounds", "1", "--device", "cpu")
    run(sys.executable, "-m", "runcast.calibrate", "run", *flags, "--out", "mine.jsonl", cwd=tmp_path)
    runcast("calibrate", "fit", "mine.jsonl", "--out", "mine.json", cwd=tmp_path)
    assert list(json.loads((tmp_path / "mine.json").read_text())["models"]) == ["memory.my_softmax"]
