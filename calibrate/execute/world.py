"""The processes of a run: which one this is, how they join, and the signals between them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from uuid import uuid4

TIMEOUT = timedelta(minutes=10)  # of a collective or a signal: longer means that a rank is lost


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
        from torch.distributed import TCPStore

        return TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=TIMEOUT)

    def _key(self, op: int, rank: int) -> str:
        return f"{self.run}/{op}/{rank}"
