"""The compiled half of `swiglu`."""

import triton
import triton.language as tl


@triton.jit
def forward(x: tl.tensor, result: tl.tensor, hidden: tl.tensor, block: tl.constexpr) -> None:
    """One block of columns of one row per program."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    gate = tl.load(x + row * 2 * hidden + column, mask=inside).to(tl.float32)
    up = tl.load(x + row * 2 * hidden + hidden + column, mask=inside).to(tl.float32)
    value = gate * tl.sigmoid(gate) * up
    tl.store(result + row * hidden + column, value.to(result.dtype.element_ty), mask=inside)


@triton.jit
def backward(x: tl.tensor, gradient: tl.tensor, result: tl.tensor, hidden: tl.tensor, block: tl.constexpr) -> None:
    """One block of columns of one row per program: gate and up are read once for both halves of the result."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < hidden
    gate = tl.load(x + row * 2 * hidden + column, mask=inside).to(tl.float32)
    up = tl.load(x + row * 2 * hidden + hidden + column, mask=inside).to(tl.float32)
    given = tl.load(gradient + row * hidden + column, mask=inside).to(tl.float32)
    sigmoid = tl.sigmoid(gate)
    to_gate = given * up * sigmoid * (1 + gate * (1 - sigmoid))
    to_up = given * gate * sigmoid
    write = result + row * 2 * hidden + column
    tl.store(write, to_gate.to(result.dtype.element_ty), mask=inside)
    tl.store(write + hidden, to_up.to(result.dtype.element_ty), mask=inside)
