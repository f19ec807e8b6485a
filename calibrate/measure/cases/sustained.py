"""Seconds of large GEMMs without a pause: the rate after clocks and power have settled, with telemetry beside it."""

import time
from collections.abc import Iterator

from ..case import Case, Facts
from ..telemetry import Telemetry, sample
from ..timing import Bench, Measurement, warm_up
from .gemm import linear

_SAMPLE_S = 0.05  # a sample is as many GEMMs as last this long


def cases(facts: Facts) -> Iterator[Case]:
    """Ten seconds on a GPU, three on a CPU."""
    m, lasts_s = (8192, 10.0) if facts.cuda else (1024, 3.0)
    yield Case(
        "sustained",
        "gemm",
        {"m": m, "n": m, "k": m, "dtype": "bf16", "lasts_s": lasts_s},
        lambda bench: _gemms(bench, m, lasts_s),
        flop=2.0 * m**3,
        bytes=6.0 * m * m,
        footprint_bytes=12.0 * m * m,
        cache="hot",
        lasts_s=lasts_s,
    )


def _gemms(bench: Bench, m: int, lasts_s: float) -> Measurement:
    """Samples are seconds of one GEMM, each over some in a row.

    `more`: `ended_s`, when each sample ended, and `telemetry`, what the GPU told meanwhile with `at_s`; from one start.
    """
    act = linear(bench, "forward", m, m, m)
    one_s, _ = warm_up(bench, act)
    inner = max(round(_SAMPLE_S / one_s), 1)
    samples: list[float] = []
    ended: list[float] = []
    with sample(Telemetry.find_device(bench.device.torch_device)) as readings:
        start = time.monotonic()
        while not ended or ended[-1] < lasts_s:
            samples += bench.device.times(act, 1, inner, False, 0.0)  # nothing held: launches are far ahead
            ended.append(time.monotonic() - start)
    telemetry = [{**reading, "at_s": reading["at_s"] - start} for reading in readings]
    more = {"acts_per_sample": inner, "ended_s": ended, "telemetry": telemetry}
    return Measurement(tuple(samples), more=more)
