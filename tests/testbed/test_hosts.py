"""Hosts on this machine: they are set up, they end, and nothing else is touched."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from . import shares
from .hosts import has_netem, missing, remove_stale, run, set_up
from .launch import ROOT, RankFailedError, run_ranks
from .topology import Topology, star, two_level

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing() or "none"),
]

LEFT = """
import sys, time
from tests.testbed.hosts import set_up
from tests.testbed.launch import run_ranks
from tests.testbed.topology import star
import pathlib, subprocess
with set_up(star(2, 1e8)) as bed:
    inside = subprocess.Popen(["ip", "netns", "exec", bed.hosts[0], "sleep", "300"])
    print(bed.name, inside.pid, flush=True)
    time.sleep(300)
"""


def names():
    return {path.name for path in Path("/run/netns").iterdir()} if Path("/run/netns").exists() else set()


def test_hosts_reach_each_other_and_are_gone_afterwards(tmp_path):
    with set_up(two_level(2, 1e8, 2, 5e7)) as bed:
        assert {*bed.hosts, bed.switches} <= names()
        run_ranks(bed, ["-c", SEND], tmp_path, limit_s=60)
    assert not {*bed.hosts, bed.switches} & names()


def test_a_command_that_fails_leaves_nothing():
    with pytest.raises(OSError, match="htb"), set_up(Topology((-1.0,) * 2)):
        pass
    assert not [name for name in names() if f".{__import__('os').getpid()}." in name]


def test_what_a_killed_process_left_is_removed_with_what_runs_there():
    owner = subprocess.Popen([sys.executable, "-c", LEFT], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    name, inside = owner.stdout.readline().split()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert f"{name}.h0" in names()
    assert set(remove_stale()) >= {f"{name}.h0", f"{name}.h1", f"{name}.sw"}
    assert not [one for one in names() if one.startswith(name)]
    end = time.monotonic() + 5
    while Path(f"/proc/{inside}").exists() and "Z" not in Path(f"/proc/{inside}/stat").read_text().split()[2]:
        assert time.monotonic() < end, "a process of a stale host still runs"
        time.sleep(0.05)


SPIN = """
import os, time
began, own = time.perf_counter(), time.process_time()
while time.perf_counter() < began + 1.5:
    pass
print((time.process_time() - own) / (time.perf_counter() - began))
"""

needs_shares = pytest.mark.skipif(bool(shares.missing(4, 0.3)), reason=shares.missing(4, 0.3) or "none")


@pytest.mark.alone  # four hosts want more than one of two cores
@needs_shares
def test_hosts_with_a_share_of_a_core_have_it_however_many_compute(tmp_path):
    with set_up(star(4, 1e8).with_share(0.3)) as bed:
        assert set(bed.hosts) <= set(shares.names())
        run_ranks(bed, ["-c", SPIN], tmp_path, limit_s=60)
    found = [float((tmp_path / f"rank{rank}.txt").read_text()) for rank in range(4)]

    assert found == pytest.approx([0.3] * 4, abs=0.05)
    assert not set(bed.hosts) & set(shares.names())


@needs_shares
def test_shares_of_a_killed_process_are_removed(tmp_path):
    program = LEFT.replace("star(2, 1e8)", "star(2, 1e8).with_share(0.3)")
    owner = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    name = owner.stdout.readline().split()[0]
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert f"{name}.h0" in shares.names()
    remove_stale()
    assert not [one for one in shares.names() if one.startswith(name)]


def test_more_than_a_machine_has_is_no_share():
    assert "need more than" in shares.missing(1000, 0.4)


def test_other_testbeds_and_other_namespaces_stay():
    other = f"not-a-testbed-{time.time_ns()}"
    run(f"ip netns add {other}")
    try:
        with set_up(star(2, 1e8)) as bed:
            with set_up(star(2, 1e8)):
                assert not remove_stale()
            assert {*bed.hosts, other} <= names()
        assert other in names()
    finally:
        run(f"ip netns del {other}")


def test_a_rank_that_fails_ends_all_with_its_message(tmp_path):
    program = "import os, time; os.environ['RANK'] == '1' and exit('no luck'); time.sleep(60)"
    began = time.monotonic()
    with set_up(star(2, 1e8)) as bed, pytest.raises(RankFailedError, match="rank 1 failed: no luck"):
        run_ranks(bed, ["-c", program], tmp_path)
    assert time.monotonic() - began < 30


def test_ranks_that_take_too_long_are_ended(tmp_path):
    with set_up(star(2, 1e8)) as bed, pytest.raises(RankFailedError, match="took longer than 1 s"):
        run_ranks(bed, ["-c", "import time; time.sleep(60)"], tmp_path, limit_s=1)


SEND = """
import os, socket, time
host, size = os.environ["MASTER_ADDR"], 1 << 19
if os.environ["RANK"] == "0":
    with socket.create_server((host, 7000)) as server:
        peer, _ = server.accept()
        got = 0
        while got < size:
            got += len(peer.recv(1 << 20))
        peer.sendall(b"x")
else:
    while True:
        try:
            peer = socket.create_connection((host, 7000))
            break
        except OSError:
            time.sleep(0.05)
    began = time.perf_counter()
    peer.sendall(bytes(size))
    peer.recv(1)
    print(time.perf_counter() - began)
"""


def seconds(topology, folder):
    """How long half a mebibyte takes from host 1 to host 0."""
    with set_up(topology) as bed:
        run_ranks(bed, ["-c", SEND], folder, limit_s=60)
    return float((folder / "rank1.txt").read_text())


def test_a_slow_cable_is_slow(tmp_path):
    """Half a mebibyte at 8 Mb/s.

    The kernel hands TCP's data on in pieces of up to 64 KiB and lets the last one go before its time, and a cable that
    was idle catches up 10 kB (`_LEAST_BURST`): both may make it shorter, a busy machine only longer.
    """
    size, last_piece, burst = 1 << 19, 1 << 16, 10_000
    assert (size - last_piece - burst) / 1e6 < seconds(star(2, 8e6), tmp_path) < 2


@pytest.mark.skipif(bool(missing()) or not has_netem(), reason="this kernel has no netem: no delays, no losses")
def test_packets_that_are_late_or_lost_take_longer(tmp_path):
    late, lossy = Topology((1e8, 1e8), delay_s=0.05), Topology((1e8, 1e8), losses=((1, 0.05),))
    assert seconds(late, tmp_path) > 0.1
    assert seconds(lossy, tmp_path) > seconds(star(2, 1e8), tmp_path)


def test_a_lossy_cable_drops_packets_but_no_bytes(tmp_path):
    """Where netem is missing a queue of few packets loses some of them."""
    with set_up(Topology((2e7, 2e7), queue_bytes=20_000)) as bed:
        run_ranks(bed, ["-c", SEND], tmp_path, limit_s=60)
        assert bed.dropped() > 0
