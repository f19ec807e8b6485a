"""Figures of a weight update: its time over the size of buckets, what devices hold, seconds by phase."""

from collections.abc import Sequence
from math import log10
from typing import TYPE_CHECKING, NamedTuple

from ...simulator.base.units import format_bytes, format_seconds
from ...simulator.figures.theme import BLUE, NOTE_PX, ORANGE, PALETTE, RED, ROWS, SKY, TEXT, bars, mark_across, style
from ...simulator.predict import Prediction
from ...simulator.systems.weight_update.report import Report
from ...simulator.timeline import peaks
from ..buckets import Curve

if TYPE_CHECKING:
    import plotly.graph_objects as go

CURVE_PX, ROW_PX = 260, 30
REFUSED = "rgba(213,94,0,0.13)"
_MARGIN = 1.6
"""How far the axis goes beyond what was tried, as a factor."""


def bucket_curve(curve: Curve, prediction: Prediction) -> "go.Figure":
    """Update time by bucket size; what was asked is marked, sizes that cannot be are shaded at both ends."""
    import plotly.graph_objects as go

    asked_s = prediction.report.update_time_s  # its bucket as the scenario says it: before anything is quantised
    asked_bytes = prediction.resolved.scenario.update.bucket or prediction.report.bucket_bytes
    known, least, most = curve.known, curve.least_bytes, curve.most_bytes
    hover = [f"{format_bytes(size)}: {format_seconds(s)}" for size, s in known]
    line = go.Scatter(x=[size for size, _ in known], y=[s for _, s in known], mode="lines+markers", name="update time",
                      line_color=BLUE, hovertext=hover, hoverinfo="text")  # fmt: skip
    marker = {"size": 13, "symbol": "diamond", "color": ORANGE, "line": {"width": 1, "color": TEXT}}
    this = f"this bucket, {format_bytes(asked_bytes)}: {format_seconds(asked_s)}"
    asked = go.Scatter(x=[asked_bytes], y=[asked_s], mode="markers", name="this bucket", marker=marker,
                       hovertext=[this], hoverinfo="text")  # fmt: skip
    figure = style(go.Figure([line, asked]), "Update time by bucket size", _subtitle(curve), CURVE_PX, showlegend=False)
    sizes = [*curve.sizes, asked_bytes, *(limit for limit in (least, most) if limit is not None)]
    low, high = min(sizes) / _MARGIN, max(sizes) * _MARGIN
    ticks = [2**power for power in range(10, 50) if low <= 2**power <= high]
    ticks = ticks[:: max(1, len(ticks) // 8)]
    figure.update_xaxes(type="log", title="bucket", ticksuffix="", tickvals=ticks, ticktext=[*map(format_bytes, ticks)],
                        ticklabelstandoff=6, range=[log10(low), log10(high)])  # fmt: skip
    figure.update_yaxes(title="update", ticksuffix="s", rangemode="tozero", exponentformat="SI",
                        automargin="left")  # fmt: skip
    if most is not None:
        _refuse(figure, most, high, "out of memory →", "right")
    if least is not None:
        _refuse(figure, low, least, "← smaller than a tensor", "left")
    return figure


def _refuse(figure: "go.Figure", low: float, high: float, why: str, side: str) -> None:
    """A shade over sizes, with a line where they begin and a note beside it, where nothing is cut off.

    Notes of both sides stand on lines of their own, as they may be near. The axis is logarithmic, and so are places of
    notes on it.
    """
    edge = low if side == "right" else high
    figure.add_shape(type="rect", x0=low, x1=high, y0=0, y1=1, yref="paper", fillcolor=REFUSED, line_width=0,
                     layer="below")  # fmt: skip
    figure.add_shape(type="line", x0=edge, x1=edge, y0=0, y1=1, yref="paper", line={"color": RED, "dash": "dash"})
    figure.add_annotation(x=log10(edge), y=0, yref="paper", text=why, showarrow=False, xanchor=side, yanchor="bottom",
                          yshift=NOTE_PX if side == "right" else 0)  # fmt: skip


def _subtitle(curve: Curve) -> str:
    known, most = curve.known, curve.most_bytes
    trying = "" if curve.done else f"trying {len(curve.sizes)} sizes, {len(curve.update_s)} done; "
    best = ""
    if known:
        size, seconds = min(known, key=lambda point: point[1])
        best = f"best tried: {format_bytes(size)} with {format_seconds(seconds)}; "
    return trying + best + (f"at most {format_bytes(most)} fit" if most is not None else "engines have no buffers")


# What devices hold at their peak during a weight update, by owner, beside what they have: a bar per kind of device.

MOST_BARS = 8


class DeviceKind(NamedTuple):
    """Devices that hold the same at their peak: how many, the first of them, bytes by owner."""

    first: int
    devices: int
    owners: dict[str, float]

    @property
    def bytes(self) -> float:
        """All that one of them holds."""
        return sum(self.owners.values())

    @property
    def label(self) -> str:
        """Which devices, in words."""
        return f"device {self.first}" + (f" and {self.devices - 1} like it" if self.devices > 1 else "")


def kinds_of_device(prediction: Prediction) -> list[DeviceKind]:
    """Kinds of device, the fullest first; weights that stay are on those that receive."""
    resolved = prediction.resolved
    engine, weights = resolved.engine_bytes, resolved.resident_bytes
    stays = {"resident weights": float(weights), "engine beside its weights": float(engine - weights)}
    engines = set(resolved.plan.receivers) if resolved.from_trainers else set(range(resolved.cluster.n_gpus))
    alike: dict[tuple[tuple[str, float], ...], list[int]] = {}
    for peak in peaks(prediction.timeline):
        static = tuple((name, size) for name, size in stays.items() if size and peak.rank in engines)
        alike.setdefault((*static, *peak.held), []).append(peak.rank)
    kinds = [DeviceKind(ranks[0], len(ranks), dict(owners)) for owners, ranks in alike.items()]
    return sorted(kinds, key=lambda kind: -kind.bytes)


def device_memory(kinds: Sequence[DeviceKind], memory_bytes: float) -> "go.Figure":
    """A bar per kind of device, stacked by owner, and a line where its memory ends; of many kinds the fullest."""
    import plotly.graph_objects as go

    shown = kinds[:MOST_BARS]
    labels, figure = [kind.label for kind in shown], go.Figure()
    for i, owner in enumerate(dict.fromkeys(name for kind in shown for name in kind.owners)):
        sizes = [kind.owners.get(owner, 0.0) for kind in shown]
        hover = [f"<b>{owner}</b><br>{of}<br>{format_bytes(size)}" for of, size in zip(labels, sizes, strict=True)]
        figure.add_trace(bars(owner, [size / 2**30 for size in sizes], labels, PALETTE[i % len(PALETTE)], hover))
    fullest = max((kind.bytes for kind in kinds), default=0.0)
    more = f"; the fullest {MOST_BARS} of {len(kinds)} kinds of device" if len(kinds) > MOST_BARS else ""
    subtitle = f"at most {format_bytes(fullest)} of {format_bytes(memory_bytes)}, {fullest / memory_bytes:.0%}{more}"
    style(figure, "Memory per device at its peak", subtitle, ROW_PX * max(len(shown), 2), barmode="stack")
    figure.update_xaxes(title="GiB", ticksuffix="", range=[0, max(memory_bytes, fullest) / 2**30 * 1.04])
    figure.update_yaxes(**ROWS, autorange="reversed", automargin="left")
    mark_across(figure, memory_bytes / 2**30, format_bytes(memory_bytes))
    return figure.update_layout(legend_traceorder="normal")


def phases(report: Report) -> "go.Figure":
    """Two bars for each phase that takes time: how long anything of it runs, and what of that others wait for.

    The latter, on the critical path, sum to the whole.
    """
    import plotly.graph_objects as go

    names = [name for name, busy_s in report.busy_s.items() if busy_s > 0 or report.exposed.get(name, 0) > 0]
    figure = go.Figure()
    for name, seconds_of, colour in (
        ("on the critical path", report.exposed, BLUE), ("busy anywhere", report.busy_s, SKY)
    ):  # fmt: skip
        seconds = [seconds_of.get(phase, 0.0) for phase in names]
        hover = [f"<b>{phase}</b><br>{name}: {format_seconds(s)}" for phase, s in zip(names, seconds, strict=True)]
        figure.add_trace(bars(name, seconds, names, colour, hover))
    subtitle = f"{format_seconds(report.makespan_s)} in all, bound by {report.bound_by}"
    style(figure, "Seconds by phase", subtitle, ROW_PX * max(len(names), 2), barmode="group", bargap=0.25)
    figure.update_xaxes(title="seconds", rangemode="tozero")
    return figure.update_yaxes(**ROWS, autorange="reversed", automargin="left")
