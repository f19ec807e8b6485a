"""Seconds of large products without a pause: the rate after clocks and power have settled, with telemetry beside it."""

import time
from collections.abc import Iterator

from torch.nn import functional

from ..case import Case, Facts, Measurement
from ..telemetry import Sampler, Telemetry
from ..timing import Bench, bench_later, warm_up

_SAMPLE_S = 0.05  # a sample is as many products as last this long


def cases(facts: Facts) -> Iterator[Case]:
    """Ten seconds on a GPU, three on a CPU."""
    m, lasts_s = (8192, 10.0) if facts.cuda else (1024, 3.0)
    yield Case(
        "sustained",
        "gemm",
        {"m": m, "n": m, "k": m, "dtype": "bf16", "lasts_s": lasts_s},
        _products(m, lasts_s),
        flop=2.0 * m**3,
        bytes=6.0 * m * m,
        footprint_bytes=12.0 * m * m,
        cache="hot",
        lasts_s=lasts_s,
    )


@bench_later
def _products(bench: Bench, m: int, lasts_s: float) -> Measurement:
    """Samples are seconds of one product, each over some in a row.

    `more`: `ended_s`, when each sample ended, and `telemetry`, what the GPU told meanwhile with `at_s`; from one start.
    """
    x, w = bench.rand(m, m), bench.rand(m, m)
    act = lambda: functional.linear(x, w)  # noqa: E731
    one_s, _ = warm_up(bench, act)
    inner = max(round(_SAMPLE_S / one_s), 1)
    samples: list[float] = []
    ended: list[float] = []
    with Sampler(Telemetry.of(bench.device.torch_device)) as sampler:
        start = time.monotonic()
        while time.monotonic() - start < lasts_s:
            samples += bench.device.times(act, 1, inner, False, 0.0)  # nothing held: launches are far ahead
            ended.append(time.monotonic() - start)
    more = {"acts_per_sample": inner, "ended_s": ended, "telemetry": sampler.since(start)}
    return Measurement(tuple(samples), more=more)
