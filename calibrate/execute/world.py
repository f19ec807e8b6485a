"""The processes of a run: which one this is, how they join, and the messages between them."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Thread, local
from typing import Any, NoReturn

from ...simulator.base.errors import UserError, fault

TIMEOUT = timedelta(minutes=10)  # of an exchange or a signal: longer means that a rank is lost
PATIENCE_S = 10  # for the first rank of a machine to say what is wrong, and for its launcher to end the others
_SPAWNED = "RUNCAST_SPAWNED"  # set where `spawn` is the launcher


class RunError(RuntimeError):
    """The run cannot go on: a peer is lost, or memory. `line` says why; it is None where another rank says it."""

    def __init__(self, line: str | None):
        super().__init__(line or "another rank says why")
        self.line = line


@dataclass(frozen=True)
class World:
    """The position of this process among all, from torchrun's environment variables."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    timeout: timedelta = TIMEOUT

    @classmethod
    def find(cls, timeout: timedelta = TIMEOUT) -> "World | None":
        """The world of this process; None outside torchrun and similar launchers.

        Raises:
            UserError: a variable of the launcher is no whole number.
        """
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return None
        rank, size = _number("RANK", ""), _number("WORLD_SIZE", "")
        return cls(rank, size, _number("LOCAL_RANK", "0"), _number("LOCAL_WORLD_SIZE", "1"), timeout)

    @property
    def ranks_here(self) -> range:
        """The ranks of this machine, which are numbered one after the other."""
        first = self.rank - self.local_rank
        return range(first, first + self.local_size)

    def check(self, ranks: int, where: str) -> None:
        """Raise a UserError unless there are this many ranks."""
        if self.size != ranks:
            raise UserError(f"{where}: has {ranks} GPUs, but {self.size} ranks were started")

    @contextmanager
    def report_once(self) -> Iterator[None]:
        """Around a whole run: one rank of all reports an error in one line, and its launcher ends the others.

        What is the user's mistake fails on all ranks of a machine, and the first one reports it. Of a run that cannot
        go on, `RunError` knows who reports; this process leaves at once then, for its threads wait for lost peers.
        """
        if is_spawned():
            _follow_launcher()
        try:
            yield
        except UserError:
            if self.local_rank:
                time.sleep(PATIENCE_S)
            _tell_torchrun()
            raise
        except RunError as error:
            if error.line is None:
                time.sleep(PATIENCE_S)
            else:
                print(f"error: {error.line}", file=sys.stderr, flush=True)
            _tell_torchrun()
            leave(1)


def _number(name: str, default: str) -> int:
    """A whole number in an environment variable."""
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        raise UserError(fault("", name, os.environ[name], "must be a whole number").removeprefix(": ")) from None


def _tell_torchrun() -> None:
    """Torchrun shows what stands in its error file in its block on failed processes."""
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        message = "see the line of runcast above, `error: ...`"
        extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
        with suppress(OSError):
            Path(file).write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))


def leave(code: int) -> NoReturn:
    """End this process at once, whatever its threads do.

    Some may wait for peers that never answer; and one that leaves C++ of torch while Python ends aborts the process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def is_spawned() -> bool:
    """Whether `spawn` has started this process, and tells which rank was killed."""
    return _SPAWNED in os.environ


def _follow_launcher() -> None:
    """End with the launcher, however it ends: until then it holds the other end of this process's input.

    An interrupt from the keyboard reaches all processes: the launcher alone acts on it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def follow() -> None:
        os.read(sys.stdin.fileno(), 1)
        leave(1)

    Thread(target=follow, daemon=True, name="follow launcher").start()


@contextmanager
def process_group() -> Iterator[None]:
    """Inside it the default process group exists: Gloo over all ranks, for messages of the run itself.

    One that exists already is used, and stays. Its timeout is `TIMEOUT`, as ranks may start late, and wait for the
    reference that rank 0 computes. After an error nobody waits for the peers.

    Raises:
        UserError: the launcher does not say where ranks meet, or the port is in use.
        RunError: not all ranks have come in time.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        yield
        return
    if missing := [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]:
        raise UserError(f"{' and '.join(missing)}: must be set beside RANK and WORLD_SIZE, as torchrun does")
    _number("MASTER_PORT", "")
    try:
        dist.init_process_group("gloo", timeout=TIMEOUT)
    except dist.DistError as error:
        port, ranks = os.environ["MASTER_PORT"], os.environ["WORLD_SIZE"]
        if "EADDRINUSE" in str(error):
            raise UserError(f"MASTER_PORT = {port}: is in use on this machine; choose another port") from None
        place, waited = f"{os.environ['MASTER_ADDR']}:{port}", f"{TIMEOUT.total_seconds():g} s"
        raise RunError(f"not all of {ranks} ranks have met at {place} within {waited}") from error
    yield
    dist.destroy_process_group()


class Store:
    """Messages between ranks by name, through the key-value store of the rendezvous; each thread has its own client."""

    def __init__(self, run: str, timeout: timedelta = TIMEOUT):
        self._run, self._clients, self.timeout = run, local(), timeout

    def post(self, name: str, message: object) -> None:
        """Leave a message."""
        self._client.set(f"{self._run}/{name}", pickle.dumps(message))

    def read(self, name: str) -> Any:
        """Wait until there is a message of that name, and return it."""
        return pickle.loads(self._client.get(f"{self._run}/{name}"))

    def has(self, name: str) -> bool:
        """Whether there is a message of that name."""
        return bool(self._client.check([f"{self._run}/{name}"]))

    def is_first(self, name: str) -> bool:
        """Whether nobody of all ranks has asked this before."""
        return int(self._client.add(f"{self._run}/{name}", 1)) == 1

    @property
    def _client(self):  # type: ignore[no-untyped-def]
        if not hasattr(self._clients, "store"):
            from torch.distributed import TCPStore

            place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            self._clients.store = TCPStore(*place, is_master=False, timeout=self.timeout)
        return self._clients.store


def spawn(size: int, module: str, arguments: Sequence[str]) -> int:
    """Run `python -m module arguments` as `size` ranks on this machine; returns the exit code of the first to fail.

    The ranks meet at a store of this process, as at torchrun's, on a port that the system has chosen. They end with
    this process, however it ends.

    Raises:
        UserError: a rank was killed; the others were ended.
    """
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    command = [sys.executable, "-m", module, *arguments]
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(size):
            variables = os.environ | _variables(rank, size, store.port)
            ranks.append(subprocess.Popen(command, env=variables, stdin=subprocess.PIPE))
        while None in (codes := [rank.poll() for rank in ranks]) and not any(codes):
            time.sleep(0.02)
        if killed := [rank for rank, code in enumerate(codes) if code is not None and code < 0]:
            by = signal.Signals(-int(codes[killed[0]] or 0)).name
            why = ", perhaps for lack of memory" if by in ("SIGKILL", "SIGBUS") else ""
            raise UserError(f"rank {killed[0]} was killed by {by}{why}; the other ranks were ended")
        return next((code for code in codes if code), 0)
    finally:
        _end(ranks)
        signal.signal(signal.SIGTERM, before)


def _variables(rank: int, size: int, port: int) -> Mapping[str, str]:
    """What a rank finds in its environment, as from torchrun."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True", _SPAWNED: "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
    }  # fmt: skip


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask those that still run to leave, for they have lost their peers; make those that do not within 5 s."""
    for rank in ranks:
        rank.terminate()
    deadline = time.monotonic() + 5
    for rank in ranks:
        try:
            rank.wait(timeout=max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()
