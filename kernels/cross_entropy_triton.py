"""The compiled half of `cross_entropy`."""

import triton
import triton.language as tl


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
