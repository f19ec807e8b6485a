"""Memory that other processes read: without a part of its owner, without an effect on it, and nothing stays behind."""

import os
import re
import signal
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="executing needs the [calibrate] extra")

import torch
from runcast.calibrate.execute.acts import Address, SharedMemory, check_one_sided, map_memory
from runcast.simulator.base.errors import UserError

pytestmark = pytest.mark.slow

NEEDS_MEMFD = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux only")

OWNER = """
import sys
from runcast.calibrate.execute.acts import SharedMemory

memory = SharedMemory(10_001)
memory.tensor[-1] = 7
print(memory.address.process, memory.address.descriptor, memory.address.bytes, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def owner():
    """A process that owns 10,001 bytes, the last of them 7, and is stopped: it can have no part in anything."""
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        address = Address(*map(int, process.stdout.readline().split()))
        process.send_signal(signal.SIGSTOP)
        yield process, address
        process.kill()


@NEEDS_MEMFD
def test_a_stopped_owner_is_read(owner):
    seen = map_memory(owner[1])
    assert (len(seen), int(seen[-1]), int(seen.sum())) == (10_001, 7, 7)


@NEEDS_MEMFD
def test_nothing_is_left_of_an_owner_that_was_killed_but_what_others_have_map_memory(owner):
    process, address = owner
    seen = map_memory(address)
    process.kill()
    process.wait()
    assert int(seen[-1]) == 7
    with pytest.raises(UserError, match=r"cannot map the memory of another rank: .*No such file"):
        map_memory(address)


@NEEDS_MEMFD
def test_owners_write_and_readers_do_not():
    owned = SharedMemory(8)
    seen = map_memory(owned.address)
    owned.tensor[:] = torch.arange(8)
    assert seen.tolist() == list(range(8))
    seen[0] = 9
    assert owned.tensor.tolist() == list(range(8))
    owned.close()
    assert seen.tolist() == [9, *range(1, 8)]


@NEEDS_MEMFD
def test_who_maps_it_writable_writes_to_its_owner():
    owned = SharedMemory(8)
    map_memory(owned.address, writable=True)[3] = 9
    assert owned.tensor.tolist() == [0, 0, 0, 9, 0, 0, 0, 0]
    owned.close()


def test_only_linux_has_such_memory(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with pytest.raises(UserError, match=re.escape("a.toml: update.method: p2p is executed on Linux only")):
        check_one_sided("p2p", "a.toml")
