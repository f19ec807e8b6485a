"""The processes of a run: which one this is, how they join, and the messages between them."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import local
from typing import Any

from ...simulator.base.errors import UserError

TIMEOUT = timedelta(minutes=10)  # of a collective or a signal: longer means that a rank is lost
PATIENCE_S = 10  # for the first rank of a machine to say what is wrong, and for its launcher to end the others


@dataclass(frozen=True)
class World:
    """The position of this process among all, from torchrun's environment variables."""

    rank: int
    size: int
    local_rank: int
    local_size: int

    @classmethod
    def find(cls) -> "World | None":
        """The world of this process; None outside torchrun and similar launchers."""
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
    def report_once(self) -> Iterator[None]:
        """Around checks that fail on all ranks of a machine: the first reports the error; its launcher ends the others.

        Torchrun shows what stands in its error file in its block on failed processes.
        """
        try:
            yield
        except UserError:
            if self.local_rank:
                time.sleep(PATIENCE_S)
            if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
                message = "see the line of runcast above, `error: ...`"
                extra = {"py_callstack": message, "timestamp": str(int(time.time()))}
                with suppress(OSError):
                    Path(file).write_text(json.dumps({"message": {"message": message, "extraInfo": extra}}))
            raise


@contextmanager
def process_group() -> Iterator[None]:
    """Inside it the default process group exists: Gloo over all ranks, for messages of the run itself.

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


class Store:
    """Messages between ranks by name, through the key-value store of the rendezvous; each thread has its own client."""

    def __init__(self, run: str):
        self._run, self._clients = run, local()

    def post(self, name: str, message: object) -> None:
        """Leave a message."""
        self._client.set(f"{self._run}/{name}", pickle.dumps(message))

    def read(self, name: str) -> Any:
        """Wait until there is a message of that name, and return it."""
        return pickle.loads(self._client.get(f"{self._run}/{name}"))

    @property
    def _client(self):  # type: ignore[no-untyped-def]
        if not hasattr(self._clients, "store"):
            from torch.distributed import TCPStore

            place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            self._clients.store = TCPStore(*place, is_master=False, timeout=TIMEOUT)
        return self._clients.store


def spawn(size: int, module: str, arguments: Sequence[str]) -> int:
    """Run `python -m module arguments` as `size` ranks on this machine; returns the exit code of the first to fail.

    Raises:
        UserError: a rank was killed; the others were ended.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = os.environ | {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    command = [sys.executable, "-m", module, *arguments]
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(size):
            ranks.append(subprocess.Popen(command, env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}))
        while None in (codes := [rank.poll() for rank in ranks]) and not any(codes):
            time.sleep(0.02)
        if killed := [rank for rank, code in enumerate(codes) if code is not None and code < 0]:
            by = signal.Signals(-int(codes[killed[0]] or 0)).name
            why = ", perhaps for lack of memory" if by == "SIGKILL" else ""
            raise UserError(f"rank {killed[0]} was killed by {by}{why}; the other ranks were ended")
        return next((code for code in codes if code), 0)
    finally:
        _end(ranks)


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask those that still run to leave, for they have lost their peers; then make them."""
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        try:
            rank.wait(timeout=5)
        except subprocess.TimeoutExpired:
            rank.kill()
