"""What every rank does, whatever the update: its memory, its process groups, and the ops that both kinds have.

Collectives of host lanes run on Gloo, those of other lanes on the device's library. Each lane has process groups of
its own, so that the order of one lane's collectives cannot block another's.

Host memory that other processes of this machine read or write without a part of its owner, as RDMA does, has no name in
any file system, so nothing is left behind however a process ends: the kernel frees it with the last process that has it
open or mapped. Neither does the size of /dev/shm bound it. Others find it under its owner's entry in /proc; from other
machines they reach it through a door (`far`). Linux only.
"""

import mmap
import os
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
import torch.distributed as dist

from ...simulator.base.errors import UserError
from ...simulator.program import Access
from .backend import Backend
from .content import Content
from .far import Door, FarMemory, open_door
from .measured import Checked
from .parts import Parts
from .world import Store


@dataclass(frozen=True)
class Address:
    """The address of an owner's memory, which others can map until the owner closes it, or on other machines reach."""

    process: int
    descriptor: int
    bytes: int
    door: Door | None = None


class SharedMemory:
    """Zeroed memory of this process that others may map. `tensor` is all of it."""

    def __init__(self, size_bytes: int):
        self._descriptor = os.memfd_create("runcast-weights")
        os.ftruncate(self._descriptor, size_bytes)
        self.tensor = torch.frombuffer(mmap.mmap(self._descriptor, size_bytes), dtype=torch.uint8)
        door, self.close_door = open_door(self.tensor) or (None, lambda: None)
        self.address = Address(os.getpid(), self._descriptor, size_bytes, door)

    def close(self) -> None:
        """Let nobody map it from now on; who has mapped it keeps it."""
        self.close_door()
        os.close(self._descriptor)


class NearMemory:
    """Memory of another process of this machine, which has mapped it; as `FarMemory`."""

    def __init__(self, mapped: torch.Tensor):
        self._mapped = mapped

    def read(self, place: slice, into: torch.Tensor) -> None:
        """Read a range of bytes."""
        into.copy_(self._mapped[place], non_blocking=True)

    def write(self, place: slice, values: torch.Tensor) -> None:
        """Write a range of bytes."""
        self._mapped[place].copy_(values, non_blocking=True)


def open_memory(address: Address, *, writable: bool = False) -> NearMemory | FarMemory:
    """Access to the memory of another rank, on this machine or another one; a UserError if there is none."""
    if address.door is not None and address.door.is_needed:
        return FarMemory(address.door)
    return NearMemory(map_memory(address, writable=writable))


def map_memory(address: Address, *, writable: bool = False) -> torch.Tensor:
    """The memory of another process: what its owner writes is seen here; so is what is written here there, if writable.

    Raises:
        UserError: this process may not read that one's memory, or the owner has ended.
    """
    path = f"/proc/{address.process}/fd/{address.descriptor}"
    try:
        return torch.from_file(path, shared=writable, size=address.bytes, dtype=torch.uint8)
    except RuntimeError as error:
        raise UserError(f"cannot map the memory of another rank: {str(error).splitlines()[0]}") from None


def check_one_sided(method: str, where: str) -> None:
    """Raise a UserError unless ranks can map each other's memory here, as this method does."""
    if not hasattr(os, "memfd_create"):
        raise UserError(f"{where}: update.method: {method} is executed on Linux only")


HOST_LANES = ("ps", "worker", "trainer", "meet")
GroupKey = tuple[str, tuple[int, ...]]  # lane, ranks
ContentT = TypeVar("ContentT", bound=Content)


