"""Calibration: what a profile or a software stack says, how well that fits what was measured, and where it is from."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from dash import Dash, dcc, html

from ...simulator.answers.validate import score_samples
from ...simulator.base.errors import UserError
from ...simulator.base.units import format_seconds
from ...simulator.figures.profile import factor_dots, predicted_lines, residual_bands, scored_samples
from ...simulator.figures.profile_lines import FAMILIES, bands, family, lines, models_of, size_axis
from ...simulator.profile import PROVENANCE, Model, Parameter, Profile, Ratio, stack_chain, stack_names
from ...simulator.profile.forms import quantity
from ...simulator.profile.parameters import bounds
from .. import parts, tables
from ..library import DEVICE, SOFTWARE, Library
from ..page import Here, Page, inputs, keep_in_address, outputs
from ..question import choices_of
from ..tables import column

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "What each device and software is taken to be, how well that fits measurements, and where numbers are from."
NAME = "calibration"
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
_FACTOR = "time_factor."


@dataclass(frozen=True)
class Shown:
    """A profile or stack by name, and a cost class (empty: the first that the profile has)."""

    kind: str = DEVICE
    name: str = _FIRST
    cost_class: str = ""

    @classmethod
    def read(cls, said: Mapping[str, str]) -> "Shown":
        """What an address asks for."""
        kind = SOFTWARE if SOFTWARE in said else DEVICE
        return cls(kind, said.get(kind, _FIRST), said.get("class", ""))

    def query(self) -> str:
        """The state of the page as the query of an address."""
        chosen = {"class": self.cost_class} if self.kind == DEVICE and self.cost_class else {}
        return "?" + urlencode({self.kind: self.name} | chosen)


def layout(here: Here, query: str) -> "Component":
    """The choices, and the place of what they show."""
    now = Shown.read(choices_of(query))
    captions = {"Devices": DEVICE, "Software": SOFTWARE}
    names = {title: {f"{of} {name}": name for name in here.library.profiles(of)} for title, of in captions.items()}
    choices = [
        parts.choice(f"{NAME}-of", "Profile", parts.groups(names), f"{now.kind} {now.name}"),
        parts.choice(f"{NAME}-class", "Cost class", [], now.cost_class or None),
    ]
    drawn = html.Div(parts.notes(["Reading what was measured."]), id=f"{NAME}-drawn")
    return html.Div(
        [
            html.Form(choices, className="choices", **{"aria-label": "Profile"}),
            dcc.Loading(drawn, type="circle", delay_show=500),
            dcc.Store(id=f"{NAME}-query"),
        ]
    )


def classes(profile: Profile) -> dict[str, dict[str, str]]:
    """The cost classes of a profile by family, with what each is called; those that were fitted are the first."""
    fitted = {model.kind for model, _ in models_of(profile)}
    found: dict[str, dict[str, str]] = {name: {} for name in FAMILIES}
    for kind in sorted(profile.models, key=lambda kind: (kind not in fitted, kind)):
        found[family(kind)][kind] = kind if kind in fitted else f"{kind} (not measured)"
    return found


def class_of(profile: Profile, asked: str) -> str:
    """The class that is asked for, or products in BF16, or the first that there is."""
    known = [kind for kinds in classes(profile).values() for kind in kinds]
    return next((kind for kind in (asked, "gemm.bf16", *known) if kind in known), "")


def draw_device(profile: Profile, kind: str, library: Library) -> "list[Component]":
    """The components of a profile's page, first those of one cost class."""
    entries = profile.models.get(kind, {})
    fitted = [entry for entry in entries.values() if isinstance(entry, Model)]
    drawn: list[Component] = [_scores(profile, fitted)] if fitted else []
    drawn += [parts.notes([_substitute(kind, entry)]) for entry in entries.values() if not isinstance(entry, Model)]
    if fitted:
        drawn += _figures(profile, kind)
    if kind:
        drawn += _beside(profile, kind, library)
    if fitted:
        drawn += [html.H2("Where it was measured"), *map(_ranges, fitted), _coefficients(fitted)]
    models = [_models(profile)] if models_of(profile) else []
    return [*drawn, *models, _parameters(profile), *_origin(profile)]


