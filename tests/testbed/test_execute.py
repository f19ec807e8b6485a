"""`runcast execute` on hosts: a rank on each, as a launcher would start them."""

import json

import pytest

pytest.importorskip("torch", reason="executing needs the [calibrate] extra")

from .cases import Case, Numbers, collective, p2p_update, trainer_update, update, write_cases
from .hosts import missing, set_up
from .launch import run_ranks
from .topology import star

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "none")]

ON_TWO = "2 fast hosts"


def execute(case: Case, folder, hosts=2):
    (path,) = write_cases([case], Numbers(), folder)
    with set_up(star(hosts, 2e8)) as bed:
        run_ranks(bed, ["-m", "runcast.calibrate.execute", str(path), "--out", str(folder / "out")], folder)
    return json.loads((folder / "out/summary.json").read_text())


def test_a_collective_is_executed_over_cables(tmp_path):
    (case,) = collective(ON_TWO, "all_reduce", "ring", 1)
    (row,) = execute(case, tmp_path)["rows"]
    assert row["wrong"] == 0
    assert min(row["runs_s"]) > 0.9 * (1 << 20) / (2e8 / 8)


def test_an_update_is_executed_over_cables(tmp_path):
    found = execute(update(ON_TWO, "two_stage", 4), tmp_path)
    assert (found["tensors_wrong"], found["tensors_checked"]) == (0, 2 * 8)
    assert found["makespan_s"] > 0.9 * (4 << 20) / (2e8 / 8)


@pytest.mark.parametrize("method", ["p2p", "replica_writes"])
def test_memory_of_other_hosts_is_read_and_written_over_cables(method, tmp_path):
    case = p2p_update(ON_TWO, 4) if method == "p2p" else trainer_update(ON_TWO, method, trainers=1)
    found = execute(case, tmp_path)
    assert found["tensors_wrong"] == 0
    assert found["makespan_s"] > 0.9 * (4 << 20) / (2e8 / 8)
