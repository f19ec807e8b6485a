"""Whole training steps on one GPU, timed, as truth for predictions: `data/measured/*/steps.jsonl` and `steps.csv`.

    python -m tests.measured.steps --out steps.jsonl [--tiny]
    python -m tests.measured.steps --rows steps.jsonl > steps.csv

Weights, gradients and Adam's moments in bf16 (fused AdamW), attention by scaled_dot_product_attention, loss in fp32,
the norm of all gradients clipped. A line per case: how it was set up, seconds of each step by the host's clock (the
device is idle before and after), the host's seconds to issue it, and the peak of allocated memory. Inputs are random,
clocks are not changed. `--rows` writes the columns of docs/own-runs.md. Needs torch only.
"""

import argparse
import csv
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .models import Model, Shape, rope

SHAPES = {
    "llama-1b": Shape(16, 2048, 8192, 32, 8, 64, 128256, True),
    "llama-8b-8l": Shape(8, 4096, 14336, 32, 8, 128, 128256, False),
    "llama-70b-3l": Shape(3, 8192, 28672, 64, 8, 128, 32000, False),
    "llama-13b-6l": Shape(6, 5120, 13824, 40, 40, 128, 32000, False),
    "wide-0.6b": Shape(28, 1024, 3072, 16, 8, 128, 151936, True),
    "gpt2-size": Shape(12, 768, 2048, 12, 12, 64, 50257, True),
}
TINY = Shape(2, 64, 128, 4, 2, 16, 256, True)


class Case(NamedTuple):
    model: str
    micro_batch: int
    seq_len: int
    micro_batches: int
    compiled: bool
    attention: str
    recompute: bool


CASES = [
    Case("llama-1b", 1, 4096, 1, False, "flash", False),
    Case("llama-8b-8l", 1, 8192, 1, False, "flash", False),
    Case("gpt2-size", 8, 1024, 1, False, "flash", False),
    Case("llama-70b-3l", 1, 4096, 1, False, "flash", False),
    Case("llama-1b", 4, 4096, 1, False, "flash", False),
    Case("llama-13b-6l", 2, 4096, 1, False, "flash", False),
    Case("llama-8b-8l", 1, 8192, 1, False, "cudnn", False),
    Case("llama-1b", 1, 4096, 4, False, "flash", False),
    Case("llama-8b-8l", 2, 4096, 1, False, "flash", True),
    Case("wide-0.6b", 4, 2048, 1, False, "flash", False),
    Case("llama-1b", 1, 8192, 1, False, "flash", False),
    Case("gpt2-size", 1, 1024, 1, False, "flash", False),
    Case("llama-70b-3l", 2, 4096, 1, False, "cudnn", False),
    Case("llama-1b", 4, 4096, 1, True, "flash", False),
    Case("llama-8b-8l", 1, 8192, 1, True, "cudnn", False),
    Case("llama-13b-6l", 2, 4096, 1, True, "flash", False),
    Case("llama-70b-3l", 1, 4096, 1, True, "flash", False),
    Case("gpt2-size", 8, 1024, 1, True, "flash", False),
    Case("llama-1b", 1, 32768, 1, False, "cudnn", True),
    Case("llama-8b-8l", 4, 4096, 2, False, "flash", True),
]
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
WARM_UPS, FEWEST, MOST, LASTS_S = 3, 5, 40, 3.0


