"""Memory of ranks on other machines: read and written through a door, by those who know its token."""

from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="executing needs the [calibrate] extra")

import torch
from runcast.calibrate.execute.acts import SharedMemory, open_memory
from runcast.calibrate.execute.far import FarMemory
from runcast.simulator.base.errors import UserError


@pytest.fixture
def owned(monkeypatch):
    """Memory of rank 0, seen from rank 1 on another machine."""
    world = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": "29999", "RANK": "0"}  # fmt: skip
    for name, value in world.items():
        monkeypatch.setenv(name, value)
    memory = SharedMemory(1000)
    monkeypatch.setenv("RANK", "1")
    yield memory
    memory.close()


def test_who_is_elsewhere_reads_and_writes_through_the_door(owned):
    owned.tensor[:] = torch.arange(1000) % 251
    there, found = open_memory(owned.address, writable=True), torch.zeros(10, dtype=torch.uint8)
    there.read(slice(300, 310), found)
    there.write(slice(5, 8), torch.tensor([1, 2, 3], dtype=torch.uint8))

    assert isinstance(there, FarMemory)
    assert found.tolist() == [number % 251 for number in range(300, 310)]
    assert owned.tensor[4:9].tolist() == [4, 1, 2, 3, 8]


def test_who_is_here_maps_it(owned, monkeypatch):
    monkeypatch.setenv("RANK", "0")

    assert not isinstance(open_memory(owned.address), FarMemory)


def test_a_wrong_token_opens_nothing(owned):
    there = FarMemory(replace(owned.address.door, token=b"0" * 16))

    with pytest.raises(UserError, match=r"cannot reach the memory of another rank at 127\.0\.0\.1:\d+: "):
        there.read(slice(0, 1), torch.zeros(1, dtype=torch.uint8))


def test_a_door_that_is_closed_is_one_line(owned):
    owned.close_door()

    with pytest.raises(UserError, match="cannot reach the memory of another rank"):
        FarMemory(owned.address.door)
