"""The device: where buffers live, how bytes are copied, what waiting means, which collectives run on it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.distributed as dist

from ...simulator.base.errors import UserError
from .lanes import Marks


class Backend:
    """Host memory and Gloo: a copy has ended when the call returns. Other devices override what differs."""

    device = torch.device("cpu")
    collectives = "gloo"  # what torch.distributed calls the library

    def host(self, size_bytes: int) -> torch.Tensor:
        """Zeroed host memory from which the device copies fast."""
        return torch.zeros(size_bytes, dtype=torch.uint8)

    def memory(self, size_bytes: int) -> torch.Tensor:
        """Zeroed memory of the device, mapped now and not when it is first used, as a GPU's is."""
        return torch.empty(size_bytes, dtype=torch.uint8, device=self.device).zero_()

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Issue a copy on the calling thread's stream."""
        target.copy_(source)

    def finish(self) -> None:
        """Wait for everything that the calling thread has issued."""

    def synchronize(self) -> None:
        """Wait for everything that anyone has issued on the device."""

    def lane(self) -> AbstractContextManager[object]:
        """Inside it, what the calling thread issues goes to a stream of its own."""
        return nullcontext()

    def marks(self, offset_ns: int) -> Marks:
        """The time of lanes; `offset_ns` leads from this process's clock to that of all."""
        return Marks(offset_ns)

    def free(self) -> None:
        """Give unused memory back to the device."""


class CudaBackend(Backend):
    """One CUDA device per rank, a stream per lane, NCCL.

    Untested: written against the documented behaviour of torch.cuda, and no machine with GPUs has run it. Lanes wait
    for each other's events, and spans are the times of events; the host goes on.
    """

    collectives = "nccl"

    def __init__(self, local_rank: int):
        self.device = torch.device("cuda", local_rank)
        torch.cuda.set_device(self.device)

    def host(self, size_bytes: int) -> torch.Tensor:
        """Pinned memory."""
        return torch.zeros(size_bytes, dtype=torch.uint8, pin_memory=True)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Issue on the lane's stream."""
        target.copy_(source, non_blocking=True)

    def finish(self) -> None:
        """Wait for the lane's stream."""
        torch.cuda.current_stream(self.device).synchronize()

    def synchronize(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self.device)

    def lane(self) -> AbstractContextManager[object]:
        """A fresh stream; the device is a thread's own choice too, and the stream brings it."""
        return torch.cuda.stream(torch.cuda.Stream(self.device))

    def marks(self, offset_ns: int) -> Marks:
        """Events of this device."""
        return EventMarks(self.device, offset_ns)

    def free(self) -> None:
        """Empty the allocator's cache."""
        torch.cuda.empty_cache()


class EventMarks(Marks):
    """Marks of CUDA streams: events, whose times count from one that the host has seen."""

    def __init__(self, device: torch.device, offset_ns: int):
        super().__init__(offset_ns)
        self._device, self._first = device, torch.cuda.Event(enable_timing=True)
        self._first.record(torch.cuda.current_stream(device))
        self._first.synchronize()
        self._first_ns = super().mark()

    def mark(self) -> torch.cuda.Event:
        """An event behind what the calling lane has issued."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def wait(self, mark: torch.cuda.Event) -> None:
        """The calling lane's stream waits, not the host."""
        torch.cuda.current_stream(self._device).wait_event(mark)

    def reached_ns(self, mark: torch.cuda.Event) -> int:
        """Wait for the event, and read its time."""
        mark.synchronize()
        return int(self._first_ns + self._first.elapsed_time(mark) * 1e6)


def all_gather(mine: torch.Tensor, ranks: Sequence[int], group: dist.ProcessGroup) -> list[torch.Tensor]:
    """The tensors of all ranks of a group, each as large as this rank's.

    Two ranks of Gloo exchange messages, and are ready for the other's before they send: its own all-gather says so
    piece by piece, behind what is sent on the same connection, and takes half as long again if both begin together.
    """
    parts = [torch.empty_like(mine) for _ in ranks]
    if len(ranks) != 2 or dist.get_backend(group) != "gloo":
        dist.all_gather(parts, mine, group=group)
        return parts
    own = ranks.index(dist.get_rank())
    parts[own], peer = mine, ranks[1 - own]
    messages = [dist.P2POp(dist.irecv, parts[1 - own], peer, group), dist.P2POp(dist.isend, mine, peer, group)]
    for message in dist.batch_isend_irecv(messages):
        message.wait()
    return parts


def check_devices(ranks: int) -> None:
    """Raise a UserError unless every rank of this machine can have a CUDA device of its own."""
    if (found := torch.cuda.device_count()) < ranks:
        raise UserError(f"--device cuda: {ranks} ranks on this machine need a GPU each, but torch finds {found}")
