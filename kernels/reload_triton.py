"""The compiled half of `reload`."""

import triton
import triton.language as tl


@triton.jit
def scatter(bucket: tl.tensor, table: tl.tensor, chunk: tl.constexpr) -> None:
    """One chunk per program: a row of the table says from where, to where, how many bytes."""
    row = table + tl.program_id(0).to(tl.int64) * 3
    source = bucket.to(tl.int64) + tl.load(row)
    destination = tl.load(row + 1)
    size = tl.load(row + 2).to(tl.int32)
    unaligned = source | destination | size
    if unaligned % 16 == 0:  # said again in the compiler's words: addresses from a table tell it nothing
        read = tl.multiple_of(source.to(tl.pointer_type(tl.int32)), 16)
        write = tl.multiple_of(destination.to(tl.pointer_type(tl.int32)), 16)
        copy(read, write, tl.multiple_of(size // 4, 4), chunk // 4)
    elif unaligned % 4 == 0:
        copy(source.to(tl.pointer_type(tl.int32)), destination.to(tl.pointer_type(tl.int32)), size // 4, 2048)
    elif unaligned % 2 == 0:
        copy(source.to(tl.pointer_type(tl.int16)), destination.to(tl.pointer_type(tl.int16)), size // 2, 2048)
    else:
        copy(source.to(tl.pointer_type(tl.int8)), destination.to(tl.pointer_type(tl.int8)), size, 2048)


@triton.jit
def copy(source: tl.tensor, destination: tl.tensor, count: tl.tensor, block: tl.constexpr) -> None:
    """`count` elements from one address to another, a block at a time."""
    for start in range(0, count, block):
        position = start + tl.arange(0, block)
        inside = position < count
        tl.store(destination + position, tl.load(source + position, mask=inside), mask=inside)