class Actor(Generic[ContentT]):
    """One rank: its memory and its groups. Its method `do_KIND` is what it does for an op of that kind."""

    collective: tuple[str, ...] = ()  # kinds whose ranks have a process group

    def __init__(self, parts: Parts, rank: int, content: ContentT, backend: Backend, store: Store):
        self.parts, self.program, self.rank = parts, parts.program, rank
        self.content, self.backend, self.store = content, backend, store
        self.shared: dict[int, SharedMemory] = {}  # buffers of this rank that others may map
        self.buffers: dict[int, torch.Tensor] = {}
        self.weights = self.resident()
        self.groups: dict[GroupKey, dist.ProcessGroup] = {}
        self._join_groups(host=True)
        if not any(rank in self.parts.ranks[op] for op in self._ops("init_group")):
            self._join_groups(host=False)
        self.prepare()

    def prepare(self) -> None:
        """What else a rank has before an update."""

    @classmethod
    def kinds(cls) -> list[str]:
        """The kinds of ops that it can do."""
        return [name.removeprefix("do_") for name in dir(cls) if name.startswith("do_")]

    def act(self, op: int) -> None:
        """Do this rank's part of an op, or issue it on the device."""
        getattr(self, f"do_{self.program.kind_of(op)}")(op)

    def meet(self) -> None:
        """What ranks tell each other before the update, once; all call it."""

    def check(self) -> Checked:
        """Compare all bytes of this rank's weights with what they must be."""
        names, wrong = self.content.resolved.weights.names, []
        for tensor, own in self.weights.items():
            expected = self.content.tensor_bytes(tensor)[self.content.slice_of(self.rank, tensor)]
            if not torch.equal(own.cpu(), torch.from_numpy(expected)):
                wrong.append(names[tensor])
        return Checked(len(self.weights), sum(own.nbytes for own in self.weights.values()), wrong)

    def close(self) -> None:
        """Nobody reads what this rank owns any more."""
        for memory in self.shared.values():
            memory.close()

    def resident(self) -> dict[int, torch.Tensor]:
        """The inference engine's own copy of its share of every tensor, still without content."""
        sizes = self.content.sizes_on(self.rank).tolist()
        return {i: self.backend.memory(size) for i, size in enumerate(sizes)}

    def device_memory(self, buffer: int, size_bytes: int) -> torch.Tensor:
        """Memory for a buffer, without content."""
        return self.backend.memory(size_bytes)

    def do_init_group(self, op: int) -> None:
        """Make the process groups of the device lanes, and connect them."""
        self._join_groups(host=False)
        for key, group in self.groups.items():
            if key[0] not in HOST_LANES and self.rank in key[1]:
                dist.barrier(group)

    def do_allocate(self, op: int) -> None:
        """Agree on the size of the buffers, then allocate them."""
        sizes = {access.buffer: access.bytes for access in self._accesses(op, write=True)}
        self._all_reduce(op, sum(sizes.values()), dist.ReduceOp.MIN)
        for buffer, size in sizes.items():
            self.buffers[buffer] = self.device_memory(buffer, size)

    def do_barrier(self, op: int) -> None:
        """Wait for all ranks."""
        dist.barrier(self.groups[self._key(op)])

    def _bucket(self, op: int) -> int:
        return int(self.program.tags["bucket"][op])

    def _range(self, access: Access) -> torch.Tensor:
        return self.buffers[access.buffer][access.offset :][: access.bytes]

    def _ops(self, *kinds: str) -> list[int]:
        found: list[int] = self.program.is_kind(*kinds).nonzero()[0].tolist()
        return found

    def _accesses(self, op: int, *, write: bool) -> list[Access]:
        """What the op reads or writes on this rank."""
        return [access for access in self._accesses_of_all(op, write=write) if self._is_here(access.buffer)]

    def _accesses_of_all(self, op: int, *, write: bool) -> list[Access]:
        """What the op reads or writes on any rank."""
        every = [self.program.access_table[i] for i in self.program.accesses[op].tolist()]
        return [access for access in every if access.write == write]

    def _is_here(self, buffer: int) -> bool:
        return self.rank in self.program.places[self.program.buffers[buffer].place].ranks

    def _all_reduce(self, op: int, value: int, how: dist.ReduceOp) -> int:
        key = self._key(op)
        device = "cpu" if key[0] in HOST_LANES else self.backend.device
        number = torch.tensor([value], dtype=torch.int64, device=device)
        dist.all_reduce(number, how, group=self.groups[key])
        return int(number.item())

    def _key(self, op: int) -> GroupKey:
        lane = self.program.lanes[self.program.lanes_of[op][0]]
        return lane.name, tuple(self.parts.ranks[op])

    def _keys(self) -> set[GroupKey]:
        """The keys of all groups of all ranks."""
        return {self._key(op) for op in self._ops(*self.collective)}

    def _join_groups(self, *, host: bool) -> None:
        """Make the groups of all collectives on host lanes, or on the others.

        Every rank must do so, in the same order, also for groups without it: torch names groups by counting them.
        """
        for key in sorted(self._keys()):
            if host == (key[0] in HOST_LANES):
                library = "gloo" if host else self.backend.collectives
                self.groups[key] = dist.new_group(list(key[1]), self.store.timeout, library)
