"""The parameters of a profile that follow from its models: what links, copies and rings of an update really reach.

Each keeps the spread and the source of the model that it is read off.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...simulator.hardware import Limits
from ...simulator.profile import PARAMETERS, READ_OFF, Entry, Model

Models = Mapping[str, Mapping[str, Entry]]


def parameters_of(models: Models, limits: Limits, host_link: str) -> dict[str, Any]:
    """Entries of a profile's `parameters`, for those models that there are and values that may be.

    `host_link` is the kind of link that bounds copies from the host.
    """
    entries = {}
    for template, (value_of, how, across) in _PARAMETERS.items():
        name = template.format(host_link=host_link)
        kind = READ_OFF[name]
        model = next(iter(models.get(kind, {}).values()), None)
        value = value_of(model, limits) if isinstance(model, Model) else None
        if isinstance(model, Model) and value is not None and value >= PARAMETERS[name][0]:
            entries[name] = _entry(min(value, 1.0), model, f"{how} of {kind}", across)
    return entries


def _entry(value: float, model: Model, how: str, across: float) -> dict[str, Any]:
    """`across` is the spread that reading one class off another adds, in squares."""
    error = model.held_out
    scored = f"held out {error.median:.1%} / {error.p90:.1%}" if error.rows else "too few rows to leave any out"
    told = f"{how}; {model.library}, {model.source}; {scored}" + (f"; {across:g} more for another op" if across else "")
    spread = float(f"{math.hypot(model.bands[-1].spread, across):.3g}")
    label = "fitted" if error.rows else "measured"
    return {"value": float(f"{value:.4g}"), "spread": spread, "provenance": label, "source": told}


def _coefficient(name: str) -> Callable[[Model, Limits], float | None]:
    return lambda model, _limits: model.coefficients[name]


def _nic_fraction(model: Model, _limits: Limits) -> float | None:
    """The rate over more than two nodes, where samples tell it: two are not the general case."""
    return model.coefficients["e"] if model.range["nodes"][1] > 2 else None


def _ring_fraction(model: Model, limits: Limits) -> float | None:
    """What the largest measured all-gather on the most GPUs reaches of the link, by bus bandwidth."""
    if not model.curves:
        return None
    gpus = max(model.curves)
    size, seconds = model.curves[gpus].bytes[-1], model.curves[gpus].seconds[-1]
    return float(size * (gpus - 1) / gpus / seconds / limits.link_bytes_per_s)


_PARAMETERS: dict[str, tuple[Callable[[Model, Limits], float | None], str, float]] = {
    "link_fraction.{host_link}": (_coefficient("e"), "rate of long copies", 0.0),
    "copy.hbm_fraction": (_coefficient("e"), "traffic of long copies, which read and write", 0.0),
    "link_fraction.nvlink": (_ring_fraction, "bus bandwidth at the largest size", 0.05),
    "link_fraction.nic": (_nic_fraction, "bus bandwidth from three nodes", 0.1),
    "broadcast.latency_s": (_coefficient("a_s"), "constant term", 0.3),
}
"""By parameter: how it is read off the model of `READ_OFF`, how that is told, and what serving another op adds."""
