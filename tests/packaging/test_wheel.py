"""The wheel as a user gets it: built from a clean copy, in environments of its own, away from the repository."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from ..once import once

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SETUP = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOREIGN = ("numpy", "pandas", "scipy", "simpy", "pydantic", "typer", "rich", "pyarrow", "plotly")
JUNK = shutil.ignore_patterns("__pycache__", "*.egg-info")
RECORDS = {".jsonl", ".gz"}  # raw measurements stay in the repository; what is fitted to them goes along


def run(*command, cwd):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(folder, *requirements):
    """The Python of a new environment that holds these."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    install(folder / "bin/python", *requirements)
    return folder / "bin/python"


def install(python, *requirements):
    """By this environment's pip. Most modules of what is installed are never imported, so that none is compiled yet."""
    pip(python, "install", "--quiet", "--no-compile", *requirements)


def pip(python, *words):
    return run(sys.executable, "-m", "pip", "--python", python, *words, cwd=python.parent)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A copy, since setuptools reuses build/ (a deleted module would come back from it), and the wheel of it."""
    return once(tmp_path_factory, "wheel", build)


def build(folder):
    copy, out = folder / "source", folder / "wheel"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for top in SETUP["package-dir"].values():
        shutil.copytree(ROOT / top, copy / top, ignore=JUNK, dirs_exist_ok=True)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, ".", cwd=copy)
    (wheel,) = out.iterdir()
    return copy, wheel


@pytest.fixture(scope="module")
def wheel(built):
    return built[1]


def test_holds_every_file_and_only_runcast(built):
    source, wheel = built
    homes = {source / top: Path(*prefix.split(".")) for prefix, top in SETUP["package-dir"].items()}
    wanted = set()
    for file in (file for home in homes for file in home.rglob("*") if file.is_file() and file.suffix not in RECORDS):
        home = next(one for one in file.parents if one in homes)  # `runcast` itself is a folder in that of simulator
        wanted.add((homes[home] / file.relative_to(home)).as_posix())
    held = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == wanted


def test_works_outside_the_repository(wheel, tmp_path):
    python = environment(tmp_path / "venv", wheel, "pytest")
    shutil.copytree(ROOT / "tests/smoke", tmp_path / "smoke", ignore=JUNK)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = smoke\n")
    report = run(python, "-m", "pytest", "-m", "smoke", "--import-mode=importlib", "smoke", cwd=tmp_path)
    assert " passed" in report


def test_measuring_needs_torch_and_nothing_else(wheel, tmp_path):
    """On a cluster node the wheel stands in a PyTorch container, installed with --no-deps."""
    python = environment(tmp_path / "venv", "--no-deps", wheel)
    run(python, "-m", "runcast.calibrate", "--help", cwd=tmp_path)
    install(python, "-c", ROOT / "constraints.txt", "torch")
    installed = pip(python, "list", "--format=freeze")
    assert [name for name in FOREIGN if f"{name}==" in installed] == []
    torchrun = (python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m")
    measure = ("runcast.calibrate", "run", "--quick", "--rounds=1", "--only=collectives,overheads,copies,membound/add*")
    run(*torchrun, *measure, "--out=s.jsonl", cwd=tmp_path)
    records = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert {record["group"] for record in records[1:]} == {"collectives", "overheads", "copies", "membound"}
    assert [record for record in records if "error" in record or record.get("wrong")] == []
    run(python, "-m", "runcast.calibrate", "drift", "s.jsonl", "s.jsonl", cwd=tmp_path)
