"""The compiled half of `quantize`. Division is rounded correctly (`div_rn`), so that CUDA gives what torch gives."""

import triton
import triton.language as tl


@triton.jit
def quantize_tiles(
    x: tl.tensor,
    values: tl.tensor,
    scales: tl.tensor,
    rows: tl.tensor,
    hidden: tl.tensor,
    tiles: tl.tensor,
    least: tl.tensor,
    tile: tl.constexpr,
    together: tl.constexpr,
) -> None:
    """Several tiles per program, neighbours in memory: each is reduced within a few threads."""
    number = tl.program_id(0).to(tl.int64) * together + tl.arange(0, together)
    row, first = number // tiles, number % tiles * tile
    column = first[:, None] + tl.arange(0, tile)[None, :]
    position = row[:, None] * hidden + column
    inside = (row < rows)[:, None] & (column < hidden)
    loaded = tl.load(x + position, mask=inside, other=0.0).to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(loaded), axis=1), least)
    scale = tl.div_rn(largest, tl.full([together], 448.0, tl.float32))
    divided = tl.div_rn(loaded, tl.broadcast_to(scale[:, None], [together, tile]))
    tl.store(values + position, to_e4m3(divided), mask=inside)
    tl.store(scales + number, scale, mask=row < rows)


@triton.jit
def quantize_by(x: tl.tensor, scale: tl.tensor, values: tl.tensor, count: tl.tensor, block: tl.constexpr) -> None:
    """One block of elements per program."""
    position = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = position < count
    loaded = tl.load(x + position, mask=inside, other=0.0).to(tl.float32)
    divided = tl.div_rn(loaded, tl.full([block], 1.0, tl.float32) * tl.load(scale))
    tl.store(values + position, to_e4m3(divided), mask=inside)


@triton.jit
def to_e4m3(x: tl.tensor) -> tl.tensor:
    """Saturated, to the nearest e4m3 (Triton's interpreter cuts instead of rounding)."""
    return tl.minimum(tl.maximum(x, -448.0), 448.0).to(tl.float8e4nv)
