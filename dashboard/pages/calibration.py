"""Calibration: what a profile or a software stack says, how well that fits what was measured, and where it is from."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, dcc, html

from ...simulator.answers.validate.beside import scored
from ...simulator.base.errors import UserError
from ...simulator.base.units import format_seconds
from ...simulator.figures.profile import factor_dots, predicted_lines, residual_bands, scored_samples
from ...simulator.figures.profile_lines import FAMILIES, bands, family, lines, models_of, size_axis
from ...simulator.profile import PROVENANCE, Model, Parameter, Profile, Ratio, stack_chain, stack_names
from ...simulator.profile.forms import quantity
from ...simulator.profile.parameters import allowed
from .. import grid, parts
from ..measured import DEVICE, SOFTWARE, Measured
from ..page import Here, Page
from ..shell import keep_in_address

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "What each device and software is taken to be, how well that fits measurements, and where numbers are from."
NAME = "calibration"
MOST_CHARACTERS = 1000
"""Of a query that is read."""
COEFFICIENTS, MODELS, PARAMETERS = (f"{NAME}-{table}" for table in ("coefficients", "models", "parameters"))
_FIRST = "h100-sxm"
_PANELS = 2
"""Beside each other, at most."""
_TITLE_PX = 60
"""What titles take above a figure."""
_NO_SAMPLES = (
    "The data folder holds no samples of this class and device, and shipped profiles keep what was found, not what was "
    "measured. Errors above are of rows left out of the fit."
)
_NO_ENVIRONMENT = "No environment was recorded: none of it was measured with runcast."
_READING = "Reading what was measured."
_FACTOR = "time_factor."


@dataclass(frozen=True)
class Shown:
    """A profile or stack by name, and a cost class (empty: the first that the profile has)."""

    kind: str = DEVICE
    name: str = _FIRST
    cost_class: str = ""

    @property
    def option(self) -> str:
        """As the choice among both calls it."""
        return f"{self.kind} {self.name}"

    def query(self) -> str:
        """As the query of an address."""
        chosen = [("class", self.cost_class)] if self.kind == DEVICE and self.cost_class else []
        return "?" + urlencode([(self.kind, self.name), *chosen])


def shown(query: str) -> Shown:
    """What an address asks for."""
    asked = dict(parse_qsl(query.removeprefix("?")[:MOST_CHARACTERS]))
    kind = SOFTWARE if SOFTWARE in asked else DEVICE
    return Shown(kind, asked.get(kind, _FIRST), asked.get("class", ""))


def layout(here: Here, query: str) -> "Component":
    """The choices, and the place of what they show."""
    now, measured = shown(query), Measured(here.library.folder)
    groups = [("Devices", DEVICE), ("Software", SOFTWARE)]
    known = [
        {"group": caption, "items": [{"value": Shown(kind, n).option, "label": n} for n in measured.names(kind)]}
        for caption, kind in groups
    ]
    told = {"searchable": True, "allowDeselect": False}
    choices = [
        dmc.Select(id=f"{NAME}-of", label="Profile", value=now.option, data=known, **told),
        dmc.Select(id=f"{NAME}-class", label="Cost class", value=now.cost_class or None, data=[], **told),
    ]
    return html.Div(
        [
            parts.heading("Calibration", ABOUT),
            html.Form(choices, className="choices", **{"aria-label": "Profile"}),
            dcc.Loading(html.Div(parts.said([_READING]), id=f"{NAME}-drawn"), type="circle", delay_show=500),
            dcc.Store(id=f"{NAME}-query"),
        ]
    )


def classes(profile: Profile) -> list[dict[str, Any]]:
    """The cost classes of a profile as choices, by family; those that were fitted are the first of each."""
    fitted = {model.kind for model, _ in models_of(profile)}
    found: dict[str, list[str]] = {name: [] for name in FAMILIES}
    for kind in sorted(profile.models, key=lambda kind: (kind not in fitted, kind)):
        found[family(kind)].append(kind)
    said = {kind: kind if kind in fitted else f"{kind} (not measured)" for kind in profile.models}
    return [
        {"group": name, "items": [{"value": kind, "label": said[kind]} for kind in kinds]}
        for name, kinds in found.items()
        if kinds
    ]


def class_of(profile: Profile, asked: str) -> str:
    """The class that is asked for, or products in BF16, or the first that there is."""
    known = [item["value"] for group in classes(profile) for item in group["items"]]
    return next((kind for kind in (asked, "gemm.bf16", *known) if kind in known), "")


def device(profile: Profile, kind: str, measured: Measured) -> "list[Component]":
    """Everything about a profile, first of one cost class."""
    entries = profile.models.get(kind, {})
    fitted = [entry for entry in entries.values() if isinstance(entry, Model)]
    found: list[Component] = [parts.numbers(_scores(profile, fitted))] if fitted else []
    found += [parts.said(_stands_for(kind, entry)) for entry in entries.values() if not isinstance(entry, Model)]
    if fitted:
        found += _figures(profile, kind)
    if kind:
        found += _beside(profile, kind, measured)
    if fitted:
        found += [html.H2("Where it was measured"), *map(_ranges, fitted), _coefficients(fitted)]
    tables = [_models(profile)] if models_of(profile) else []
    return [*found, *tables, parameters(profile.parameters), *origin(profile)]


def _scores(profile: Profile, fitted: list[Model]) -> "list[tuple[str, str, str]]":
    model = fitted[0]
    held, many = model.held_out, f"{model.held_out.rows:,} rows left out"
    unknown = ("–", "too few rows to leave any out")
    off = f"{held.median:.1%}", many
    within = f"{held.p90:.1%}", f"while {model.left_out} is left out"
    return [
        ("Median error", *(off if held.rows else unknown)),
        ("90 % are within", *(within if held.rows else unknown)),
        ("Bias", f"{held.bias:+.1%}" if held.rows else "–", "the median error with its sign"),
        ("Fitted to", f"{model.fitted.rows:,} rows", f"of {model.groups:,} groups; {model.parameters} numbers"),
        ("Carried over", f"+{model.wider:.0%}" if model.wider else "no", "spread that another device adds"),
        ("Library", model.library, f"the default of {len(fitted)}" if len(fitted) > 1 else profile.name),
    ]


def _stands_for(kind: str, entry: Any) -> list[str]:
    """What is taken where nothing was measured."""
    if isinstance(entry, Ratio):
        taken = f"{entry.factor:g} times the seconds of {entry.like}"
    else:
        taken = f"{format_seconds(entry.seconds)} each"
    return [f"{kind} was not measured here: it is taken as {taken}, ±{entry.spread:.0%}. Source: {entry.source}"]


def _figures(profile: Profile, kind: str) -> "list[Component]":
    """Rates over sizes with their 90 % band, and errors by band of sizes."""
    found: list[Component] = []
    for drawn in lines(profile, kind).values():
        columns = min(_PANELS, drawn.table["panel"].nunique())
        figure = predicted_lines(drawn.table, "", drawn.subtitle, drawn.x, drawn.y, columns)
        found += _figure(f"{kind}: predicted over size", figure)
    table = bands(profile, kind)
    return found + (_figure(f"{kind}: errors by size", residual_bands(table, "")) if len(table) else [])


def _figure(caption: str, figure: Any) -> "list[Component]":
    """The page has the heading, and says below it what else stands above a figure."""
    said = figure.layout.title.subtitle.text
    up_px = min(figure.layout.margin.t, _TITLE_PX)
    figure.update_layout(title=None, margin_t=figure.layout.margin.t - up_px, height=figure.layout.height - up_px)
    return [*parts.figures({caption: figure}), parts.said([said] if said else [])]


def _beside(profile: Profile, kind: str, measured: Measured) -> "list[Component]":
    """Samples of the data folder beside the fit."""
    samples = measured.samples()
    points = None if samples is None else scored(profile, samples)
    mine = None if points is None else points[points["kind"] == kind]
    caption = f"{kind}: measured against predicted"
    if mine is None or mine.empty:
        return [html.H2(caption), parts.said([_NO_SAMPLES])]
    figure = scored_samples(mine, "", "samples of the data folder", size_axis(mine))
    return _figure(caption, figure)


def _ranges(model: Model) -> "Component":
    spans = {axis: _range(model, axis) for axis in model.cost_class.axes}
    curves = {"curves": f"of {', '.join(f'{n:g}' for n in sorted(model.curves))} GPUs"} if model.curves else {}
    return facts({model.library: model.source, **spans, **curves})


def _coefficients(fitted: list[Model]) -> "Component":
    columns = [
        grid.column("Library", "library", 160), grid.column("Form", "form", 160),
        grid.column("Coefficient", "name", 110), grid.column("Value", "value", 120, ".4~g"),
        grid.column("Meaning", "meaning", 520),
    ]  # fmt: skip
    rows = [
        {"library": model.library, "form": model.cost_class.form.name, "name": of.name,
         "value": model.coefficients[of.name], "meaning": of.meaning}
        for model in fitted
        for of in model.cost_class.form.coefficients
    ]  # fmt: skip
    return grid.grid(COEFFICIENTS, "Coefficients", columns, rows)


def _range(model: Model, axis: str) -> str:
    low, high = (quantity(axis, value) for value in model.range[axis])
    span = low if low == high else f"{low} to {high}"
    return f"{span}; each doubling beyond adds {model.growth[axis]:.0%} to the spread"


def _models(profile: Profile) -> "Component":
    columns = [
        grid.column("Class", "kind", 200), grid.column("Library", "library", 160), grid.column("Form", "form", 110),
        grid.column("Rows", "rows", 90, ",d"), grid.column("Median", "median", 100, ".1%"),
        grid.column("p90", "p90", 100, ".1%"), grid.column("Bias", "bias", 100, "+.1%"),
        grid.column("Carried over", "wider", 120, ".0%"), grid.column("Measured in", "source", 420),
    ]  # fmt: skip
    rows = [
        {"kind": m.kind, "library": m.library, "form": m.cost_class.form.name, "rows": m.fitted.rows,
         **{key: getattr(m.held_out, key) if m.held_out.rows else None for key in ("median", "p90", "bias")},
         "wider": m.wider, "source": m.source}
        for m, _ in models_of(profile)
    ]  # fmt: skip
    return grid.grid(MODELS, "Fitted classes, errors on rows left out", columns, rows)


def parameters(known: Mapping[str, Parameter]) -> "Component":
    """Named numbers, the least sure kind first."""
    columns = [
        grid.column("Parameter", "name", 230), grid.column("Value", "value", 110, ".4~g"),
        grid.column("Spread", "spread", 90, ".0%"), grid.column("Provenance", "provenance", 120),
        grid.column("Meaning", "meaning", 320), grid.column("Source", "source", 520),
    ]  # fmt: skip
    order = sorted(known.items(), key=lambda item: (-PROVENANCE.index(item[1].provenance), item[0]))
    rows = [{"name": name, **vars(p), "meaning": _meaning(name)} for name, p in order]
    return grid.grid(PARAMETERS, "Parameters, the least sure first", columns, rows)


def _meaning(name: str) -> str:
    found = allowed(name)
    return found[2] if found else ""


def software(stack: Profile) -> "list[Component]":
    """Everything about a software stack."""
    counts = Counter(p.provenance for p in stack.parameters.values())
    factors = {name: p for name, p in sorted(stack.parameters.items()) if name.startswith(_FACTOR)}
    chain = stack_chain(stack.name) if stack.name in stack_names() else [stack.name]
    told = [
        ("Parameters", f"{len(stack.parameters):,}", f"{len(factors)} factors of training steps"),
        ("Fitted", f"{counts['fitted']:,}", "to the ledgers of updates and steps"),
        ("Assumed", f"{counts['assumed']:,}", "that nobody measured"),
        ("Rests on", " → ".join(chain[1:]) or "nothing", "what it does not say is theirs"),
    ]
    caption = "Factors on what the device's profile says, with 90 % intervals"
    figures = {caption: factor_dots(factors)} if factors else {}
    return [parts.numbers(told), *parts.figures(figures), parameters(stack.parameters), *origin(stack)]


def origin(profile: Profile) -> "list[Component]":
    """Where it comes from: dates, commands, files, machines."""
    about = profile.about
    files = "; ".join(f"{f['file']} ({f['rows']:,} rows, sha256 {f['sha256'][:12]})" for f in about.get("samples", ()))
    wider = f"; carrying over adds {about['wider']:.0%} to spreads" if about.get("wider") else ""
    base = f"{about['base']}, for what it does not say itself{wider}" if "base" in about else ""
    told = {
        "Devices": ", ".join(profile.devices), "Date": about.get("date"), "Source": about.get("source"),
        "Rests on": base, "Fitted to": files, "Command": about.get("command"),
        **{str(name): value for name, value in about.get("environment", {}).items()},
    }  # fmt: skip
    known = {name: str(value) for name, value in told.items() if value}
    silent = [] if about.get("environment") else [_NO_ENVIRONMENT]
    return [html.H2("Origin"), facts(known), parts.said(silent)]


def facts(told: Mapping[str, str]) -> "Component":
    """Names and what they are."""
    rows: Iterable[Any] = ((html.Dt(name), html.Dd(value)) for name, value in told.items())
    return html.Dl([cell for row in rows for cell in row], className="facts")


def _refused(error: UserError) -> "Component":
    lines = [html.P(line) for line in error.faults]
    return dmc.Alert(lines, title="This cannot be shown", color="red")


def connect(app: Dash, here: Here) -> None:
    """A choice is drawn, and stands in the address."""
    measured = Measured(here.library.folder)
    keep_in_address(app, f"{NAME}-query")
    for table in (COEFFICIENTS, MODELS, PARAMETERS):
        grid.connect(app, table)

    @app.callback(
        Output(f"{NAME}-drawn", "children"),
        Output(f"{NAME}-class", "data"),
        Output(f"{NAME}-class", "value"),
        Output(f"{NAME}-class", "disabled"),
        Output(f"{NAME}-query", "data"),
        Input(f"{NAME}-of", "value"),
        Input(f"{NAME}-class", "value"),
    )
    def show(of: str, cost_class: str | None) -> tuple[Any, ...]:
        kind, _, name = of.partition(" ")
        try:
            profile = measured.profile(kind, name)
        except UserError as error:
            return _refused(error), [], None, True, Shown(kind, name).query()
        if kind == SOFTWARE:
            return software(profile), [], None, True, Shown(kind, name).query()
        now = Shown(kind, name, class_of(profile, cost_class or ""))
        return device(profile, now.cost_class, measured), classes(profile), now.cost_class, False, now.query()


PAGE = Page("/calibration", "Calibration", "profiles and software", layout, connect)
