"""fp8 (e4m3) out of bf16 or fp32: with a scale per tile of 1 x 128, or with a given scale.

Tiles and scales as the DeepSeek-V3 report (arXiv 2412.19437, section 3.3.2) has them for activations: the largest
magnitude of a tile becomes 448, the largest finite e4m3. A tile counts as at least 1e-4, as in DeepGEMM's
`per_token_cast_to_fp8`. On CUDA, Triton needs compute capability 8.9 for e4m3.
"""

import torch
from torch import Tensor

from .dispatch import check_dense, launch, runs_triton

TILE = 128  # columns that share a scale
LARGEST = 448.0  # finite e4m3
LEAST = 1e-4  # magnitude of a tile, so that one of zeros has a scale to divide by


def quantize_tiles(x: Tensor) -> tuple[Tensor, Tensor]:
    """Every tile of 128 columns in a row divided by its scale, and the scales.

    x        [T, H] floating; the last tile of a row may be narrower
    returns  [T, H] float8_e4m3fn, and [T, ceil(H / 128)] fp32: amax / 448

    Reads T*H elements, writes T*H bytes and 4 T ceil(H / 128).
    """
    check_dense(x=x)
    if not runs_triton(x):
        return quantize_tiles_reference(x)
    from . import compiled

    (rows, hidden), tiles = x.shape, -(-x.shape[1] // TILE)
    values = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    scales = x.new_empty(rows, tiles, dtype=torch.float32)
    grid = (-(-rows * tiles // 16),)
    sizes = rows, hidden, tiles
    launch(compiled.quantize_tiles, grid, x, values, scales, *sizes, LEAST, tile=TILE, together=16, num_warps=4)
    return values, scales


def quantize_by(x: Tensor, scale: Tensor) -> Tensor:
    """x divided by a scale, saturated at 448.

    x        any shape, floating
    scale    one fp32 on the device of x
    returns  like x, float8_e4m3fn

    Reads the elements of x and writes a byte for each.
    """
    check_dense(x=x, scale=scale)
    if not runs_triton(x):
        return quantize_by_reference(x, scale)
    from . import compiled

    values = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    grid = (-(-x.numel() // 4096),)
    launch(compiled.quantize_by, grid, x, scale, values, x.numel(), block=4096, num_warps=8)
    return values


def quantize_tiles_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    """`quantize_tiles` in torch, in fp32."""
    hidden = x.shape[1]
    tiles = torch.nn.functional.pad(x.float(), (0, -hidden % TILE)).unflatten(1, (-(-hidden // TILE), TILE))
    scales = tiles.abs().amax(2).clamp(min=LEAST) / LARGEST
    values = (tiles / scales[..., None]).flatten(1)[:, :hidden]
    return values.to(torch.float8_e4m3fn).contiguous(), scales


def quantize_by_reference(x: Tensor, scale: Tensor) -> Tensor:
    """`quantize_by` in torch, in fp32."""
    return (x.float() / scale.view(())).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
