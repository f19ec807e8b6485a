"""The compiled halves of the kernels, imported when one runs on a GPU or in Triton's interpreter.

Division in fp8 kernels is rounded correctly (`div_rn`), so that CUDA gives what torch gives.
"""

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
        copy_elements(read, write, tl.multiple_of(size // 4, 4), chunk // 4)
    elif unaligned % 4 == 0:
        copy_elements(source.to(tl.pointer_type(tl.int32)), destination.to(tl.pointer_type(tl.int32)), size // 4, 2048)
    elif unaligned % 2 == 0:
        copy_elements(source.to(tl.pointer_type(tl.int16)), destination.to(tl.pointer_type(tl.int16)), size // 2, 2048)
    else:
        copy_elements(source.to(tl.pointer_type(tl.int8)), destination.to(tl.pointer_type(tl.int8)), size, 2048)


@triton.jit
def copy_elements(source: tl.tensor, destination: tl.tensor, count: tl.tensor, block: tl.constexpr) -> None:
    """`count` elements from one address to another, a block at a time."""
    for start in range(0, count, block):
        position = start + tl.arange(0, block)
        inside = position < count
        tl.store(destination + position, tl.load(source + position, mask=inside), mask=inside)


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


@triton.jit(do_not_specialize=["vectors", "rounds", "idle_ns"])
def occupy(
    source: tl.tensor,
    destination: tl.tensor,
    vectors: tl.tensor,
    rounds: tl.tensor,
    idle_ns: tl.tensor,
    throttled: tl.constexpr,
    block: tl.constexpr,
) -> None:
    """Every program copies each n-th block, again and again; `vectors` of 16 bytes, so that the mask is per vector."""
    words = vectors.to(tl.int64) * 4
    blocks = tl.cdiv(words, block).to(tl.int32)
    for _ in range(rounds):
        for number in range(tl.program_id(0), blocks, tl.num_programs(0)):
            position = tl.cast(number, tl.int64) * block + tl.arange(0, block)
            inside = position < words
            tl.store(destination + position, tl.load(source + position, mask=inside), mask=inside)
            if throttled:
                tl.inline_asm_elementwise(
                    "nanosleep.u32 $1; mov.u32 $0, $1;", "=r,r", [idle_ns], dtype=tl.int32, is_pure=False, pack=1
                )


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


@triton.jit
def swiglu(x: tl.tensor, result: tl.tensor, hidden: tl.tensor, block: tl.constexpr) -> None:
    """One block of columns of one row per program."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    gate = tl.load(x + row * 2 * hidden + column, mask=inside).to(tl.float32)
    up = tl.load(x + row * 2 * hidden + hidden + column, mask=inside).to(tl.float32)
    value = gate * tl.sigmoid(gate) * up
    tl.store(result + row * hidden + column, value.to(result.dtype.element_ty), mask=inside)


@triton.jit
def swiglu_backward(
    x: tl.tensor, gradient: tl.tensor, result: tl.tensor, hidden: tl.tensor, block: tl.constexpr
) -> None:
    """One block of columns of one row per program: gate and up are read once for both halves of the result."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    gate = tl.load(x + row * 2 * hidden + column, mask=inside).to(tl.float32)
    up = tl.load(x + row * 2 * hidden + hidden + column, mask=inside).to(tl.float32)
    upstream = tl.load(gradient + row * hidden + column, mask=inside).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    to_gate = upstream * up * sigmoid * (1 + gate * (1 - sigmoid))
    to_up = upstream * gate * sigmoid
    write = result + row * 2 * hidden + column
    tl.store(write, to_gate.to(result.dtype.element_ty), mask=inside)
    tl.store(write + hidden, to_up.to(result.dtype.element_ty), mask=inside)


@triton.jit
def add_rmsnorm(
    x: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    summed: tl.tensor,
    normed: tl.tensor,
    hidden: tl.tensor,
    epsilon: tl.tensor,
    block: tl.constexpr,
) -> None:
    """One row per program, held in registers between its two uses."""
    row = tl.program_id(0).to(tl.int64) * hidden
    column = tl.arange(0, block)
    inside = column < hidden
    left = tl.load(x + row + column, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(residual + row + column, mask=inside, other=0.0).to(tl.float32)
    stored = (left + right).to(summed.dtype.element_ty)
    tl.store(summed + row + column, stored, mask=inside)
    wide = stored.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / hidden + epsilon)
    weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row + column, (wide * scale * weights).to(normed.dtype.element_ty), mask=inside)


@triton.jit
def cross_entropy(
    logits: tl.tensor,
    labels: tl.tensor,
    losses: tl.tensor,
    gradient: tl.tensor,
    vocabulary: tl.tensor,
    scale: tl.tensor,
    block: tl.constexpr,
) -> None:
    """One row per program. All of a block is read before it is written, so `gradient` may be `logits`."""
    row = tl.program_id(0).to(tl.int64)
    read, write = logits + row * vocabulary, gradient + row * vocabulary
    label = tl.load(labels + row)
    chosen = tl.load(read + label).to(tl.float32)

    largest = -3.4e38  # finite: a block of -inf alone must not give inf - inf
    total = 0.0  # of exp(logit - largest)
    for start in range(0, vocabulary, block):
        column = start + tl.arange(0, block)
        x = tl.load(read + column, mask=column < vocabulary, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, tl.max(x, axis=0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(x - larger), axis=0)
        largest = larger
    tl.store(losses + row, largest + tl.log(total) - chosen)

    for start in range(0, vocabulary, block):
        column = start + tl.arange(0, block)
        inside = column < vocabulary
        x = tl.load(read + column, mask=inside, other=-float("inf")).to(tl.float32)
        softmax = tl.exp(x - largest) / total
        value = (softmax - tl.where(column == label, 1.0, 0.0)) * scale
        tl.store(write + column, value.to(gradient.dtype.element_ty), mask=inside)
