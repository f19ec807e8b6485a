"""Measuring again gives the same medians within the printed spread; a slowed kernel shows up as such."""

import subprocess

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from .launching import CALIBRATE, environment

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SLOWED = "steady/product n=128"


def calibrate(*arguments, **more):
    command = [*CALIBRATE, *map(str, arguments)]
    return subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=300)


def measured(out, **more):
    flags = ("--device", "cpu", "--cases", "steady", "--only", "steady", "--rounds", 3, "--budget-ms", 15)
    done = calibrate("run", *flags, "--out", out, **more)
    assert done.returncode == 0, done.stderr
    return out


def moved(a, b):
    """Exit code, and the cases that moved with their ratios, as printed."""
    done = calibrate("drift", a, b)
    lines = [line.split("  ") for line in done.stdout.splitlines() if " to " in line]
    return done.returncode, {line[-1]: float(line[-3]) for line in lines}


def test_medians_come_back_and_a_slowed_kernel_shows_up(tmp_path):
    first, again = measured(tmp_path / "first.jsonl"), measured(tmp_path / "again.jsonl")
    slowed = measured(tmp_path / "slowed.jsonl", SLOWED="1")

    _, found = moved(first, again)
    assert SLOWED not in found
    assert len(found) <= 3  # of 30: busy neighbours may disturb a few of them

    code, found = moved(first, slowed)
    assert code == 1
    assert found[SLOWED] > 3  # eight times the work, on cores that neighbours share
    assert max(found, key=found.__getitem__) == SLOWED
