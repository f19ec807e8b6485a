"""Attention: causal (or full) softmax attention over whole sequences, one kernel call.

Rows of queries are worked in tiles of 128, many per SM, so time is the larger of all tiles over all SMs and of the
longest tile alone, as a p-norm. Some kernels pack the queries of one key/value head into a tile. Keys and values are
read again where they do not stay in cache, so they have a bandwidth share of their own; few heads schedule worse.
"""

import numpy as np

from ...base.arrays import Floats
from ...hardware import Limits
from .form import Coefficient, Coefficients, Columns, Form, form, p_norm
from .gemm import BYTES, peak

_TILE = 128
_WIDEST = -0.5
"""How far wide heads are faster than those of 128, in steps of a factor of two, of which one is measured (64 to 128).

FlashAttention-3's forward reaches a sixth more with heads of 256 than of 128 (arXiv 2407.08608, figure 5), and kernels
of 576 and 512 no more than of 128 (FlashMLA's README: up to 640 TFLOP/s on Hopper).
"""


def flop(x: Columns) -> Floats:
    """FLOP of the two GEMMs, forward: 2 b h d L^2 if causal, else twice that."""
    total: Floats = 2 * x["batch"] * x["heads"] * x["head_dim"] * x["seq"] ** 2 * (2 - x["causal"])
    return total


_COEFFICIENTS = (
    Coefficient("a_s", 1e-6, 6e-5, 1.1e-5, "call"),
    Coefficient("e", 0.05, 1.2, 0.65, "share of the peak on long sequences with heads of 128"),
    Coefficient("g64", 0.2, 1.5, 0.75, "what heads of 64 reach of that", of="head_dim"),
    Coefficient("tile_s", 1e-8, 2e-5, 2e-6, "start and end of a tile"),
    Coefficient("s64", 0.3, 3, 1.05, "what heads of 64 need of call and tile", of="head_dim"),
    Coefficient("pack", 0.01, 1.01, 0.3, "0.01: a tile has rows of one query head; 1.01: of all that share keys"),
    Coefficient("c", 0.02, 1.5, 0.7, "how much the longest tile alone counts"),
    Coefficient("p", 1, 8, 1.5, "how sharply the larger of both wins"),
    Coefficient("e_q", 0.05, 3, 0.6, "share of the memory bandwidth for queries and results"),
    Coefficient("e_kv", 0.05, 5, 0.5, "the same for keys and values"),
    Coefficient("few", 0.01, 20, 0.5, "how much longer a tile takes with one head", of="heads"),
    Coefficient("h0", 1, 64, 6, "heads at which half of that is left", of="heads"),
)


def attention_form(dtype: str) -> Form:
    """Calls, tiles, and what the memory needs, one after the other, in 16 bits or in 32."""
    wide = BYTES[dtype]

    @form("tiled attention", *_COEFFICIENTS)
    def seconds(x: Columns, limits: Limits, c: Coefficients) -> Floats:
        narrow = np.maximum(np.log2(128 / x["head_dim"]), _WIDEST)
        calls = c["s64"] ** narrow
        rows = 2 * x["batch"] * x["seq"] * x["head_dim"]  # of queries and results, or of keys and values
        moved = wide * rows * (x["heads"] / c["e_q"] + x["kv_heads"] / c["e_kv"])
        return (
            c["a_s"] * calls + _compute(x, limits, peak(limits, dtype), c, narrow) + moved / limits.memory_bytes_per_s
        )

    return seconds


def _compute(x: Columns, limits: Limits, fastest: float, c: Coefficients, narrow: Floats) -> Floats:
    """All tiles on all SMs, or the longest one alone: with causality a tile has half its columns on average."""
    columns = 4 * _TILE * x["head_dim"] * (x["seq"] + 1) * limits.sms
    longest = columns / (fastest * c["e"] * c["g64"] ** narrow)
    start = c["tile_s"] * c["s64"] ** narrow
    crowded = start * (1 + c["few"] / (1 + (x["heads"] / c["h0"]) ** 2))
    everywhere = _tiles(x, c["pack"]) / limits.sms * (longest * (2 - x["causal"]) / 2 + crowded)
    return p_norm(everywhere, c["c"] * (longest + start), c["p"])


def _tiles(x: Columns, pack: float) -> Floats:
    """Tiles of one head's rows, of the rows of all heads that share keys and values, or between the two."""
    shared = x["heads"] / x["kv_heads"]
    alone = x["batch"] * x["heads"] * np.ceil(x["seq"] / _TILE)
    packed = x["batch"] * x["kv_heads"] * np.ceil(x["seq"] * shared / _TILE)
    tiles: Floats = alone ** (1.01 - pack) * packed ** (pack - 0.01)
    return tiles
