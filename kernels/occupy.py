"""SMs and memory bandwidth held for a while, to see what a collective costs the compute beside it on one GPU.

NCCL launches one block of threads per channel (NCCL_NTHREADS in docs.nvidia.com/deeplearning/nccl, env.html), of 640
threads at most, and no block of a compute kernel shares an SM with it, because it takes nearly all of the registers
(github.com/NVIDIA/nccl issue 689, 2023-08 and 2024-05). Here k programs of 16 warps stand in for k channels: the GPU
places blocks on empty SMs first, so each holds one of its own if it starts on an idle GPU.

A program keeps others off its SM in the same way: of 65536 registers it takes about 62000 (sm_90) or 57000 (sm_80);
tests/kernels/test_compiles.py watches that. What differs: a channel also waits for its peers, its traffic crosses
NVLink or a NIC, and it may reduce.
"""

import torch
from torch import Tensor

from .dispatch import check_dense, launch, runs_triton
from .reload import bytes_of

BLOCK = 128 * 1024  # bytes that a program moves at once: 16 loads of 16 bytes a thread, which take the registers
LONGEST_IDLE = 1_000_000  # ns, the limit of PTX `nanosleep`


def occupy(source: Tensor, destination: Tensor, programs: int, rounds: int = 1, idle_ns: int = 0) -> None:
    """Copy `source` to `destination` `rounds` times with `programs` thread blocks, one per SM.

    source, destination  of the same size, a multiple of 16 bytes, at addresses that are; any dtype
    programs             blocks of 512 threads; not more than the device has SMs
    rounds               times that the copy is repeated by the same launch
    idle_ns              that a block sleeps after each 128 KiB, at most 1e6. PTX promises between 0 and twice as
                         much: measure the rate. Only on CUDA; elsewhere nothing sleeps.

    Reads and writes `rounds` times the size of `source`. Buffers that fit L2 together load it rather than memory.
    A new value of any argument compiles nothing, but for the first `idle_ns` above 0.
    """
    _check(source, destination, programs, rounds, idle_ns)
    read, write = bytes_of(source), bytes_of(destination)
    if not runs_triton(source):
        occupy_reference(read, write, rounds)
        return
    from . import compiled

    arguments = read.view(torch.int32), write.view(torch.int32), read.numel() // 16, rounds, idle_ns
    throttled = idle_ns > 0 and source.is_cuda
    launch(compiled.occupy, (programs,), *arguments, throttled=throttled, block=BLOCK // 4, num_warps=16)


def occupy_reference(source: Tensor, destination: Tensor, rounds: int) -> None:
    """The copies alone, by torch: they hold whatever torch holds."""
    for _ in range(rounds):
        destination.copy_(source)


def _check(source: Tensor, destination: Tensor, programs: int, rounds: int, idle_ns: int) -> None:
    check_dense(source=source, destination=destination)
    if source.nbytes != destination.nbytes:
        raise ValueError(f"destination: {destination.nbytes} bytes, source {source.nbytes}")
    for name, tensor in {"source": source, "destination": destination}.items():
        if tensor.nbytes % 16 or tensor.data_ptr() % 16:
            raise ValueError(f"{name}: {tensor.nbytes} bytes at {tensor.data_ptr():#x}, both must be multiples of 16")
    if programs < 1 or rounds < 0:
        raise ValueError(f"programs {programs} must be at least 1, rounds {rounds} at least 0")
    if not 0 <= idle_ns <= LONGEST_IDLE:
        raise ValueError(f"idle_ns: {idle_ns} is not within 0 .. {LONGEST_IDLE}")
