"""A small sweep on files: a weight update that takes milliseconds to predict, and as many points as asked for."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TINY = ROOT / "data/scenarios/tiny-2ranks.toml"
RUNCAST = Path(sys.executable).with_name("runcast")


@pytest.fixture
def sweep_file(tmp_path) -> Callable[..., Path]:
    """`sweep_file(text)`: a sweep of that text around the tiny weight update; by default six buckets, three refused."""

    def write(text: str | None = None, name: str = "sweep.toml", base: str = f'base = "{TINY}"') -> Path:
        buckets = '[[axes]]\nkey = "update.bucket"\nfrom = "128 KiB"\nto = "4 MiB"\nfactor = 2\n'
        path = tmp_path / name
        path.write_text(f"{base}\n{buckets if text is None else text}")
        return path

    return write


def many(points: int) -> str:
    """An axis of so many buckets of 1 MiB and more; all have rows of their own."""
    return f'[[axes]]\nkey = "update.bucket"\nfrom = {2**20}\nto = {2**20 + 4096 * (points - 1)}\nsteps = {points}\n'


def start(*arguments: object, **options: object) -> "subprocess.Popen[str]":
    """`runcast sweep` as a process of its own."""
    command = [str(RUNCAST), "sweep", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": {**os.environ}}
    return subprocess.Popen(command, **{**pipes, **options})
