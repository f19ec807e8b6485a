"""The parameters of a profile that follow from its models: what links, copies and rings of an update really reach.

Each keeps the spread and the source of the model that it is read off.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ...simulator.hardware import Limits
from ...simulator.profile import Entry, Model

Models = Mapping[str, Mapping[str, Entry]]


def parameters_of(models: Models, limits: Limits) -> dict[str, Any]:
    """Entries of a profile's `parameters`, for those models that there are."""
    entries = {}
    for name, (kind, value_of, how) in _PARAMETERS.items():
        model = next(iter(models.get(kind, {}).values()), None)
        if isinstance(model, Model):
            entries[name] = _entry(min(value_of(model, limits), 1.0), model, f"{how} of {kind}")
    return entries


def _entry(value: float, model: Model, how: str) -> dict[str, Any]:
    error = model.held_out
    told = f"{how}; {model.library}, {model.source}; held out {error.median:.1%} / {error.p90:.1%}"
    spread = float(f"{max(band.spread for band in model.bands[-1:]):.3g}")
    return {"value": float(f"{value:.4g}"), "spread": spread, "provenance": "fitted", "source": told}


def _coefficient(name: str) -> Callable[[Model, Limits], float]:
    return lambda model, _limits: model.coefficients[name]


def _ring_fraction(model: Model, limits: Limits) -> float:
    """What the largest measured all-gather on the most GPUs reaches of the link, by bus bandwidth."""
    gpus = max(model.curves, default=model.range["gpus"][1])
    size = model.range["bytes"][1]
    x = model.cost_class.columns({"bytes": size, "gpus": gpus}, limits)
    seconds = float(model.seconds(x, limits)[0])
    return size * (gpus - 1) / gpus / seconds / limits.link_bytes_per_s


def _copy_traffic(model: Model, _limits: Limits) -> float:
    """A copy reads and writes, so its rate over half the memory's is its traffic over the whole."""
    return model.coefficients["e"]


_PARAMETERS: dict[str, tuple[str, Callable[[Model, Limits], float], str]] = {
    "link_fraction.pcie": ("copy.h2d", _coefficient("e"), "rate of long copies"),
    "copy.hbm_fraction": ("copy.d2d", _copy_traffic, "traffic of long copies"),
    "link_fraction.nvlink": ("all_gather", _ring_fraction, "bus bandwidth at the largest size"),
    "link_fraction.nic": ("all_reduce.network", _coefficient("e"), "bus bandwidth from three nodes"),
    "broadcast.latency_s": ("all_gather", _coefficient("a_s"), "constant term"),
    "broadcast.hop_s": ("all_gather", _coefficient("h_s"), "time of a step"),
}
"""By parameter: the class that it is read off, how, and how that is told."""

