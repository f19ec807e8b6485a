"""Hosts on this machine: network namespaces, with veth pairs as cables, bridges as switches and tc for their rates.

Everything is inside namespaces of our own, and control groups where hosts have shares of a core, so nothing else on the
machine changes. Their names begin with PREFIX, and hold the process that made them and when it began. A process that
crashed leaves its namespaces behind; the next one finds that their owner is dead, and removes them with whatever still
runs inside. Linux only; needs root and iproute2.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from . import shares
from .topology import Topology

PREFIX = "runcast-testbed"
_NAMES = re.compile(rf"{PREFIX}\.(\d+)\.(\d+)\.\d+\.\w+")
_NUMBERS = count()

_SENT_BYTES, _RECEIVED_BYTES = "'4096 65536 131072'", "'4096 1048576 4194304'"
"""Least, default and most of a socket's buffers.

Senders have so little that most of a message has left its host when its sender says so; receivers never run full, where
TCP would drop packets and wait.
"""

_BURST_S = 2e-3
"""What a cable may catch up after it was idle; a timer of the kernel is 1 to 4 ms late."""

_LEAST_BURST = 10_000  # bytes; a few packets


@dataclass(frozen=True)
class Bed:
    """Namespaces that are there: one for each host, and one with all switches."""

    topology: Topology
    name: str

    @property
    def hosts(self) -> list[str]:
        """The namespaces of the hosts, in order."""
        return [f"{self.name}.h{host}" for host in range(self.topology.hosts)]

    @property
    def switches(self) -> str:
        """The namespace of the switches."""
        return f"{self.name}.sw"

    def address(self, host: int) -> str:
        """The IP address of a host, in all namespaces of the testbed."""
        return f"10.77.0.{host + 1}"

    def enter(self, host: int) -> list[str]:
        """The beginning of a command that runs on a host."""
        own = shares.enter(self.hosts[host], host % (os.cpu_count() or 1)) if self.topology.share else []
        return [*own, "ip", "netns", "exec", self.hosts[host]]

    def dropped(self) -> int:
        """Packets that cables have dropped so far."""
        stats = [run(f"tc -n {name} -s qdisc show") for name in (*self.hosts, self.switches)]
        return sum(int(number) for text in stats for number in re.findall(r"dropped (\d+)", text))


@cache
def missing() -> str:
    """Why no testbed can be set up here; empty if it can."""
    if lacking := [name for name in ("ip", "tc") if not shutil.which(name)]:
        return f"a testbed needs {' and '.join(lacking)} (iproute2)"
    if os.geteuid():
        return "a testbed needs root, to make network namespaces"
    name = _new_name()
    try:
        run(f"ip netns add {name}.try")
        run(f"ip -n {name}.try link add eth0 type veth peer name p0")
        run(f"ip -n {name}.try link add br0 type bridge")
        run(f"tc -n {name}.try qdisc add dev eth0 root handle 1: htb default 1")
        run(f"tc -n {name}.try filter add dev eth0 parent 1: protocol ip u32 {_SMALL} flowid 1:1")
    except OSError as error:
        return f"a testbed cannot be made here: {error}"
    finally:
        _remove(f"{name}.try")
    return ""


@cache
def has_netem() -> bool:
    """Whether the kernel can delay and lose packets."""
    name = f"{_new_name()}.try"
    try:
        run(f"ip netns add {name}")
        run(f"tc -n {name} qdisc add dev lo root netem delay 1ms loss 1%")
    except OSError:
        return False
    finally:
        _remove(name)
    return True


@contextmanager
def set_up(topology: Topology) -> Iterator[Bed]:
    """Set up hosts, and remove them in the end with all that runs on them; first what dead processes have left.

    Raises:
        OSError: a command of iproute2 failed, or the kernel refuses shares of a processor; it says which and why.
    """
    remove_stale()
    bed = Bed(topology, _new_name())
    try:
        _build(bed)
        yield bed
    finally:
        for name in (*bed.hosts, bed.switches):
            _remove(name)


def run(command: str) -> str:
    """What a command prints; an OSError with its message if it fails."""
    done = subprocess.run(command.split(), capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise OSError(f"{command}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def remove_stale() -> list[str]:
    """Remove the namespaces of testbeds whose owner is dead; their names."""
    stale = [name for name, owner, began in _owned() if _began(owner) != began]
    for name in stale:
        _remove(name)
    return stale


def _new_name() -> str:
    return f"{PREFIX}.{os.getpid()}.{_began(os.getpid())}.{next(_NUMBERS)}"


def _owned() -> list[tuple[str, int, int]]:
    """(name, owner, when it began) of all namespaces of testbeds, and of their hosts' shares of a processor."""
    named = shares.names()
    with suppress(OSError):
        named += [path.name for path in Path("/run/netns").iterdir()]
    found = [_NAMES.fullmatch(name) for name in dict.fromkeys(named)]
    return [(one[0], int(one[1]), int(one[2])) for one in found if one]


