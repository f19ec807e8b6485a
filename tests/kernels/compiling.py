"""Compiles every kernel for a device that need not be there. Run as a script without TRITON_INTERPRET.

Prints JSON: {kernel: {"registers": per thread, "spilled": bytes of stack, "wide": number of 16-byte loads and stores}}.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from runcast.kernels import compiled
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

BF16, FP8, FP32, I8, I32, I64 = "*bf16", "*fp8e4nv", "*fp32", "*u8", "*i32", "*i64"
# kernel: types of the arguments ("16" after an integer that is a multiple of it), constants, warps
KERNELS: dict[str, tuple[list[str], dict[str, Any], int]] = {
    "scatter": ([I8, I64], {"chunk": 32 * 1024}, 8),
    "permute": ([BF16, I32, BF16, "i32 16"], {"block": 4096}, 4),
    "unpermute": ([BF16, I32, FP32, BF16, "i32 16"], {"k": 8, "block": 1024}, 4),
    "occupy": ([I32, I32, "i32", "i32", "i32"], {"throttled": True, "block": 32768}, 16),
    "quantize_tiles": (
        [BF16, FP8, FP32, "i32", "i32 16", "i32", "fp32"],
        {"tile": 128, "together": 16},
        4,
    ),
    "quantize_by": ([BF16, FP32, FP8, "i32 16"], {"block": 4096}, 8),
    "swiglu": ([BF16, BF16, "i32 16"], {"block": 1024}, 4),
    "swiglu_backward": ([BF16, BF16, BF16, "i32 16"], {"block": 1024}, 4),
    "add_rmsnorm": ([BF16] * 5 + ["i32 16", "fp32"], {"block": 32768}, 16),
    "cross_entropy": ([BF16, I64, FP32, BF16, "i32 16", "fp32"], {"block": 8192}, 16),
}


def main() -> None:
    """Arguments: compute capability times ten, then kernels to leave out."""
    capability, left_out = int(sys.argv[1]), sys.argv[2:]
    names = [name for name in KERNELS if name not in left_out]
    print(json.dumps({name: facts(compile_for(name, capability)) for name in names}))


def compile_for(name: str, capability: int) -> dict[str, Any]:
    kernel = getattr(compiled, name)
    types, constants, warps = KERNELS[name]
    signature = dict(zip(kernel.arg_names, [each.split()[0] for each in types] + ["constexpr"] * 9, strict=False))
    attributes = {
        (i,): [["tt.divisibility", 16]] for i, each in enumerate(types) if each.startswith("*") or each.endswith(" 16")
    }
    source = ASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps}).asm


def facts(asm: dict[str, Any]) -> dict[str, int]:
    tool = next(Path(triton.__file__).parent.glob("backends/nvidia/bin/cuobjdump"))
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(asm["cubin"])
        said = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return {
        "registers": int(re.search(r"REG:(\d+)", said)[1]),
        "spilled": int(re.search(r"LOCAL:(\d+)", said)[1]) + int(re.search(r"STACK:(\d+)", said)[1]),
        "wide": len(re.findall(r"(?:ld|st)\.global\S*\.v4\.b32|(?:ld|st)\.global\S*\.v2\.b64", asm["ptx"])),
    }


if __name__ == "__main__":
    main()
