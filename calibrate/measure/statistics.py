"""What repeated times say: median, spread and whether it is wide; and rates: algbw and busbw, FLOP/s and bytes/s."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

WIDE, VERY_WIDE = 0.10, 0.25
"""Spreads from which a set is called wide and very wide, as torch.utils.benchmark has it."""


def median(samples: Sequence[float]) -> float:
    """Half of the samples are smaller."""
    return statistics.median(samples)


def quantile(samples: Sequence[float], share: float) -> float:
    """The value below which this share of the samples lies, linear between samples."""
    ordered = sorted(samples)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def spread(samples: Sequence[float]) -> float:
    """Interquartile range over median; 0 for a single sample."""
    middle = median(samples)
    return (quantile(samples, 0.75) - quantile(samples, 0.25)) / middle if middle else 0.0


def wide(samples: Sequence[float]) -> str:
    """`wide`, `very wide`, or nothing."""
    found = spread(samples)
    return "very wide" if found > VERY_WIDE else "wide" if found > WIDE else ""


Record = Mapping[str, Any]


def _all_but_own(gpus: int) -> float:
    return (gpus - 1) / gpus


BUS_FACTOR: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda gpus: 2 * _all_but_own(gpus),
    "all_gather": _all_but_own,
    "reduce_scatter": _all_but_own,
    "all_to_all": _all_but_own,
    "all_to_all_skewed": _all_but_own,
    "broadcast": lambda _gpus: 1.0,
    "reduce": lambda _gpus: 1.0,
}
"""Bytes through the busiest link over bytes, by collective."""


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
    return algbw, algbw * BUS_FACTOR[name](gpus)


def rates(record: Record, seconds: float) -> str:
    """What a call of so many seconds reaches, in words: `25 GB/s`, `300 TFLOP/s`; empty where only time counts."""
    if record["group"] == "collectives" and record["case"] in BUS_FACTOR:
        algbw, busbw = bandwidths(record["case"], record["params"]["gpus"], record["bytes"], seconds)
        return f"algbw {_si(algbw, 'B/s')}, busbw {_si(busbw, 'B/s')}"
    if record.get("flop"):
        return _si(record["flop"] / seconds, "FLOP/s")
    return _si(record["bytes"] / seconds, "B/s") if record.get("bytes") else ""


def _si(rate: float, unit: str) -> str:
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g} {prefix}{unit}"
    return f"{rate:.3g} {unit}"
