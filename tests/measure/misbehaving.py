"""Cases for `--cases misbehaving`: some that fail, hang or crash, on one rank or all, and some that do not."""

import os
import time

import torch
import torch.distributed as dist
from runcast.calibrate.measure.case import Case
from runcast.calibrate.measure.timing import Measurement, cold, hot

FAMILY = "misbehaving"


def cases(facts):
    everyone = tuple(range(facts.ranks))
    for n in (64, 128, 256):
        yield Case(FAMILY, "good", {"n": n}, cold(product(n)), flop=2 * n**3, quick=True)
    if facts.ranks > 1:
        yield Case(FAMILY, "good_together", {}, hot(together), team=everyone, quick=True)
        yield Case(FAMILY, "fails_on_one", {}, hot(fails_on_one), team=everyone, quick=True)
    for name, prepare in (("fails", fails), ("hangs", hangs), ("crashes", crashes)):
        yield Case(FAMILY, name, {}, cold(prepare), quick=True)
    for number in range(40):
        yield Case("slow", "together", {"number": number}, slow, team=everyone, quick=True)


def product(n):
    def prepare(bench):
        x = bench.rand(n, n, dtype=torch.float32)
        return lambda: x @ x

    return prepare


def together(bench):
    x = torch.ones(256)
    return lambda: dist.all_reduce(x, dist.ReduceOp.MAX, group=bench.group)


def fails_on_one(bench):
    if bench.rank == 1:
        raise RuntimeError("rank 1 does not like this")
    return together(bench)


def fails(bench):
    raise RuntimeError("nobody likes this")


def hangs(bench):
    time.sleep(1000)


def crashes(bench):
    os.abort()


def slow(bench):
    time.sleep(0.2)
    bench.slowest(1.0)
    return Measurement((0.2,) * 5)
