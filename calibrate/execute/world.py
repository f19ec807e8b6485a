"""The processes of a run: which one this is, how they join, and the signals between them."""

import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from threading import local
from typing import Any
from uuid import uuid4

from ...simulator.base.errors import UserError

TIMEOUT = timedelta(minutes=10)  # of a collective or a signal: longer means that a rank is lost
PATIENCE_S = 10  # for the first rank of a machine to say what is wrong, and for its launcher to end the others


@dataclass(frozen=True)
class World:
    """Where this process stands, as torchrun says it in the environment."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @classmethod
    def from_environment(cls) -> "World | None":
        """None outside torchrun and its like."""
        keys = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return None
        return cls(*(int(os.environ.get(key, "0" if "RANK" in key else "1")) for key in keys))

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
    def tells_once(self) -> Iterator[None]:
        """Around what all ranks of a machine find wrong alike: the first tells it; its launcher ends the others."""
        try:
            yield
        except UserError:
            if self.local_rank:
                time.sleep(PATIENCE_S)
            _tell_torchrun("see the line of runcast above, `error: ...`")
            raise


def _tell_torchrun(message: str) -> None:
    """What torchrun shows of this process, in its block on failed processes."""
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
        with suppress(OSError):
            Path(file).write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))


@contextmanager
def joined() -> Iterator[None]:
    """Inside it the default process group exists: Gloo over all ranks, for what the run itself has to tell.

    One that exists already is used, and stays.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        yield
        return
    dist.init_process_group("gloo", timeout=TIMEOUT)
    try:
        yield
    finally:
        dist.destroy_process_group()


def run_name() -> str:
    """A name for this run that no other run of these processes has, the same on all ranks."""
    import torch.distributed as dist

    name = [uuid4().hex]
    dist.broadcast_object_list(name, src=0)
    return name[0]


class StoreSignals:
    """Signals through the key-value store of the rendezvous; a client of its own for each thread that uses any."""

    def __init__(self, run: str, rank: int):
        self.run, self.rank = run, rank

    def send(self, op: int, end_ns: int) -> None:
        """Tell the others that this rank's part of the op ended then."""
        self._store.set(self._key(op, self.rank), str(end_ns))

    def wait(self, op: int, rank: int) -> int:
        """Wait until that rank's part of the op has ended, and return when it did."""
        return int(self._store.get(self._key(op, rank)))

    @cached_property
    def _store(self):  # type: ignore[no-untyped-def]
        return _client()

    def _key(self, op: int, rank: int) -> str:
        return f"{self.run}/{op}/{rank}"


class StoreMessages:
    """Messages that anyone may read who knows their name, through the same store; a client for each thread again."""

    def __init__(self, run: str):
        self.run, self._clients = run, local()

    def post(self, name: str, message: object) -> None:
        """Leave a message."""
        self._store().set(f"{self.run}/{name}", pickle.dumps(message))

    def read(self, name: str) -> Any:
        """Wait until there is one of that name, and return it."""
        return pickle.loads(self._store().get(f"{self.run}/{name}"))

    def _store(self):  # type: ignore[no-untyped-def]
        if not hasattr(self._clients, "store"):
            self._clients.store = _client()
        return self._clients.store


def _client():  # type: ignore[no-untyped-def]
    from torch.distributed import TCPStore

    return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=TIMEOUT)


def spawn(size: int, module: str, arguments: Sequence[str]) -> int:
    """Run `python -m module arguments` as `size` ranks on this machine; returns the exit code of the first to fail."""
    shared = os.environ | {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    command = [sys.executable, "-m", module, *arguments]
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(size):
            ranks.append(subprocess.Popen(command, env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}))
        return _first_failure(ranks)
    finally:
        _end(ranks)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _first_failure(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    while None in (codes := [rank.poll() for rank in ranks]) and not any(codes):
        time.sleep(0.02)
    return next((code for code in codes if code), 0)


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Whoever still runs has lost its peers: ask it to leave, then make it."""
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        try:
            rank.wait(timeout=5)
        except subprocess.TimeoutExpired:
            rank.kill()
