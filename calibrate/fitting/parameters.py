"""The parameters of a profile that follow from its models: what links, copies and rings of an update really reach.

Each keeps the spread and the source of the model that it is read off.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...simulator.hardware import Limits
from ...simulator.profile import Entry, Model

Models = Mapping[str, Mapping[str, Entry]]


def parameters_of(models: Models, limits: Limits, host_link: str) -> dict[str, Any]:
    """Entries of a profile's `parameters`, for those models that there are.

    `host_link` is the kind of link that bounds copies from the host.
    """
    entries = {}
    for name, (kind, value_of, how, across) in _PARAMETERS.items():
        model = next(iter(models.get(kind, {}).values()), None)
        if isinstance(model, Model):
            value = min(value_of(model, limits), 1.0)
            entries[name.format(host_link=host_link)] = _entry(value, model, f"{how} of {kind}", across)
    return entries


def _entry(value: float, model: Model, how: str, across: float) -> dict[str, Any]:
    """`across` is the spread that reading one class off another adds, in squares."""
    error = model.held_out
    scored = f"held out {error.median:.1%} / {error.p90:.1%}" if error.rows else "too few rows to leave any out"
    told = f"{how}; {model.library}, {model.source}; {scored}" + (f"; {across:g} more for another op" if across else "")
    spread = float(f"{math.hypot(model.bands[-1].spread, across):.3g}")
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


_PARAMETERS: dict[str, tuple[str, Callable[[Model, Limits], float], str, float]] = {
    "link_fraction.{host_link}": ("copy.h2d", _coefficient("e"), "rate of long copies", 0.0),
    "copy.hbm_fraction": ("copy.d2d", _coefficient("e"), "traffic of long copies, which read and write", 0.0),
    "link_fraction.nvlink": ("all_gather", _ring_fraction, "bus bandwidth at the largest size", 0.05),
    "link_fraction.nic": ("all_reduce.network", _coefficient("e"), "bus bandwidth from three nodes", 0.1),
    "broadcast.latency_s": ("all_gather", _coefficient("a_s"), "constant term", 0.3),
}
"""By parameter: the class that it is read off, how, how that is told, and what it adds to serve another op."""
