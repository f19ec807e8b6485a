"""A row of the table of a collective: one size by one algorithm."""

from dataclasses import dataclass
from math import exp

from ...profile import PROVENANCE, Z90


@dataclass(frozen=True)
class Row:
    """One size by one algorithm; bandwidths as nccl-tests defines them, `busbw` where it has a factor for the op.

    A fitted curve does not say how much of it is latency: `latency_s` is None. `chosen`: what a backend takes. Of
    several draws of hashes `draws_low_s` and `draws_high_s` are the 5 and 95 % quantiles; None of one draw.
    """

    bytes: int
    algorithm: str
    level: str
    seconds: float
    low_s: float
    high_s: float
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    provenance: str
    pieces: int
    latency_s: float | None
    protocol: str = ""
    channels: int | None = None
    chosen: bool = False
    draws_low_s: float | None = None
    draws_high_s: float | None = None

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.seconds


def make_row(
    size: int,
    algorithm: str,
    level: str,
    seconds: float,
    basis: tuple[float, int],
    bus_factor: float,
    pieces: int = 1,
    latency_s: float | None = None,
) -> Row:
    """A row of a time whose `basis` is a relative standard deviation and a provenance."""
    spread, provenance = basis
    factor, rate = exp(Z90 * spread), size / seconds if seconds else 0.0
    return Row(
        bytes=size, algorithm=algorithm, level=level, seconds=seconds, low_s=seconds / factor,
        high_s=seconds * factor, algbw_bytes_per_s=rate, busbw_bytes_per_s=rate * bus_factor,
        provenance=PROVENANCE[provenance], pieces=pieces, latency_s=latency_s,
    )  # fmt: skip
