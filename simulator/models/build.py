"""Builders of kernels on one rank: a GEMM, whose shape follows from its parameters, and a memory-bound kernel."""

from dataclasses import replace

from .kernels import Kept, Kernel, Kernels
from .parameters import Parameters, matrix
from .shard import Shard


def gemm(
    shard: Shard,
    table: Parameters,
    name: str,
    part: str,
    tokens: int,
    role: str = "",
    *,
    keeps: float = 0,
    kept_width: int = 0,
    dtype: str = "",
) -> Kernels:
    """The GEMM of this name on so many tokens, with its adapter's two where it has one; none without parameters.

    `role` is what adapters are asked for by. For the backward it keeps `keeps` bytes of each output, or of `kept_width`
    values per token. On a grid it is as many equal steps as the grid is wide, which all add to one result.
    """
    n, k = matrix(table, name, shard.tp)
    if not n:
        return ()
    kept = (Kept(part, round(tokens * (kept_width or n) * keeps)),) if keeps else ()
    shape = (tokens, n, k)
    base = Kernel("gemm", name, part, shape, dtype or shard.linear, keeps=kept, trained=not shard.lora_rank)
    if not shard.lora_rank or role not in shard.adapted:
        return (*[replace(base, keeps=())] * (shard.side - 1), base)
    rank, wide = shard.lora_rank, shard.plain
    down_kept = (Kept("lora", tokens * rank * shard.wide),)
    down = Kernel("gemm", f"{name}_lora_a", "lora", (tokens, rank, k), wide, keeps=down_kept)
    return (base, down, Kernel("gemm", f"{name}_lora_b", "lora", (tokens, n, rank), wide))


def memory_bound(
    kind: str, name: str, part: str, width: int, elements: float, per_element: float, shard: Shard, keeps: float = 0
) -> Kernel:
    """A kernel that moves `per_element` values of the activations' type for each element, and keeps `keeps` bytes."""
    kept = (Kept(part, round(keeps)),) if keeps else ()
    return Kernel(kind, name, part, (width,), shard.dtype, round(elements * per_element * shard.wide), kept)
