"""The compiled half of `occupy`."""

import triton
import triton.language as tl


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