def _scores(profile: Profile, fitted: list[Model]) -> "Component":
    model = fitted[0]
    held = model.held_out
    many, within = f"{held.rows:,} rows left out", f"with {model.left_out} left out"
    if not held.rows:
        many = within = "too few rows to leave any out"
    return parts.numbers(
        [
            ("Median error", f"{held.median:.1%}" if held.rows else "–", many),
            ("90 % are within", f"{held.p90:.1%}" if held.rows else "–", within),
            ("Bias", f"{held.bias:+.1%}" if held.rows else "–", "the median error with its sign"),
            ("Fitted to", f"{model.fitted.rows:,} rows", f"of {model.groups:,} groups; {model.parameters} numbers"),
            ("Carried over", f"+{model.wider:.0%}" if model.wider else "no", "spread that another device adds"),
            ("Library", model.library, f"the default of {len(fitted)}" if len(fitted) > 1 else profile.name),
        ]
    )


def _substitute(kind: str, entry: Any) -> str:
    """A sentence on the substitute for a class without measurements."""
    if isinstance(entry, Ratio):
        taken = f"{entry.factor:g} times the seconds of {entry.like}"
    else:
        taken = f"{format_seconds(entry.seconds)} each"
    return f"{kind} was not measured here: it is taken as {taken}, ±{entry.spread:.0%}. Source: {entry.source}"


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
    return [parts.figure(caption, figure), parts.notes([said] if said else [])]


def _beside(profile: Profile, kind: str, library: Library) -> "list[Component]":
    """Samples of the data folder beside the fit."""
    samples = library.samples()
    points = None if samples is None else score_samples(profile, samples)
    mine = None if points is None else points[points["kind"] == kind]
    caption = f"{kind}: measured against predicted"
    if mine is None or mine.empty:
        return [html.H2(caption), parts.notes([_NO_SAMPLES])]
    return _figure(caption, scored_samples(mine, "", "samples of the data folder", size_axis(mine)))


def _ranges(model: Model) -> "Component":
    curves = {"curves": f"of {', '.join(f'{n:g}' for n in sorted(model.curves))} GPUs"} if model.curves else {}
    spans = {axis: _range(model, axis) for axis in model.cost_class.axes}
    return _facts({model.library: model.source, **spans, **curves})


def _range(model: Model, axis: str) -> str:
    low, high = (quantity(axis, value) for value in model.range[axis])
    span = low if low == high else f"{low} to {high}"
    return f"{span}; each doubling beyond adds {model.growth[axis]:.0%} to the spread"


def _coefficients(fitted: list[Model]) -> "Component":
    columns = [
        column("Library", "library", 160), column("Form", "form", 160), column("Coefficient", "name", 110),
        column("Value", "value", 120, ".4~g"), column("Meaning", "meaning", 520),
    ]  # fmt: skip
    rows = [
        {"library": model.library, "form": model.cost_class.form.name, "name": of.name,
         "value": model.coefficients[of.name], "meaning": of.meaning}
        for model in fitted
        for of in model.cost_class.form.coefficients
    ]  # fmt: skip
    return tables.grid(COEFFICIENTS, "Coefficients", columns, rows)


def _models(profile: Profile) -> "Component":
    columns = [
        column("Class", "kind", 200), column("Library", "library", 160), column("Form", "form", 110),
        column("Rows", "rows", 90, ",d"), column("Median", "median", 100, ".1%"), column("p90", "p90", 100, ".1%"),
        column("Bias", "bias", 100, "+.1%"), column("Carried over", "wider", 120, ".0%"),
        column("Measured in", "source", 420),
    ]  # fmt: skip
    rows = [
        {"kind": m.kind, "library": m.library, "form": m.cost_class.form.name, "rows": m.fitted.rows,
         **{key: getattr(m.held_out, key) if m.held_out.rows else None for key in ("median", "p90", "bias")},
         "wider": m.wider, "source": m.source}
        for m, _ in models_of(profile)
    ]  # fmt: skip
    return tables.grid(MODELS, "Fitted classes, errors on rows left out", columns, rows)


