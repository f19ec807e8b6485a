"""The compiled half of `permute`."""

import triton
import triton.language as tl


@triton.jit
def permute(states: tl.tensor, tokens: tl.tensor, result: tl.tensor, hidden: tl.tensor, block: tl.constexpr) -> None:
    """One row per program."""
    row = tl.program_id(0).to(tl.int64)
    read = states + tl.load(tokens + row).to(tl.int64) * hidden
    write = result + row * hidden
    for start in range(0, hidden, block):
        column = start + tl.arange(0, block)
        inside = column < hidden
        tl.store(write + column, tl.load(read + column, mask=inside), mask=inside)


@triton.jit
def unpermute(
    rows: tl.tensor,
    places: tl.tensor,
    weights: tl.tensor,
    result: tl.tensor,
    hidden: tl.tensor,
    k: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """One block of columns of one token per program; the k loads are unrolled, so that all are under way at once."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    total = tl.zeros([block], dtype=tl.float32)
    for choice in tl.static_range(k):
        place = tl.load(places + token * k + choice).to(tl.int64)
        weight = tl.load(weights + token * k + choice).to(tl.float32)
        columns = tl.where(place >= 0, hidden, 0)
        row = tl.load(rows + place * hidden + column, mask=column < columns, other=0.0).to(tl.float32)
        total += tl.where(place >= 0, weight, 0.0) * row
    tl.store(result + token * hidden + column, total.to(result.dtype.element_ty), mask=column < hidden)
