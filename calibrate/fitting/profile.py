"""A whole Profile from samples: one model per cost class and library, the parameters that follow, and how it came."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ...simulator.base.errors import UserError
from ...simulator.formats.samples import Samples
from ...simulator.hardware import Limits
from ...simulator.profile import PARAMETERS, READ_OFF, SCHEMA, Entry, Model, write_limits, write_models
from ...simulator.profile.forms import FEATURES
from .fit import fit_model
from .observed import observed
from .owners import entry


@dataclass(frozen=True)
class Origin:
    """Where a profile comes from: what its file and its report tell, and the parameters that are known otherwise."""

    name: str
    device: str
    cluster: str
    host_link: str
    date: str
    source: str
    command: str
    files: Sequence[Mapping[str, Any]] = ()
    base: str = "generic"
    wider: float = 0.0
    stated: Mapping[str, Any] = field(default_factory=dict)


def fit_profile(samples: Samples, limits: Limits, origin: Origin, prefer: Sequence[str] = ()) -> dict[str, Any]:
    """The content of a profile file, as `simulator.profile.load_profile` reads it.

    `prefer` lists parts of library names: the first that fits is the default library of a class, else the one with the
    most samples, of equally many the faster one on shapes that they share. Without samples the profile is its base,
    with the limits of another device.

    Raises:
        UserError: there are samples, but none of the device.
    """
    table = samples.table[samples.table["device"] == origin.device]
    others = [record for record in samples.others if record["device"] == origin.device]
    if table.empty and not others and samples.devices:
        raise UserError(f"no samples of {origin.device}; there are some of {', '.join(samples.devices)}")
    models = {str(kind): _variants(str(kind), rows, limits, prefer) for kind, rows in table.groupby("cost_class")}
    return {
        "schema": SCHEMA,
        "name": origin.name,
        "base": origin.base,
        **({"wider": origin.wider} if origin.wider else {}),
        "devices": [origin.device],
        "date": origin.date,
        "source": origin.source,
        "command": origin.command,
        "samples": list(origin.files),
        "environment": dict(samples.environment),
        "limits": write_limits(limits, origin.cluster),
        "parameters": {**parameters_of(models, limits, origin.host_link), **observed(others), **origin.stated},
        "models": write_models(models),
    }


def _variants(kind: str, table: pd.DataFrame, limits: Limits, prefer: Sequence[str]) -> dict[str, Entry]:
    """A model per library, the default one first."""
    counts = table["library"].value_counts()

    def rank(library: str) -> tuple[int, int]:
        wanted = [i for i, part in enumerate(prefer) if part in library]
        return (wanted[0] if wanted else len(prefer), -int(counts[library]))

    equals: dict[tuple[int, int], list[str]] = {}
    for library in sorted(counts.index):
        equals.setdefault(rank(library), []).append(library)
    libraries = [library for _, equal in sorted(equals.items()) for library in _fastest_first(table, equal)]
    of = {library: table[table["library"] == library] for library in libraries}
    return {library: fit_model(kind, library, rows, limits, _source(rows)) for library, rows in of.items()}


def _fastest_first(table: pd.DataFrame, libraries: Sequence[str]) -> list[str]:
    """By their times on the samples whose features all of them have; in the order given where there are none."""
    if len(libraries) == 1:
        return list(libraries)
    features = [name for name in FEATURES if name in table]
    rows = table[table["library"].isin(libraries)].fillna(dict.fromkeys(features, 0.0))
    seconds = rows.groupby([*features, "library"])["seconds"].median().unstack("library").dropna()
    mean = np.log(seconds).mean()
    return sorted(libraries, key=lambda library: float(mean[library]) if len(seconds) else 0.0)


def _source(rows: pd.DataFrame) -> str:
    """Where the samples came from: files without folders and lines, or the words of a table of single figures."""
    words = rows["source"].str.replace(r"^(?:.*/)?([^/ ]+):\d+$", r"\1", regex=True)
    return ", ".join(f"{text} ({count} rows)" for text, count in words.value_counts().items())


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
    more = f"; {across:g} more for another op" if across else ""
    spread = math.hypot(model.bands[-1].spread, across)
    source = f"{how}; {model.library}, {model.source}; {scored}{more}"
    return entry(value, spread, "fitted" if error.rows else "measured", source)


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
