"""One page about a Profile: where it comes from, errors, predicted beside measured, what is extrapolated or assumed."""

from pathlib import Path

import pandas as pd

from ...simulator.answers.validate.samples import NOT_FITTED, score_samples
from ...simulator.figures import Section, write_html
from ...simulator.figures.profile import IN_SAMPLE, predicted_lines, residual_bands, scored_samples
from ...simulator.figures.profile_lines import FAMILIES, bands, lines, models_of, size_axis
from ...simulator.formats.samples import Samples
from ...simulator.profile import Profile
from ..fitting.errors import WEAK
from . import tables


def write_report(profile: Profile, samples: Samples | None, out: Path) -> None:
    """Write the page.

    Raises:
        UserError: the file cannot be written.
    """
    write_html(out, f"Profile {profile.name}", sections(profile, samples))


def sections(profile: Profile, samples: Samples | None) -> list[Section]:
    """All that the page shows, top down."""
    parts = [
        Section("Origin", facts=tables.facts(profile), tables=tables.files(profile)),
        _errors(profile),
        _residuals(profile),
        _predicted(profile),
        *([_measured(profile, samples)] if samples is not None else []),
        _unmeasured(profile),
    ]
    return [part for part in parts if part.text or part.facts or part.figures or part.tables]


def _errors(profile: Profile) -> Section:
    found = tables.errors(profile)
    if not found:
        return Section("Errors", ["This profile has no fitted models: nothing of it was scored."])
    weak = sum(model.held_out.p90 > WEAK for model, _ in models_of(profile))
    text = [
        "Fitted errors are those on the rows that a model was fitted to; only held-out ones say what to expect. "
        "Beyond the measured range the spread grows with each doubling.",
        f"{weak} of {len(found[0].rows)} models are weak (▲): a tenth of the held-out rows is off by more than "
        f"{WEAK:.0%}. Measure the shapes in use before relying on them.",
    ]
    return Section("Errors", text if weak else text[:1], tables=[*found, *tables.ranges(profile)])


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
    points = score_samples(profile, samples)
    if points.empty:
        return Section("Measured against predicted", ["No row of the given samples can be predicted by this profile."])
    left_out = len(samples) - len(points)
    text = [
        f"{len(points):,} samples scored"
        + (
            f"; {left_out:,} left out, of other devices or classes (runcast calibrate check lists them)"
            if left_out
            else ""
        )
        + f". {_seen(points)}"
    ]
    figures = {
        f"{name}: predicted against measured": scored_samples(rows, name, _counted(rows), size_axis(rows))
        for name in FAMILIES
        if len(rows := points[points["family"] == name])
    }
    return Section(
        "Measured against predicted", text, figures=figures, tables=tables.of_samples(profile, samples, points)
    )


def _seen(points: pd.DataFrame) -> str:
    """Whether this is a test of the profile."""
    kinds = set(points["seen"])
    if kinds == {IN_SAMPLE}:
        return "All are in-sample: the profile was fitted to these very files (by sha256), so this is no test of it."
    if kinds == {NOT_FITTED}:
        return "None is in-sample: no file has the sha256 of one that the profile was fitted to."
    return f"By sha256 of their files: {_counted(points)}. What is in-sample is no test of the profile."


def _counted(points: pd.DataFrame) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in points["seen"].value_counts().items())


def _unmeasured(profile: Profile) -> Section:
    found = [*tables.assumed(profile), *tables.parameters(profile)]
    text = ["A spread is a relative standard deviation; provenance says where a number comes from."]
    return Section("Extrapolated and assumed", text if found else (), tables=found)