def _began(process: int) -> int:
    """When a process began, in clock ticks since boot: with its number it is one process only; -1: it has ended."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return -1


def _remove(name: str) -> None:
    """Kill what runs in a namespace of ours, then remove it; one that is gone already is none of our business.

    What has its name too, a share of a processor, goes with it.
    """
    shares.remove(name)
    with suppress(OSError):
        for process in run(f"ip netns pids {name}").split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
    with suppress(OSError):
        run(f"ip netns del {name}")


def _build(bed: Bed) -> None:
    topology, switches = bed.topology, bed.switches
    run(f"ip netns add {switches}")
    for leaf in range(topology.leaves):
        _add_switch(switches, f"leaf{leaf}")
    if topology.leaves > 1:
        _add_switch(switches, "spine")
        for leaf in range(topology.leaves):
            run(f"ip -n {switches} link add up{leaf} type veth peer name down{leaf}")
            for end, switch in ((f"up{leaf}", f"leaf{leaf}"), (f"down{leaf}", "spine")):
                run(f"ip -n {switches} link set {end} master {switch} up")
                _limit(switches, end, topology.uplink, topology.queue_bytes)
    for host, name in enumerate(bed.hosts):
        _add_host(bed, host, name)


def _add_switch(namespace: str, name: str) -> None:
    run(f"ip -n {namespace} link add {name} type bridge forward_delay 0")
    run(f"ip -n {namespace} link set {name} up")


def _add_host(bed: Bed, host: int, name: str) -> None:
    topology, switches = bed.topology, bed.switches
    if topology.share:
        shares.make(name, topology.share)
    run(f"ip netns add {name}")
    run(f"ip -n {name} link set lo up")
    run(f"ip link add eth0 netns {name} type veth peer name h{host} netns {switches}")
    run(f"ip -n {name} addr add {bed.address(host)}/24 dev eth0")
    for key, value in _SETTINGS:
        run_in(name, ["sh", "-c", f"echo {value} > /proc/sys/net/ipv4/{key}"])
    run(f"ip -n {name} link set eth0 up")
    run(f"ip -n {switches} link set h{host} master leaf{topology.leaf_of(host)} up")
    late = f"delay {1e3 * topology.delay_s}ms" if topology.delay_s else ""
    lost = dict(topology.losses).get(host, 0.0)
    _limit(name, "eth0", topology.rates[host], topology.queue_bytes, f"{late} loss {100 * lost}%" if lost else late)
    _limit(switches, f"h{host}", topology.rates[host], topology.queue_bytes)


_SETTINGS = (
    ("tcp_rmem", _RECEIVED_BYTES),
    ("tcp_wmem", _SENT_BYTES),
    ("tcp_congestion_control", "reno"),
    ("tcp_slow_start_after_idle", "0"),
    ("tcp_no_metrics_save", "1"),
)


def _limit(namespace: str, device: str, rate: float, queue_bytes: int, faults: str = "") -> None:
    """Send at no more than a rate, small packets first; `faults`: what netem does before to every packet.

    What a receiver answers TCP would else wait behind what it sends itself: cables that are full both ways would stand
    idle for a tenth of the time.
    """
    add, parent = f"tc -n {namespace} qdisc add dev {device}", "root"
    if faults:
        run(f"{add} root handle 9: netem {faults} limit 10000")
        parent = "parent 9:"
    burst = max(rate / 8 * _BURST_S, _LEAST_BURST)
    run(f"{add} {parent} handle 1: htb default 3")
    classes = (("1:", 1, rate, 0), ("1:1", 2, rate / 10, 0), ("1:1", 3, rate * 9 / 10, 1))
    for above, number, least, turn in classes:
        run(
            f"tc -n {namespace} class add dev {device} parent {above} classid 1:{number} htb rate {least:.0f}bit "
            f"ceil {rate:.0f}bit burst {burst:.0f} cburst {burst:.0f} quantum {_QUANTUM} prio {turn}"
        )
    for number in (2, 3):
        run(f"{add} parent 1:{number} bfifo limit {queue_bytes}")
    run(f"tc -n {namespace} filter add dev {device} parent 1: protocol ip u32 {_SMALL} flowid 1:2")


_QUANTUM = 3000  # bytes of a turn
_SMALL = "match u16 0 0xff80 at 2"  # IP packets below 128 bytes


def run_in(name: str, command: Sequence[str]) -> None:
    """Run a command on a host; an OSError if it fails."""
    done = subprocess.run(["ip", "netns", "exec", name, *command], capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
