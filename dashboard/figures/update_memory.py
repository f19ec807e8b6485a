"""What devices hold at their peak during a weight update, by owner, beside what they have: a bar per kind of device."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...simulator.base.units import format_bytes
from ...simulator.figures.theme import PALETTE, styled
from ...simulator.predict import Prediction
from ...simulator.timeline import peaks

if TYPE_CHECKING:
    import plotly.graph_objects as go

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
    figure = go.Figure([_bars(name, i, shown) for i, name in enumerate(owners)])
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


def _bars(owner: str, number: int, kinds: Sequence[Held]) -> "go.Bar":
    import plotly.graph_objects as go

    sizes = [sum(size for name, size in kind.owners if name == owner) for kind in kinds]
    labels = [kind.label for kind in kinds]
    return go.Bar(
        orientation="h", name=owner, x=[size / 2**30 for size in sizes], y=labels,
        marker={"color": PALETTE[number % len(PALETTE)], "line": {"width": 0}}, hoverinfo="text",
        hovertext=[f"<b>{owner}</b><br>{label}<br>{format_bytes(size)}"
                   for label, size in zip(labels, sizes, strict=True)],
    )  # fmt: skip
