"""The error of the peak memory of a training step, and the probability that a step fits its devices.

The file beside the ledger holds the widths; `runcast calibrate memory` writes it. docs/uncertainty.md explains them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from math import exp, hypot, log
from statistics import NormalDist
from typing import Any

from ..base.files import read_json
from ..profile import Z90


@dataclass(frozen=True)
class MemoryErrors:
    """Standard deviations of ln(measured / predicted bytes).

    `activations` times the share of activations in the prediction is the error of what a configuration keeps;
    `allocator` is what an allocator takes beyond what it gives out; `source` is common to all runs of a source.
    `deviations[id]` are those of a row of the ledger: `shipped`, and with the row's `source` left out.
    """

    activations: float = 0.0
    allocator: float = 0.0
    source: float = 0.0
    about: Mapping[str, Any] = field(default_factory=dict)
    deviations: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def deviation(self, share: float, reserved: bool = True) -> float:
        """The deviation of a peak of which `share` is activations; not `reserved`: of what is allocated alone."""
        return hypot(self.activations * share, self.allocator * reserved, self.source)


@cache
def shipped_memory_errors() -> MemoryErrors:
    """The widths that ship with runcast; zeros if there is no file."""
    file = files("runcast.data") / "validation" / "memory_errors.json"
    if not file.is_file():
        return MemoryErrors()
    found = read_json(file)
    widths = {name: float(width["value"]) for name, width in found["widths"].items()}
    return MemoryErrors(**widths, about=found["about"], deviations=found["deviations"])


def memory_interval(peak_bytes: float, deviation: float) -> tuple[float, float]:
    """The 90 % interval of a peak in bytes. It is a factor, so that no bound is negative."""
    reach = exp(Z90 * deviation)
    return peak_bytes / reach, peak_bytes * reach


def fit_probability(peak_bytes: float, limit_bytes: float, deviation: float) -> float:
    """The probability that a peak with this deviation is at most `limit_bytes`."""
    if not deviation or peak_bytes <= 0:
        return float(peak_bytes <= limit_bytes)
    return NormalDist().cdf(log(limit_bytes / peak_bytes) / deviation)
