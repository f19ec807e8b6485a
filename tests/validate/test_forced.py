"""Rows whose log forces an algorithm: beside its closed form, and apart from the scores of fitted curves."""

from pathlib import Path

import pytest
from runcast.simulator.answers.validate import shipped_file, validate
from runcast.simulator.answers.validate.forced import NEAREST
from runcast.simulator.collectives.algorithms import OPS, algorithms
from runcast.simulator.profile import load_profile

HEADER = "system,gpu,op,n_gpus,n_nodes,network,bytes,time_us,busbw_GBps,column,source,algorithm"
NVLINK_BYTES_PER_S = 450e9 * load_profile("h100-sxm").value("link_fraction.nvlink")  # less than 8 NICs sustain


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def row(algorithm: str, seconds: float, network: str = "8xNDR400 IB") -> str:
    """32 GiB on four nodes of 8 H100."""
    return f"a,H100 SXM,all_reduce,32,4,{network},{32 << 30},{seconds * 1e6},0,in-place,here,{algorithm}"


def test_a_forced_ring_is_compared_with_a_ring(tmp_path):
    """By hand: 2(N-1)/N*S at the rate of the slower hop, NVLink, and a few microseconds of steps."""
    seconds = 2 * 31 / 32 * (32 << 30) / NVLINK_BYTES_PER_S
    path = write(tmp_path / "rows.csv", row("default", seconds), row("Ring", seconds), row("Ring", 2 * seconds))

    (found,) = validate(path, "collective").forced

    assert (found["device"], found["op"], found["forced"], found["algorithm"]) == (
        "H100 SXM", "all_reduce", "Ring", "ring",
    )  # fmt: skip
    assert (found["rows"], found["median_abs_error"], found["bias"]) == (
        2, pytest.approx(0.25, abs=0.01), pytest.approx(-0.25, abs=0.01),
    )  # fmt: skip


def test_forced_rows_do_not_move_the_scores_of_curves(tmp_path):
    rows = [row("default", 0.2), row("default", 0.1)]
    alone, among = (
        validate(write(tmp_path / name, *rows, *more), "collective")
        for name, more in (("alone.csv", []), ("among.csv", [row("Tree", 0.3), row("NVLS", 0.3)]))
    )

    assert among.groups == alone.groups
    assert (alone.forced, [group["scored"] for group in among.forced]) == ([], [0, 1])  # NVLS stays inside a node


def test_what_is_wrong_for_other_reasons_is_not_compared(tmp_path):
    """A degraded network and a quoted peak say nothing of an algorithm."""
    peak = row("Ring", 0.2).replace("in-place", "peak busbw quoted")
    path = write(tmp_path / "rows.csv", row("default", 0.2), row("Ring", 0.2, "8xNDR400 IB (degraded)"), peak)

    assert validate(path, "collective").forced == []


def test_every_algorithm_of_nccl_has_one_of_ours():
    assert set(NEAREST.values()) <= {name for op in OPS for name in algorithms(op)}


def test_the_shipped_rows_are_printed_by_algorithm():
    found = validate(shipped_file("collectives.csv"), "collective")
    by_name = {(one["device"], one["op"], one["forced"]): one for one in found.forced}

    assert sum(one["rows"] for one in found.forced) == 113
    assert by_name["B200 SXM", "all_reduce", "Tree"]["median_abs_error"] < 0.05
    assert by_name["B200 SXM", "all_gather", "CollNet"]["scored"] == 0  # SHARP gathers nothing here
    assert any(line.split()[:4] == ["B200", "SXM", "all_reduce", "Tree"] for line in found.lines())
