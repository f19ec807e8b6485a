"""Every kind of case on real ranks: results are right, and wrong ones are counted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from .ranks import facts_of, smallest

SCRIPT = Path(__file__).with_name("ranks.py")


def measured(folder, ranks, nodes, *spoil):
    """What each rank saw of the cases in which it took part."""
    commands = [[sys.executable, SCRIPT, folder, str(rank), str(ranks), str(nodes), *spoil] for rank in range(ranks)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    try:
        told = [process.communicate(timeout=400)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * ranks, told
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def wrong(seen):
    """Wrong elements of each case, over all ranks."""
    keys = {key for of_rank in seen for key in of_rank}
    return {key: sum(of_rank.get(key, {"wrong": 0})["wrong"] for of_rank in seen) for key in keys}


@pytest.mark.slow
def test_two_nodes_of_two_ranks(tmp_path):
    seen = measured(tmp_path, 4, 2)
    assert wrong(seen) == {case.key: 0 for case in smallest(facts_of(4, 2))}
    assert [key for of_rank in seen for key, case in of_rank.items() if not case["enough"]] == []


@pytest.mark.slow
def test_a_wrong_element_on_one_rank_is_counted(tmp_path):
    seen = measured(tmp_path, 2, 1, "spoil")
    assert wrong(seen) == {case.key: 1 for case in smallest(facts_of(2, 1), spoil=True)}
