"""Ranks as hosts of their own: network namespaces with one link each to a switch, a bridge, at a set rate.

Inside a user namespace (`unshare -Urn`) this needs no rights. The kernel removes all of it with the last process.
Linux only; iproute2 has the commands.
"""

import ctypes
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
INSIDE = ("unshare", "-Urn")
WIRE = 1514 / 1448
"""Bytes on the wire over bytes of a message: MTU 1500, TCP with timestamps."""

_SOCKET_BYTES = "4096 65536 131072"
"""Least, default and most of a socket's buffer: so little that a message has left its host when its sender says so."""

_QUEUE_BYTES = 1_000_000
"""Of a link: more than all sockets send without an answer, so that nothing is lost."""

_BURST_S = 4e-3
"""What a link may catch up after it was idle; a timer of the kernel is 1 to 4 ms late."""


@cache
def has_hosts() -> bool:
    """Whether links of a set rate can be made here."""
    test = "ip link add eth0 type veth peer name p0 && tc qdisc add dev eth0 root tbf rate 1gbit burst 1mb latency 1ms"
    found = all(map(shutil.which, ("unshare", "nsenter", "ip", "tc")))
    return bool(found) and subprocess.run([*INSIDE, "sh", "-c", test], capture_output=True).returncode == 0


def make_switch() -> None:
    """The bridge, in the namespace of this process."""
    _run("ip link add br0 type bridge")
    _run("ip link set br0 up")


def plug_in(rank: int, bits_per_s: float) -> None:
    """Move this process to a namespace of its own, linked to its parent's switch at this rate in both directions."""
    at_switch = f"nsenter -t {os.getppid()} -n"
    ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK)
    for buffer in ("tcp_rmem", "tcp_wmem"):
        Path("/proc/sys/net/ipv4", buffer).write_text(_SOCKET_BYTES)
    _run("ip link set lo up")
    _run(f"ip link add eth0 type veth peer name p{rank} netns {os.getppid()}")
    _run(f"ip addr add 10.77.0.{rank + 1}/24 dev eth0")
    _run("ip link set eth0 up")
    _run(f"{at_switch} ip link set p{rank} master br0 up")
    limit = f"root tbf rate {bits_per_s:.0f}bit burst {bits_per_s / 8 * _BURST_S:.0f} limit {_QUEUE_BYTES}"
    _run(f"tc qdisc add dev eth0 {limit}")
    _run(f"{at_switch} tc qdisc add dev p{rank} {limit}")


def _run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
