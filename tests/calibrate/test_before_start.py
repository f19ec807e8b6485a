"""What is checked before any rank starts: memory, and the folder for what is measured. Without torch."""

import re
from pathlib import Path

import pytest
from runcast.calibrate.execute import content, world
from runcast.calibrate.execute.content import available_bytes, check_memory, host_bytes
from runcast.calibrate.execute.measured import check_folder
from runcast.calibrate.execute.world import World
from runcast.simulator import cli
from runcast.simulator.answers.compare.spans import unfold
from runcast.simulator.base.errors import UserError

SCENARIO = """
kind = "weight_update"
cluster = { base = "h20-hgx", gpus_per_node = 2 }
nodes = 2
model = { bytes = 5000, tensors = 5 }
[update]
bucket = "4 KiB"
inference = { tp = 2 }
"""


@pytest.fixture
def scenario(tmp_path):
    (tmp_path / "a.toml").write_text(SCENARIO)
    return tmp_path / "a.toml"


def test_what_ranks_allocate(scenario):
    """Owners have 2, 2, 1 and 0 tensors of 1000 bytes, 1024 in their place; three buffers each; half of all tensors."""
    resolved = unfold(scenario)
    assert host_bytes(resolved, range(4)) == {
        "weights to send": 5 * 1024,
        "buffers": 4 * 3 * 4096,
        "weights to receive": 4 * 2500,
    }
    assert host_bytes(resolved, [2, 3])["weights to send"] == 1024
    assert host_bytes(resolved, range(4), "cuda") == {"weights to send": 5 * 1024}


def test_a_rank_that_is_not_listed_allocates_only_what_it_owns(scenario):
    """The two listed ones allocate their buffers too, and half of all tensors each."""
    resolved = unfold(scenario, ["update.method=p2p", "update.ranks=2"])
    assert host_bytes(resolved, range(4)) == {
        "weights to send": 5 * 1024,
        "buffers": 2 * 3 * 4096,
        "weights to receive": 2 * 2500,
    }
    assert host_bytes(resolved, [2]) == {"weights to send": 1024, "buffers": 0, "weights to receive": 0}


def test_too_little_memory_is_one_line(scenario, monkeypatch):
    monkeypatch.setattr(content, "available_bytes", lambda: 4096)
    line = (
        f"{scenario}: 2 ranks on this machine need 600 MiB of memory (4 KiB of weights to send, 24 KiB of buffers, "
        "4.88 KiB of weights to receive, 600 MiB of processes), but 4 KiB are available: take a smaller "
        "model (model.bytes), "
    )
    with pytest.raises(UserError, match=re.escape(line)):
        check_memory(unfold(scenario), [0, 1])


def test_what_trainers_and_engines_allocate(scenario):
    """Two trainers hold half of 5000 bytes each and two send buffers, two engines half of all and two of their own."""
    trained = ["update.method=single_sender", "update.trainer={gpus=2, tp=2}"]
    resolved = unfold(scenario, trained)
    assert host_bytes(resolved, range(4)) == {
        "weights to send": 5000,
        "buffers": 4 * 2 * 4096,
        "weights to receive": 2 * 2500,
    }
    resolved = unfold(scenario, ["update.method=replica_writes", trained[1]])
    assert host_bytes(resolved, [0, 1]) == {
        "weights to send": 5000 + 2 * 2500,
        "buffers": 2 * 2 * 4096,
        "weights to receive": 0,
    }


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (["method=reshard"], "update.method: cannot execute 'reshard'; expected broadcast, p2p, single_sender, "),
        (["method=stage_heads", "quantize=before"], "update.quantize: is simulated only"),
        (["method=stage_heads", "delta={density=0.1}"], "update.delta: is simulated only"),
        (["method=file_system", "storage={write='1 GB/s', read='1 GB/s'}"], "update.method: cannot execute 'file_sys"),
        (["method=single_sender", "load=false"], "update.load: is simulated only"),
    ],
)
def test_what_cannot_be_executed_is_one_line(scenario, changes, line):
    resolved = unfold(scenario, [f"update.{change}" for change in ["trainer={gpus=2}", *changes]])
    with pytest.raises(UserError, match=re.escape(f"{scenario}: {line}")) as error:
        check_memory(resolved, range(4))
    assert len(error.value.faults) == 1


@pytest.mark.parametrize("available", [None, 10**10])
def test_enough_memory_or_unknown(scenario, monkeypatch, available):
    monkeypatch.setattr(content, "available_bytes", lambda: available)
    check_memory(unfold(scenario), range(4))


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="not Linux")
def test_this_machine_has_some_memory():
    assert 2**20 < available_bytes() < 2**50


def test_what_a_container_has_used_is_not_available(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    monkeypatch.setattr(content, "_CGROUP", tmp_path)
    assert available_bytes() == 1000 - (700 - 150)


@pytest.mark.parametrize("local_rank", ["0", "1"])
def test_each_machine_counts_its_own_ranks(scenario, monkeypatch, capsys, local_rank):
    """The second of two machines; its second rank would be ended while it waits."""
    monkeypatch.setattr(content, "available_bytes", lambda: 4096)
    monkeypatch.setattr(world, "PATIENCE_S", 0)
    place = {"RANK": 2 + int(local_rank), "WORLD_SIZE": 4, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": 2}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(SystemExit) as leave:
        cli.main(["execute", str(scenario)])
    assert leave.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "2 ranks on this machine need 600 MiB of memory (1 KiB of weights to send, " in line


def test_ranks_of_a_machine():
    assert World(rank=5, size=8, local_rank=1, local_size=4).ranks_here == range(4, 8)


def test_a_folder_that_can_be_made_is_not_made_yet(tmp_path):
    check_folder(tmp_path / "a" / "b")
    check_folder(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(UserError, match=r"--out .*/a/b: cannot make this folder: Not a directory"):
        check_folder(tmp_path / "a" / "b")
