"""`python -m runcast.calibrate show FILE`: every case of a file in a line, with its median, spread and rate."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .records import key_of, matches, read_records
from .statistics import median, rates, spread, wide


def table(records: Iterable[dict[str, Any]], only: Sequence[str] = ()) -> list[str]:
    """Lines, sorted by case: median over all rounds, spread, number of samples, rate; a mark where to look twice."""
    cases: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if "round" in record and (not only or any(matches(key_of(record), pattern) for pattern in only)):
            cases.setdefault(key_of(record), []).append(record)
    head = f"{'median':>10} {'spread':>7} {'samples':>7} {'cache':5}  {'rate':34} case"
    return [head, *(_line(key, of) for key, of in sorted(cases.items()))] if cases else []


def seconds(value: float) -> str:
    """In the unit that suits: `12.3 us`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def _line(key: str, records: Sequence[dict[str, Any]]) -> str:
    good = [record for record in records if "error" not in record]
    if not good:
        return f"{'-':>10} {'':7} {'':7} {'':5}  {'':34} {key}  FAILED: {records[0]['error']}"
    samples = [sample for record in good for sample in record["samples"]]
    middle_s = median(samples) * 1e-6
    wrong = sum(record["wrong"] or 0 for record in good)
    marks = [f"{wide(samples)} spread".upper()] if wide(samples) else []
    marks += [f"#WRONG {wrong}"] if wrong else []
    numbers = f"{seconds(middle_s):>10} {spread(samples):7.1%} {len(samples):7} {good[0].get('cache', ''):5}"
    told = f"{numbers}  {rates(good[0], middle_s):34} {key}"
    return "  ".join([told, *marks])


def run(arguments: Sequence[str]) -> int:
    """Print the table; 2 for a mistake."""
    parser = argparse.ArgumentParser(prog="python -m runcast.calibrate show", description="Print what a run measured.")
    parser.add_argument("file", type=Path, metavar="SAMPLES.jsonl")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="gemm, collectives/all_*")
    flags = parser.parse_args(arguments)
    try:
        lines = table(read_records(flags.file), [p for pattern in flags.only for p in pattern.split(",")])
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if not lines:
        print(f"error: {flags.file}: holds no {'such ' if flags.only else ''}cases", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0
