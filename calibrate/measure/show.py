"""`python -m runcast.calibrate show FILE`: every case of a file in a line, with its median, spread and rate.

Rates are algbw and busbw of collectives, FLOP/s and bytes/s.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median, quantiles

from .records import Record, matches, read_records, record_key, record_order

WIDE, VERY_WIDE = 0.10, 0.25
"""Spreads from which a set is called wide and very wide, as torch.utils.benchmark has it."""


def spread(samples: Sequence[float]) -> float:
    """Interquartile range over median; 0 for a single sample."""
    if len(samples) < 2 or not median(samples):
        return 0.0
    low, middle, high = quantiles(samples, n=4, method="inclusive")
    return (high - low) / middle


def spread_word(samples: Sequence[float]) -> str:
    """`wide`, `very wide`, or nothing."""
    value = spread(samples)
    return "very wide" if value > VERY_WIDE else "wide" if value > WIDE else ""


_SHARES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "all_to_all_skewed": 1}
_WHOLE = ("broadcast", "reduce")
"""What crosses the busiest link of n ranks: so many times (n-1)/n of the bytes, or all of them."""


def bandwidths(name: str, gpus: int, size_bytes: float, seconds: float) -> tuple[float, float]:
    """algbw and busbw in bytes/s, as nccl-tests defines them (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md).

    With S the size as each collective counts it, t the time and B what a rank can send to the outside:

    algbw = S/t. It falls with more ranks even where the hardware is used alike; busbw corrects that so that it can be
    held against the rate of a link, whatever the algorithm (unless the network reduces):

    - all-reduce: every element needs n-1 additions and n assignments, of which one is in place: 2(n-1) transfers over
      n links, t = S/B 2(n-1)/n, so busbw = algbw 2(n-1)/n
    - reduce-scatter is the half that adds, all-gather the half that assigns: busbw = algbw (n-1)/n, with S the array of
      all ranks
    - all-to-all: a rank keeps 1/n of the S that it sends: busbw = algbw (n-1)/n
    - broadcast: all of S leaves the root, whose link is alone: busbw = algbw; so it does into the root of a reduce
    """
    algbw = size_bytes / seconds
    return algbw, algbw if name in _WHOLE else algbw * _SHARES[name] * (gpus - 1) / gpus


def rates(record: Record, seconds: float) -> str:
    """What a call of so many seconds reaches, in words: `25 GB/s`, `300 TFLOP/s`; empty where only time counts."""
    gpus = record.get("params", {}).get("gpus")
    if not seconds > 0:
        return ""
    if record["group"] == "collectives" and record["case"] in (*_SHARES, *_WHOLE) and type(gpus) is int and gpus > 0:
        algbw, busbw = bandwidths(record["case"], gpus, record.get("bytes") or 0.0, seconds)
        return f"algbw {_format_rate(algbw, 'B/s')}, busbw {_format_rate(busbw, 'B/s')}"
    if record.get("flop"):
        return _format_rate(record["flop"] / seconds, "FLOP/s")
    return _format_rate(record["bytes"] / seconds, "B/s") if record.get("bytes") else ""


def _format_rate(rate: float, unit: str) -> str:
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g} {prefix}{unit}"
    return f"{rate:.3g} {unit}"


def format_seconds(value: float) -> str:
    """A time in a suitable unit: `12.3 us`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def table(records: Iterable[Record], only: Sequence[str] = ()) -> list[str]:
    """Lines by case and size: median over all rounds, spread, number of samples, rate; a mark where to look twice."""
    cases: dict[str, list[Record]] = {}
    for record in records:
        if "round" in record and (not only or any(matches(record_key(record), pattern) for pattern in only)):
            cases.setdefault(record_key(record), []).append(record)
    head = f"{'median':>10} {'spread':>7} {'samples':>7} {'cache':5}  {'rate':34} case"
    ordered = sorted(cases.items(), key=lambda case: record_order(case[1][0]))
    return [head, *(_line(key, of) for key, of in ordered)] if cases else []


def _line(key: str, records: Sequence[Record]) -> str:
    good = [record for record in records if "samples" in record]
    if not good:
        why = f"FAILED: {records[0]['error']}" if "error" in records[0] else f"left out: {records[0]['left_out']}"
        return f"{'-':>10} {'':7} {'':7} {'':5}  {'':34} {key}  {why}"
    samples = [sample for record in good for sample in record["samples"]]
    middle_s = median(samples) * 1e-6
    wrong = sum(record.get("wrong") or 0 for record in good)
    numbers = f"{format_seconds(middle_s):>10} {spread(samples):7.1%} {len(samples):7} {good[0].get('cache', ''):5}"
    marks = [f"{spread_word(samples)} spread".upper()] if spread_word(samples) else []
    marks += [f"#WRONG {wrong}"] if wrong else []
    return "  ".join([f"{numbers}  {rates(good[0], middle_s):34} {key}", *marks])


def run(arguments: Sequence[str]) -> int:
    """Print the table; 2 for a mistake."""
    parser = argparse.ArgumentParser(prog="python -m runcast.calibrate show", description="Print what a run measured.")
    parser.add_argument("file", type=Path, metavar="SAMPLES.jsonl")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="gemm, collectives/all_*")
    flags = parser.parse_args(arguments)
    try:
        lines = table(read_records(flags.file), [p for pattern in flags.only for p in pattern.split(",")])
    except (OSError, ValueError) as error:
        print(f"error: {error}"[:600], file=sys.stderr)
        return 2
    if not lines:
        print(f"error: {flags.file}: holds no {'such ' if flags.only else ''}cases", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0
