"""Tables of the page about a Profile: where it comes from, its errors, and what in it is assumed."""

from pathlib import Path

import numpy as np
import pandas as pd

from ...simulator.base.units import format_seconds
from ...simulator.figures import Marked
from ...simulator.figures.profile_lines import models_of
from ...simulator.formats.samples import Samples
from ...simulator.profile import PROVENANCE, Errors, Model, Profile, Ratio, Stated
from ...simulator.profile.forms import quantity
from ...simulator.report.report import Table
from ..check import check_profile
from ..fitting.errors import WEAK

_SURE = ("assumed", "extrapolated", "datasheet", "fitted", "interpolated", "measured", "exact")
assert set(_SURE) == set(PROVENANCE)


def facts(profile: Profile) -> list[tuple[str, str]]:
    """The head of the page."""
    about = profile.about
    told = {
        "Devices": ", ".join(profile.devices) or "any",
        "Date": about.get("date"),
        "Source": about.get("source"),
        "Refit with": about.get("command"),
        "Rests on": _base(profile) if "base" in about else None,
        **{str(name): str(value) for name, value in about.get("environment", {}).items()},
    }
    return [(name, str(value)) for name, value in told.items() if value]


def _base(profile: Profile) -> str:
    base, wider = profile.about["base"], profile.about.get("wider", 0.0)
    borrowed = sum(model.wider > 0 for model, _ in models_of(profile))
    if not wider:
        return f"{base}, for what the samples do not cover; its spreads stand as they are"
    carried = f"; {borrowed} models are carried over from other devices" if borrowed else ""
    return f"{base}; carrying over adds {wider:.0%} to its spreads, in squares{carried}"


def files(profile: Profile) -> list[Table]:
    """The files of samples that it was fitted to."""
    rows = [(file["file"], file["sha256"][:12], file["rows"]) for file in profile.about.get("samples", ())]
    return [Table("Samples that it was fitted to", ["file", "sha256", "rows used"], rows)] if rows else []


def errors(profile: Profile) -> list[Table]:
    """A row per class and library; weak ones are marked."""
    headers = ["class", "library", "form", "rows", "groups", "parameters", "fitted: median %", "p90 %",
               "held out: rows", "median %", "p90 %", "bias %", "remarks"]  # fmt: skip
    rows = [_errors_row(model, default) for model, default in models_of(profile)]
    return [Table("Fitted models", headers, rows)] if rows else []


def ranges(profile: Profile) -> list[Table]:
    """What was measured of each model, and how fast it gets less sure beyond."""
    rows = [
        [model.kind, model.library, ";  ".join(_range(model, axis) for axis in model.cost_class.axes), model.source]
        for model, _ in models_of(profile)
    ]
    caption = "Measured ranges; in brackets what each doubling beyond adds to the spread"
    return [Table(caption, ["class", "library", "ranges", "measured in"], rows)] if rows else []


def _errors_row(model: Model, default: bool) -> list[object]:
    fitted, held = model.fitted, model.held_out
    return [
        model.kind,
        model.library,
        model.cost_class.form.name + (" + curves" if model.curves else ""),
        fitted.rows,
        model.groups,
        model.parameters,
        *_percent(fitted)[:2],
        held.rows,
        *_percent(held),
        _remarks(model, default),
    ]


def _percent(errors: Errors) -> list[object]:
    """Median, p90 and bias; dashes where nothing was scored."""
    values = (errors.median, errors.p90, errors.bias)
    return [round(100 * value, 1) if errors.rows else "–" for value in values]


def _range(model: Model, axis: str) -> str:
    low, high = (quantity(axis, value) for value in model.range[axis])
    span = low if low == high else f"{low} to {high}"
    return f"{axis.replace('_bytes_per_s', ' rate')}: {span} (+{model.growth[axis]:.0%})"


def _remarks(model: Model, default: bool) -> str:
    held = model.held_out
    weak = [f"▲ weak: p90 above {WEAK:.0%}"] if held.p90 > WEAK else []
    unscored = ["▲ error not known: too few rows to hold out"] if not held.rows else []
    borrowed = [f"carried over: {model.wider:.0%} added"] if model.wider else []
    text = "; ".join([*weak, *unscored, *borrowed, *(["default library"] if default else [])])
    return Marked(text) if weak or unscored else text


def assumed(profile: Profile) -> list[Table]:
    """Classes that nobody measured, and what stands in for them."""
    rows = [
        [kind, _stands_for(entry), f"±{entry.spread:.0%}", entry.source]
        for kind, variants in sorted(profile.models.items())
        for entry in variants.values()
        if isinstance(entry, Ratio | Stated)
    ]
    headers = ["class", "taken as", "spread", "source"]
    return [Table("Classes that are stated, not fitted", headers, rows)] if rows else []


def _stands_for(entry: Ratio | Stated) -> str:
    if isinstance(entry, Stated):
        return f"{format_seconds(entry.seconds)} per item"
    return f"{entry.factor:g} × {entry.like}"


def parameters(profile: Profile) -> list[Table]:
    """Named numbers, the least sure kind first."""
    order = sorted(profile.parameters.items(), key=lambda item: (_SURE.index(item[1].provenance), item[0]))
    rows = [[p.provenance, name, _value(name, p.value), f"±{p.spread:.0%}", p.source] for name, p in order]
    headers = ["provenance", "parameter", "value", "spread", "source"]
    return [Table("Parameters by provenance, the least sure first", headers, rows)] if rows else []


def _value(name: str, value: float) -> str:
    return format_seconds(value) if name.endswith(("_s", ".s")) else f"{value:.4g}"


def of_samples(profile: Profile, samples: Samples, points: pd.DataFrame) -> list[Table]:
    """Which files were drawn, and errors by class and size band."""
    files = [
        [Path(str(file)).name, len(rows), rows["seen"].iloc[0], *_percents(rows)]
        for file, rows in points.groupby("file", sort=True)
    ]
    headers = ["file", "rows scored", "seen by the fit?", "median %", "p90 %", "bias %"]
    checked, _ = check_profile(profile, samples)
    cells = [list(row) for row in checked.itertuples(index=False)]
    return [
        Table("Files of these samples", headers, files),
        Table("Errors on these samples by class and size", list(checked.columns), cells),
    ]


def _percents(rows: pd.DataFrame) -> list[float]:
    error = (rows["predicted_s"] / rows["measured_s"] - 1).to_numpy()
    values = (np.median(np.abs(error)), np.quantile(np.abs(error), 0.9), np.median(error))
    return [round(100 * float(value), 1) for value in values]
