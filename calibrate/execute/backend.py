"""The device seam: where buffers live, how bytes are copied, what waiting means, which collectives run on them."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from ...simulator.base.errors import UserError


class Backend(Protocol):
    """What differs between kinds of devices."""

    device: torch.device
    collectives: str  # what torch.distributed calls the library

    def host(self, size_bytes: int) -> torch.Tensor:
        """Zeroed host memory from which the device copies fast."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Issue a copy on the calling thread's stream."""

    def finish(self) -> None:
        """Wait for everything that the calling thread has issued."""

    def synchronize(self) -> None:
        """Wait for everything that anyone has issued on the device."""

    def lane(self) -> AbstractContextManager[object]:
        """Inside it, what the calling thread issues goes to a stream of its own."""

    def free(self) -> None:
        """Give unused memory back to the device."""


class CpuBackend:
    """Host memory and Gloo: a copy has ended when the call returns."""

    device = torch.device("cpu")
    collectives = "gloo"

    def host(self, size_bytes: int) -> torch.Tensor:
        """Plain memory."""
        return torch.zeros(size_bytes, dtype=torch.uint8)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """Copy at once."""
        target.copy_(source)

    def finish(self) -> None:
        """Nothing is ever pending."""

    def synchronize(self) -> None:
        """Nothing is ever pending."""

    def lane(self) -> AbstractContextManager[object]:
        """There are no streams."""
        return nullcontext()

    def free(self) -> None:
        """Freed memory is back already."""


class CudaBackend:
    """One CUDA device per rank, a stream per lane, NCCL.

    Untested: written against the documented behaviour of torch.cuda, and no machine with GPUs has run it. The
    thread of a lane waits for its stream after every op, so spans are real, at the price of a host wait per op.
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

    def free(self) -> None:
        """Empty the allocator's cache."""
        torch.cuda.empty_cache()


def pick_backend(device: str, local_rank: int) -> Backend:
    """The backend called `cpu` or `cuda`."""
    return CudaBackend(local_rank) if device == "cuda" else CpuBackend()


def check_devices(ranks: int) -> None:
    """Raise a UserError unless every rank of this machine can have a CUDA device of its own."""
    if (found := torch.cuda.device_count()) < ranks:
        raise UserError(f"--device cuda: {ranks} ranks on this machine need a GPU each, but torch finds {found}")
