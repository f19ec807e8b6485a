"""One page about a Profile: where it comes from, errors, predicted beside measured, what is extrapolated or assumed."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ..simulator.answers.validate.samples import NOT_FITTED, score_samples
from ..simulator.base.units import format_seconds
from ..simulator.figures import Marked, Section, write_html
from ..simulator.figures.profile import IN_SAMPLE, predicted_lines, residual_bands, scored_samples
from ..simulator.figures.profile_lines import FAMILIES, bands, lines, models_of, size_axis
from ..simulator.formats.samples import Samples
from ..simulator.profile import PROVENANCE, Errors, Model, Profile, Ratio, Stated
from ..simulator.profile.forms import quantity
from ..simulator.report.report import Table
from .check import check_profile
from .fitting.errors import WEAK

_SURE = ("assumed", "extrapolated", "datasheet", "fitted", "interpolated", "measured", "exact")
assert set(_SURE) == set(PROVENANCE)


def write_report(profile: Profile, samples: Samples | None, out: Path) -> None:
    """Write the page.

    Raises:
        UserError: the file cannot be written.
    """
    write_html(out, f"Profile {profile.name}", sections(profile, samples))


def sections(profile: Profile, samples: Samples | None) -> list[Section]:
    """All that the page shows, top down."""
    parts = [
        _origin(profile),
        _errors(profile),
        _residuals(profile),
        _predicted(profile),
        *([_measured(profile, samples)] if samples is not None else []),
        _unmeasured(profile),
    ]
    return [part for part in parts if part.text or part.facts or part.figures or part.tables]


def _origin(profile: Profile) -> Section:
    about = profile.about
    facts = {
        "Devices": ", ".join(profile.devices) or "any",
        "Date": about.get("date"),
        "Source": about.get("source"),
        "Refit with": about.get("command"),
        "Rests on": _base(profile) if "base" in about else None,
        **{name: str(value) for name, value in about.get("environment", {}).items()},
    }
    files = [(file["file"], file["sha256"][:12], file["rows"]) for file in about.get("samples", ())]
    return Section(
        "Origin",
        facts=[(str(name), str(value)) for name, value in facts.items() if value],
        tables=_table("Samples that it was fitted to", ["file", "sha256", "rows used"], files),
    )


def _base(profile: Profile) -> str:
    base, wider = profile.about["base"], profile.about.get("wider", 0.0)
    borrowed = sum(model.wider > 0 for model, _ in models_of(profile))
    if not wider:
        return f"{base}, for what the samples do not cover; its spreads stand as they are"
    carried = f"; {borrowed} models are carried over from other devices" if borrowed else ""
    return f"{base}; carrying over adds {wider:.0%} to its spreads, in squares{carried}"


def _table(caption: str, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> list[Table]:
    """A table, or none where it would have no rows."""
    return [Table(caption, headers, rows)] if rows else []


def _errors(profile: Profile) -> Section:
    models = models_of(profile)
    if not models:
        return Section("Errors", ["This profile has no fitted models: nothing of it was scored."])
    text = [
        "Fitted errors are those on the rows that a model was fitted to; only held-out ones say what to expect. "
        "Beyond the measured range the spread grows with each doubling."
    ]
    if weak := sum(model.held_out.p90 > WEAK for model, _ in models):
        text.append(
            f"{weak} of {len(models)} models are weak (▲): a tenth of the held-out rows is off by more than "
            f"{WEAK:.0%}. Measure the shapes in use before relying on them."
        )
    errors = [
        [
            model.kind,
            model.library,
            model.cost_class.form.name + (" + curves" if model.curves else ""),
            model.fitted.rows,
            model.groups,
            model.parameters,
            *_percent(model.fitted)[:2],
            model.held_out.rows,
            *_percent(model.held_out),
            _remarks(model, default),
        ]
        for model, default in models
    ]
    headers = ["class", "library", "form", "rows", "groups", "parameters", "fitted: median %", "p90 %",
               "held out: rows", "median %", "p90 %", "bias %", "remarks"]  # fmt: skip
    ranges = [
        [model.kind, model.library, ";  ".join(_range(model, axis) for axis in model.cost_class.axes), model.source]
        for model, _ in models
    ]
    caption = "Measured ranges; in brackets what each doubling beyond adds to the spread"
    return Section("Errors", text, tables=[
        Table("Fitted models", headers, errors),
        Table(caption, ["class", "library", "ranges", "measured in"], ranges),
    ])  # fmt: skip


def _percent(errors: Errors) -> list[object]:
    """Median, p90 and bias; dashes where nothing was scored."""
    values = (errors.median, errors.p90, errors.bias)
    return [round(100 * value, 1) if errors.rows else "–" for value in values]


def _remarks(model: Model, default: bool) -> str:
    marks = [f"▲ weak: p90 above {WEAK:.0%}"] if model.held_out.p90 > WEAK else []
    marks += ["▲ error not known: too few rows to hold out"] if not model.held_out.rows else []
    notes = [f"carried over: {model.wider:.0%} added"] if model.wider else []
    text = "; ".join([*marks, *notes, *(["default library"] if default else [])])
    return Marked(text) if marks else text


def _range(model: Model, axis: str) -> str:
    low, high = (quantity(axis, value) for value in model.range[axis])
    span = low if low == high else f"{low} to {high}"
    return f"{axis.replace('_bytes_per_s', ' rate')}: {span} (+{model.growth[axis]:.0%})"


def _residuals(profile: Profile) -> Section:
    table = bands(profile)
    of = {name: table[table["family"] == name] for name in FAMILIES}
    figures = {f"{n}: errors by size": residual_bands(t, f"{n}: errors by size") for n, t in of.items() if len(t)}
    return Section("Residuals by size", figures=figures)


def _predicted(profile: Profile) -> Section:
    figures = {
        f"{name}: predicted over size": predicted_lines(d.table, name, d.subtitle, d.x, d.y)
        for name, d in lines(profile).items()
    }
    text = [
        "What the models predict over size. Curves of collectives in one node run through the measured medians. Solid "
        "lines lie inside the measured range; dashed, faint ones are extrapolated, and so is all that another "
        "device lent."
    ]
    return Section("Predicted over size", text if figures else (), figures=figures)


def _measured(profile: Profile, samples: Samples) -> Section:
    heading, points = "Measured against predicted", score_samples(profile, samples)
    if points.empty:
        return Section(heading, ["No row of the given samples can be predicted by this profile."])
    left_out = len(samples) - len(points)
    more = f"; {left_out:,} left out, of other devices or classes (runcast calibrate check lists them)"
    figures = {
        f"{name}: predicted against measured": scored_samples(rows, name, _counts(rows), size_axis(rows))
        for name in FAMILIES
        if len(rows := points[points["family"] == name])
    }
    files = [
        [Path(str(file)).name, len(rows), rows["seen"].iloc[0], *_percents(rows)]
        for file, rows in points.groupby("file", sort=True)
    ]
    by_class, _ = check_profile(profile, samples)
    headers = ["file", "rows scored", "seen by the fit?", "median %", "p90 %", "bias %"]
    tables = [
        Table("Files of these samples", headers, files),
        Table("Errors on these samples by class and size", list(by_class.columns), by_class.values.tolist()),
    ]
    text = f"{len(points):,} samples scored{more if left_out else ''}. {_seen(points)}"
    return Section(heading, [text], figures=figures, tables=tables)


def _seen(points: pd.DataFrame) -> str:
    """Whether this is a test of the profile."""
    kinds = set(points["seen"])
    if kinds == {IN_SAMPLE}:
        return "All are in-sample: the profile was fitted to these very files (by sha256), so this is no test of it."
    if kinds == {NOT_FITTED}:
        return "None is in-sample: no file has the sha256 of one that the profile was fitted to."
    return f"By sha256 of their files: {_counts(points)}. What is in-sample is no test of the profile."


def _counts(points: pd.DataFrame) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in points["seen"].value_counts().items())


def _percents(rows: pd.DataFrame) -> list[float]:
    error = (rows["predicted_s"] / rows["measured_s"] - 1).to_numpy()
    values = (np.median(np.abs(error)), np.quantile(np.abs(error), 0.9), np.median(error))
    return [round(100 * float(value), 1) for value in values]


def _unmeasured(profile: Profile) -> Section:
    """Classes that nobody measured and what stands in for them, and named numbers, the least sure kind first."""
    stated = [
        [kind, _stands_for(entry), f"±{entry.spread:.0%}", entry.source]
        for kind, variants in sorted(profile.models.items())
        for entry in variants.values()
        if isinstance(entry, Ratio | Stated)
    ]
    order = sorted(profile.parameters.items(), key=lambda item: (_SURE.index(item[1].provenance), item[0]))
    numbers = [
        [p.provenance, name, format_seconds(p.value) if name.endswith(("_s", ".s")) else f"{p.value:.4g}",
         f"±{p.spread:.0%}", p.source]
        for name, p in order
    ]  # fmt: skip
    tables = [
        *_table("Classes that are stated, not fitted", ["class", "taken as", "spread", "source"], stated),
        *_table("Parameters by provenance, the least sure first",
                ["provenance", "parameter", "value", "spread", "source"], numbers),
    ]  # fmt: skip
    text = ["A spread is a relative standard deviation; provenance says where a number comes from."]
    return Section("Extrapolated and assumed", text if tables else (), tables=tables)


def _stands_for(entry: Ratio | Stated) -> str:
    if isinstance(entry, Stated):
        return f"{format_seconds(entry.seconds)} per item"
    return f"{entry.factor:g} × {entry.like}"
