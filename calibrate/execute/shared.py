"""Host memory that other processes of this machine read or write without a part of its owner, as RDMA does.

It has no name in any file system, so nothing is left behind however a process ends: the kernel frees it with the last
process that has it open or mapped. Neither does the size of /dev/shm bound it. Others find it under its owner's entry
in /proc. Linux only.
"""

import mmap
import os
from dataclasses import dataclass

import torch

from ...simulator.base.errors import UserError
from .world import World


@dataclass(frozen=True)
class Address:
    """Where an owner's memory is, for others to map; good until the owner closes it."""

    process: int
    descriptor: int
    bytes: int


class SharedMemory:
    """Zeroed memory of this process that others may map. `tensor` is all of it."""

    def __init__(self, size_bytes: int):
        self._descriptor = os.memfd_create("runcast-weights")
        os.ftruncate(self._descriptor, size_bytes)
        self.address = Address(os.getpid(), self._descriptor, size_bytes)
        self.tensor = torch.frombuffer(mmap.mmap(self._descriptor, size_bytes), dtype=torch.uint8)

    def close(self) -> None:
        """Let nobody map it from now on; who has mapped it keeps it."""
        os.close(self._descriptor)


def mapped(address: Address, *, writable: bool = False) -> torch.Tensor:
    """The memory of another process: what its owner writes is seen here; so is what is written here there, if writable.

    Raises:
        UserError: this process may not read that one's memory, or the owner has ended.
    """
    path = f"/proc/{address.process}/fd/{address.descriptor}"
    try:
        return torch.from_file(path, shared=writable, size=address.bytes, dtype=torch.uint8)
    except RuntimeError as error:
        raise UserError(f"cannot map the memory of another rank: {str(error).splitlines()[0]}") from None


def check_one_sided(world: World, method: str, where: str) -> None:
    """Raise a UserError unless ranks can map each other's memory here, as this method does."""
    if world.local_size < world.size:
        raise UserError(
            f"{where}: update.method: {method} is executed on one machine only, where ranks can map each other's "
            f"memory; {world.local_size} of {world.size} ranks are on this one"
        )
    if not hasattr(os, "memfd_create"):
        raise UserError(f"{where}: update.method: {method} is executed on Linux only")
