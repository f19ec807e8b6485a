"""`python -m runcast.calibrate run`: flags, and one supervisor for this rank. Exit codes as `runcast` has them."""

import argparse
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from .cases import all_cases
from .environment import machine_facts
from .job import Job, Place
from .leader import Leader
from .meeting import Board
from .messages import GO_ON, duration, say, skip_lines
from .plan import Options, plan
from .records import case_order
from .supervisor import Supervisor

_QUICK_MIN = 2.75  # of the three minutes that --quick may take, the rest is for starting
_ABOUT = """\
Measure this machine: collectives, copies, kernels, launches, interference. One process per GPU, started by torchrun
or srun; alone it measures one GPU. Starting it again with the same --out goes on where it was stopped."""


def run(arguments: Sequence[str]) -> int:
    """Measure; returns the exit code."""
    flags = _parser().parse_args(arguments)
    rank: int | None = None
    try:
        place, kind = Place.from_environment(), _kind(flags.device)
        rank = place.rank
        job = Job(place, kind, _options(flags), tuple(flags.cases))
        if flags.list:
            return _list(job) if rank == 0 else 0
        if flags.out.suffix != ".jsonl":
            raise ValueError(f"--out = {str(flags.out)!r}: expected a name that ends in .jsonl")
        if flags.out.is_dir():
            raise ValueError(f"--out = {str(flags.out)!r}: is a folder")
    except ValueError as error:
        if not rank:  # all ranks have the same command line, but the environment may differ from rank to rank
            say(f"error: {error}")
        return 2
    return _supervise(job, flags)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runcast.calibrate run", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", "-o", type=Path, default=Path("samples.jsonl"), help="file of records (default: samples.jsonl)")
    add("--only", action="append", default=[], metavar="PATTERN", help="gemm, collectives/all_*: may be repeated")
    add("--quick", action="store_true", help="fewer sizes and smaller budgets: under three minutes")
    add("--device", choices=("cuda", "cpu"), help="default: cuda where there is a GPU")
    add("--budget-ms", type=float, help="of timed work per visit of a case (default: 40, quick: 10)")
    add("--rounds", type=int, default=2, help="visits of each case, each round in an order of its own (default: 2)")
    add("--limit-min", type=float, help="start no case after so many minutes (default: 0 for never, quick: 2.75)")
    add("--timeout-s", type=float, help="of a case before it counts as hanging (default: 120, quick: 20)")
    add("--silence-s", type=float, default=20.0, help="of a rank before it counts as lost (default: 20)")
    add("--seed", type=int, default=0, help="of order and inputs")
    add("--retry", action="store_true", help="measure again what has failed in --out")
    add("--cases", action="append", default=[], metavar="MODULE", help="also the cases of this module of yours")
    add("--list", action="store_true", help="print the cases for one rank here, and measure nothing")
    return parser


def _options(flags: argparse.Namespace) -> Options:
    def either(value: float | None, usual: float, quick: float) -> float:
        return value if value is not None else quick if flags.quick else usual

    budget_ms, timeout_s = either(flags.budget_ms, 40.0, 10.0), either(flags.timeout_s, 120.0, 20.0)
    for name, value in (("budget-ms", budget_ms), ("timeout-s", timeout_s), ("silence-s", flags.silence_s)):
        if not 0.1 <= value <= 1e6:
            raise ValueError(f"--{name} = {value:g}: expected 0.1 to 1e6")
    if not 1 <= flags.rounds <= 100:
        raise ValueError(f"--rounds = {flags.rounds}: expected 1 to 100")
    limit_min = either(flags.limit_min, 0.0, _QUICK_MIN)
    if not 0.0 <= limit_min <= 1e5:
        raise ValueError(f"--limit-min = {limit_min:g}: expected 0 (no limit) to 1e5")
    only = tuple(part for pattern in flags.only for part in pattern.split(",") if part)
    return Options(only, flags.quick, budget_ms / 1e3, flags.rounds, flags.seed, timeout_s, 60 * limit_min)


def _kind(flag: str | None) -> str:
    gpus = torch.cuda.device_count()
    if flag == "cuda" and not gpus:
        raise ValueError("--device = 'cuda': torch finds no GPU here")
    return flag or ("cuda" if gpus else "cpu")


def _list(job: Job) -> int:
    facts = machine_facts(job.kind, ((0,),), 1)
    the_plan = plan(facts, replace(job.options, rounds=1), all_cases(facts, job.modules))
    cases = [visit.case for visit in the_plan.visits]
    for case in sorted(cases, key=lambda case: case_order(case.family, case.name, case.params)):
        print(case.key)
    machine = f"one GPU with {facts.sms} SMs" if facts.cuda else "one CPU rank"
    say(f"{len(the_plan.visits)} cases, about {duration(the_plan.expected_s)} a round, on {machine}")
    for line in skip_lines(the_plan):
        say(line)
    return 0


def _supervise(job: Job, flags: argparse.Namespace) -> int:
    """Until the run is over; returns the exit code."""
    stop_at = time.time() + job.options.limit_s if job.options.limit_s else 0.0
    try:
        board = Board(job.place, holds=job.place.rank == 0 and not job.place.served)
    except ConnectionError as error:
        at = f"{job.place.host}:{job.place.port}"
        say(f"error: rank {job.place.rank}: no store at MASTER_ADDR:MASTER_PORT = {at}: {error}")
        return 1
    try:
        job = replace(job, place=replace(job.place, port=board.port), stop_at=stop_at)
        leader = Leader(job, flags.out, flags.retry) if job.place.rank == 0 else None
        with closing(leader) if leader else nullcontext():
            return Supervisor(job, board, leader, flags.silence_s).run()
    except ConnectionError as error:
        say(f"error: rank {job.place.rank}: the store of rank 0 or of the launcher is gone: {error}; {GO_ON}")
        return 1