def _parameters(profile: Profile) -> "Component":
    """Named numbers, those of the least sure kind first, and of them those with the widest spread."""
    columns = [
        column("Parameter", "name", 230), column("Value", "value", 110, ".4~g"), column("Spread", "spread", 90, ".0%"),
        column("Provenance", "provenance", 120), column("Meaning", "meaning", 320), column("Source", "source", 520),
    ]  # fmt: skip

    def place(item: tuple[str, Parameter]) -> tuple[int, float, str]:
        return -PROVENANCE.index(item[1].provenance), -(item[1].spread or 0.0), item[0]

    rows = [
        {
            "name": name,
            **{key: getattr(parameter, key) for key in ("value", "spread", "provenance", "source")},
            "meaning": found[2] if (found := bounds(name)) else "",
        }
        for name, parameter in sorted(profile.parameters.items(), key=place)
    ]
    return tables.grid(PARAMETERS, "Parameters, the least sure first", columns, rows)


def draw_software(stack: Profile) -> "list[Component]":
    """The components of a software stack's page."""
    counts = Counter(p.provenance for p in stack.parameters.values())
    factors = {name: p for name, p in sorted(stack.parameters.items()) if name.startswith(_FACTOR)}
    chain = stack_chain(stack.name) if stack.name in stack_names() else [stack.name]
    cards = [
        ("Parameters", f"{len(stack.parameters):,}", f"{len(factors)} factors of training steps"),
        ("Fitted", f"{counts['fitted']:,}", "to the ledgers of updates and steps"),
        ("Assumed", f"{counts['assumed']:,}", "that nobody measured"),
        ("Rests on", " → ".join(chain[1:]) or "nothing", "what it does not say is theirs"),
    ]
    caption = "Factors on what the device's profile says, with 90 % intervals"
    figures = {caption: factor_dots(factors)} if factors else {}
    return [parts.numbers(cards), *parts.figures(figures), _parameters(stack), *_origin(stack)]


def _origin(profile: Profile) -> "list[Component]":
    """The origin of a profile: dates, commands, files, machines."""
    about = profile.about
    files = "; ".join(f"{f['file']} ({f['rows']:,} rows, sha256 {f['sha256'][:12]})" for f in about.get("samples", ()))
    wider = f"; carrying over adds {about['wider']:.0%} to spreads" if about.get("wider") else ""
    base = f"{about['base']}, for what it does not say itself{wider}" if "base" in about else ""
    facts = {
        "Devices": ", ".join(profile.devices), "Date": about.get("date"), "Source": about.get("source"),
        "Rests on": base, "Fitted to": files, "Command": about.get("command"), **about.get("environment", {}),
    }  # fmt: skip
    silent = [] if about.get("environment") else [_NO_ENVIRONMENT]
    return [html.H2("Origin"), _facts(facts), parts.notes(silent)]


def _facts(facts: Mapping[str, Any]) -> "Component":
    """Names and what they are, where that is known."""
    rows = [(html.Dt(str(name)), html.Dd(str(value))) for name, value in facts.items() if value]
    return html.Dl([cell for row in rows for cell in row], className="facts")


def connect(app: Dash, here: Here) -> None:
    """A choice is drawn, and stands in the address."""
    keep_in_address(app, f"{NAME}-query")
    for table in (COEFFICIENTS, MODELS, PARAMETERS):
        tables.connect(app, table)

    @app.callback(
        *outputs(NAME, "drawn.children", "class.data", "class.value", "class.disabled", "query.data"),
        *inputs(NAME, "of.value", "class.value"),
    )
    def show(of: str, cost_class: str | None) -> tuple[Any, ...]:
        kind, _, name = of.partition(" ")
        try:
            profile = here.library.profile(kind, name)
        except UserError as error:
            return parts.alert("This cannot be shown", error.faults), [], None, True, Shown(kind, name).query()
        if kind == SOFTWARE:
            return draw_software(profile), [], None, True, Shown(kind, name).query()
        now = Shown(kind, name, class_of(profile, cost_class or ""))
        drawn = draw_device(profile, now.cost_class, here.library)
        return drawn, parts.groups(classes(profile)), now.cost_class, False, now.query()


PAGE = Page("/calibration", "Calibration", "profiles and software", ABOUT, layout, connect)
