"""The time of a weight update over the size of its buckets, with the sizes that are refused at both ends."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...simulator.base.units import format_bytes, format_seconds
from ...simulator.figures.theme import GRID, PALETTE, styled
from ...simulator.predict import Prediction
from ...simulator.systems.weight_update.report import Report
from ...simulator.timeline import peaks
from ..buckets import Curve

if TYPE_CHECKING:
    import plotly.graph_objects as go

HEIGHT_PX = 260
REFUSED, EDGE = "rgba(213,94,0,0.13)", "#D55E00"
_MARGIN = 1.6
"""How far the axis goes beyond what was tried, as a factor."""


def bucket_curve(curve: Curve, asked_bytes: int, asked_s: float) -> "go.Figure":
    """Update time by bucket size; what was asked is marked, sizes that cannot be are shaded."""
    import plotly.graph_objects as go

    figure = go.Figure([_line(curve), _asked(asked_bytes, asked_s)])
    low, high = _ends(curve, asked_bytes)
    styled(figure, "Update time by bucket size", _subtitle(curve), HEIGHT_PX, showlegend=False)
    ticks = [2**power for power in range(10, 50) if low <= 2**power <= high]
    ticks = ticks[:: max(1, len(ticks) // 8)]
    figure.update_xaxes(type="log", title="bucket", ticksuffix="", tickvals=ticks, ticktext=[*map(format_bytes, ticks)])
    figure.update_layout(xaxis_range=_logs(low, high))
    figure.update_yaxes(title="update", ticksuffix="s", rangemode="tozero", gridcolor=GRID, zeroline=False,
                        exponentformat="SI", automargin="left")  # fmt: skip
    if curve.sizes.most_bytes is not None:
        _refuse(figure, curve.sizes.most_bytes, high, "out of memory →", "right")
    if curve.sizes.least_bytes is not None:
        _refuse(figure, low, curve.sizes.least_bytes, "← smaller than a tensor", "left")
    return figure


def _ends(curve: Curve, asked_bytes: int) -> tuple[float, float]:
    limits = (curve.sizes.least_bytes, curve.sizes.most_bytes)
    sizes = [*curve.sizes.tried, asked_bytes, *(limit for limit in limits if limit is not None)]
    return min(sizes) / _MARGIN, max(sizes) * _MARGIN


def _logs(low: float, high: float) -> list[float]:
    from math import log10

    return [log10(low), log10(high)]


def _line(curve: Curve) -> "go.Scatter":
    import plotly.graph_objects as go

    sizes, seconds = [size for size, _ in curve.known], [s for _, s in curve.known]
    said = [f"{format_bytes(size)}: {format_seconds(s)}" for size, s in curve.known]
    return go.Scatter(x=sizes, y=seconds, mode="lines+markers", name="update time", line_color=PALETTE[0],
                      hovertext=said, hoverinfo="text")  # fmt: skip


def _asked(size: int, seconds: float) -> "go.Scatter":
    import plotly.graph_objects as go

    marker = {"size": 13, "symbol": "diamond", "color": PALETTE[1], "line": {"width": 1, "color": "#24292f"}}
    said = f"this bucket, {format_bytes(size)}: {format_seconds(seconds)}"
    return go.Scatter(x=[size], y=[seconds], mode="markers", name="this bucket", marker=marker, hovertext=[said],
                      hoverinfo="text")  # fmt: skip


def _refuse(figure: "go.Figure", low: float, high: float, why: str, side: str) -> None:
    """A shade over sizes, with a line where they begin and a note beside it, where nothing is cut off.

    The axis is logarithmic, and so are places of notes on it.
    """
    from math import log10

    edge = low if side == "right" else high
    figure.add_shape(type="rect", x0=low, x1=high, y0=0, y1=1, yref="paper", fillcolor=REFUSED, line_width=0,
                     layer="below")  # fmt: skip
    figure.add_shape(type="line", x0=edge, x1=edge, y0=0, y1=1, yref="paper", line={"color": EDGE, "dash": "dash"})
    figure.add_annotation(x=log10(edge), y=0, yref="paper", text=why, showarrow=False, xanchor=side, yanchor="bottom")


def _subtitle(curve: Curve) -> str:
    known, most = curve.known, curve.sizes.most_bytes
    trying = "" if curve.done else f"trying {len(curve.sizes.tried)} sizes, {len(curve.update_s)} done; "
    best = ""
    if known:
        size, seconds = min(known, key=lambda point: point[1])
        best = f"best tried: {format_bytes(size)} with {format_seconds(seconds)}; "
    return trying + best + (f"at most {format_bytes(most)} fit" if most is not None else "engines have no buffers")


# What devices hold at their peak during a weight update, by owner, beside what they have: a bar per kind of device.

ROW_PX, MOST_BARS = 34, 8


class Held(NamedTuple):
    """Devices that hold the same at their peak: how many, the first of them, (owner, bytes)."""

    first: int
    devices: int
    owners: tuple[tuple[str, float], ...]

    @property
    def bytes(self) -> float:
        """All that one of them holds."""
        return sum(size for _, size in self.owners)

    @property
    def label(self) -> str:
        """Which devices, in words."""
        return f"device {self.first}" + (f" and {self.devices - 1} like it" if self.devices > 1 else "")


def held(prediction: Prediction) -> list[Held]:
    """Kinds of device, the fullest first; weights that stay are on those that receive."""
    resolved = prediction.resolved
    engine, weights = resolved.engine_bytes, resolved.resident_bytes
    stays = {"resident weights": float(weights), "engine beside its weights": float(engine - weights)}
    engines = set(resolved.plan.receivers) if resolved.from_trainers else set(range(resolved.cluster.n_gpus))
    alike: dict[tuple[tuple[str, float], ...], list[int]] = {}
    for peak in peaks(prediction.timeline):
        static = tuple((name, size) for name, size in stays.items() if size and peak.rank in engines)
        alike.setdefault((*static, *peak.held), []).append(peak.rank)
    kinds = [Held(ranks[0], len(ranks), owners) for owners, ranks in alike.items()]
    return sorted(kinds, key=lambda kind: -kind.bytes)


def device_memory(kinds: Sequence[Held], memory_bytes: float) -> "go.Figure":
    """A bar per kind of device, stacked by owner, and a line where its memory ends; of many kinds the fullest."""
    import plotly.graph_objects as go

    shown = kinds[:MOST_BARS]
    owners = list(dict.fromkeys(name for kind in shown for name, _ in kind.owners))
    figure = go.Figure([_owned(name, i, shown) for i, name in enumerate(owners)])
    fullest = max((kind.bytes for kind in kinds), default=0.0)
    more = f"; the fullest {MOST_BARS} of {len(kinds)} kinds of device" if len(kinds) > MOST_BARS else ""
    subtitle = f"at most {format_bytes(fullest)} of {format_bytes(memory_bytes)}, {fullest / memory_bytes:.0%}{more}"
    styled(figure, "Memory per device at its peak", subtitle, ROW_PX * max(len(shown), 2), barmode="stack")
    figure.update_xaxes(title="GiB", ticksuffix="", range=[0, max(memory_bytes, fullest) / 2**30 * 1.04])
    figure.update_yaxes(autorange="reversed", showgrid=False, ticklabelstandoff=6, fixedrange=True, automargin="left")
    figure.add_vline(memory_bytes / 2**30, line={"color": "#D55E00", "dash": "dash"})
    figure.add_annotation(x=memory_bytes / 2**30, y=1, yref="paper", text=format_bytes(memory_bytes), showarrow=False,
                          xanchor="right", yanchor="bottom")  # fmt: skip
    figure.update_layout(legend_traceorder="normal")
    return figure


def _owned(owner: str, number: int, kinds: Sequence[Held]) -> "go.Bar":
    import plotly.graph_objects as go

    sizes = [sum(size for name, size in kind.owners if name == owner) for kind in kinds]
    labels = [kind.label for kind in kinds]
    return go.Bar(
        orientation="h", name=owner, x=[size / 2**30 for size in sizes], y=labels,
        marker={"color": PALETTE[number % len(PALETTE)], "line": {"width": 0}}, hoverinfo="text",
        hovertext=[f"<b>{owner}</b><br>{label}<br>{format_bytes(size)}"
                   for label, size in zip(labels, sizes, strict=True)],
    )  # fmt: skip


# Seconds of a weight update by phase: how long anything of it runs, and what of that others wait for.

ROW_PX = 30


def phases(report: Report) -> "go.Figure":
    """Two bars for each phase that takes time; those on the critical path sum to the whole."""
    import plotly.graph_objects as go

    names = [name for name, busy_s in report.busy_s.items() if busy_s > 0 or report.exposed.get(name, 0) > 0]
    exposed = [report.exposed.get(name, 0.0) for name in names]
    figure = go.Figure(
        [
            _bars("on the critical path", names, exposed, PALETTE[0]),
            _bars("busy anywhere", names, [report.busy_s[name] for name in names], PALETTE[4]),
        ]
    )
    subtitle = f"{format_seconds(report.makespan_s)} in all, bound by {report.bound_by}"
    styled(figure, "Seconds by phase", subtitle, ROW_PX * max(len(names), 2), barmode="group", bargap=0.25)
    figure.update_xaxes(title="seconds", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False, ticklabelstandoff=6, fixedrange=True, automargin="left")
    return figure


def _bars(name: str, phases: list[str], seconds: list[float], colour: str) -> "go.Bar":
    import plotly.graph_objects as go

    return go.Bar(
        orientation="h", name=name, x=seconds, y=phases, marker={"color": colour, "line": {"width": 0}},
        hovertext=[f"<b>{one}</b><br>{name}: {format_seconds(s)}" for one, s in zip(phases, seconds, strict=True)],
        hoverinfo="text",
    )  # fmt: skip