def measure(case: Case, shape: Shape, device: str) -> dict[str, Any]:
    """The record of a case. What an earlier case left allocated is collected before, and noted."""
    gc.collect()
    left = torch.cuda.memory_allocated() if device == "cuda" else 0
    model, step = prepare(case, shape, device)
    for _ in range(WARM_UPS):
        timed(step, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    samples: list[tuple[float, float]] = []
    end = time.perf_counter() + LASTS_S
    while len(samples) < FEWEST or (time.perf_counter() < end and len(samples) < MOST):
        samples.append(timed(step, device))
    seconds, issued = ([round(one, 6) for one in column] for column in zip(*samples, strict=True))
    known = {**case._asdict(), **asdict(shape), "parameters": sum(p.numel() for p in model.parameters())}
    known |= {"samples_s": seconds, "step_s": statistics.median(seconds), "issued_s": statistics.median(issued)}
    if device == "cuda":
        known |= {"peak_allocated_bytes": torch.cuda.max_memory_allocated() - left, "left_allocated_bytes": left}
    return known


def prepare(case: Case, shape: Shape, device: str) -> tuple[Model, Callable[[], None]]:
    """A model of random weights, and a function that trains it for one step."""
    torch.manual_seed(0)
    model = Model(shape).to(device, torch.bfloat16)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.02) if weight.dim() > 1 else nn.init.ones_(weight)
    for layer in model.layers if case.compiled else ():
        layer.compile(fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    rotary = rope(case.seq_len, shape.head_dim, device)
    sizes = (case.micro_batches, 2, case.micro_batch, case.seq_len)
    batches = torch.randint(0, shape.vocab, sizes, device=device)
    backend = BACKENDS[case.attention] if device == "cuda" else SDPBackend.MATH

    def step() -> None:
        with sdpa_kernel(backend):
            for tokens, targets in batches:
                (model(tokens, targets, rotary, case.recompute) / case.micro_batches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return model, step


def timed(step: Callable[[], None], device: str) -> tuple[float, float]:
    """Seconds of a step to its end, and until the host has issued it."""
    start = time.perf_counter()
    step()
    issued = time.perf_counter() - start
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, issued


def row(record: dict[str, Any], gpu: str) -> dict[str, Any]:
    """A record in the columns of docs/own-runs.md."""
    flags = ["all in bf16", *(["cuDNN attention"] if record["attention"] == "cudnn" else [])]
    how = "compiled" if record["compiled"] else "eager"
    named = [record["model"], f"{record['micro_batch']}x{record['seq_len']}", how, record["attention"]]
    return {
        "id": "-".join([*named, *(["recompute"] if record["recompute"] else []), f"x{record['micro_batches']}"]),
        "source": "runcast_h100", "framework": f"PyTorch {how}", "model": record["model"], "arch": "dense",
        **{name: record[name] for name in ("layers", "hidden", "ffn_hidden", "heads", "kv_heads", "head_dim", "vocab")},
        "tied_emb": int(record["tied"]), "act_fn": "swiglu", "seq_len": record["seq_len"],
        "gpu": gpu, "gpu_mem_gb": 80, "gpus_per_node": 1, "n_gpus": 1, "tp": 1, "pp": 1, "dp": 1, "dp_mode": "ddp",
        "mbs": record["micro_batch"], "gbs": record["micro_batch"] * record["micro_batches"], "precision": "bf16",
        "recompute": "full" if record["recompute"] else "none", "extra_flags": "; ".join(flags),
        "iter_time_s": record["step_s"], "peak_mem_gib": round(record["peak_allocated_bytes"] / 2**30, 2),
        "mem_convention": "max_allocated of torch",
    }  # fmt: skip


def write_rows(file: Path, gpu: str) -> None:
    """The records of a file as CSV, to standard output."""
    records = [json.loads(line) for line in file.read_text().splitlines()]
    cases = [record for record in records if "model" in record]
    rows = [row(record, gpu) for record in cases]
    first = next((number for number, record in enumerate(cases) if record["compiled"]), len(cases))
    for record, cells in zip(cases[first + 1 :], rows[first + 1 :], strict=True):
        if "left_allocated_bytes" not in record:  # an earlier compiled model may have been there
            cells["peak_mem_gib"] = ""
    writer = csv.DictWriter(sys.stdout, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("steps.jsonl"))
    parser.add_argument("--rows", type=Path, help="records to write as rows")
    parser.add_argument("--gpu", default="H100-SXM-80GB", help="name of the GPU in rows")
    parser.add_argument("--tiny", action="store_true", help="one small model in all cases, to try the program")
    flags = parser.parse_args()
    if flags.rows:
        return write_rows(flags.rows, flags.gpu)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with flags.out.open("a") as out:
        known = {"gpu": torch.cuda.get_device_name() if device == "cuda" else "CPU", "cuda": torch.version.cuda}
        print(json.dumps({"group": "environment", "torch": torch.__version__, **known}), file=out, flush=True)
        for case in CASES:
            small = case._replace(micro_batch=2, seq_len=32) if flags.tiny else case
            record = measure(small, TINY if flags.tiny else SHAPES[case.model], device)
            print(json.dumps(record), file=out, flush=True)
            print(*small, record["step_s"], flush=True)
            torch._dynamo.reset()


if __name__ == "__main__":
    main()
