"""Cases for `--cases steady`: small products, one of which is deliberately slow where SLOWED is set."""

import os

import torch
from runcast.calibrate.measure.case import Case
from runcast.calibrate.measure.timing import hot

TIMES = 8 if os.environ.get("SLOWED") else 1


def cases(facts):
    for n in range(64, 64 + 8 * 30, 8):
        yield Case("steady", "product", {"n": n}, hot(product(n, TIMES if n == 128 else 1)), cache="hot")


def product(n, times):
    def prepare(bench):
        x = bench.rand(n, n, dtype=torch.float32)
        return lambda: [x @ x for _ in range(times)]

    return prepare
