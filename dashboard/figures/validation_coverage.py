"""How often 90 % intervals held what was measured, by family of rows."""

from html import escape
from typing import TYPE_CHECKING

from ...simulator.figures.profile import GREY
from ...simulator.figures.theme import GRID, PALETTE, styled

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

ROW_PX = 24
AIM = 0.9
SURE, WRONG = PALETTE[0], PALETTE[5]


def coverage_bars(table: "pd.DataFrame") -> "go.Figure":
    """A bar per part, with a line at 90 %; parts whose count cannot be chance are in another colour.

    The table has `name`, `held`, `held_of`, `verdict`; parts of which no interval is known are left out.
    """
    import plotly.graph_objects as go

    known = table[table["held_of"] > 0]
    names = [escape(str(name), quote=False) for name in known["name"]]
    counts = [f"{held:,} of {of:,}" for held, of in zip(known["held"], known["held_of"], strict=True)]
    told = [f"{count}, {found}" if found else count for count, found in zip(counts, known["verdict"], strict=True)]
    colour = [WRONG if found else SURE for found in known["verdict"]]
    bars = go.Bar(
        orientation="h", x=(known["held"] / known["held_of"]).tolist(), y=names, text=told, width=0.7,
        textposition="auto", insidetextanchor="start", marker_color=colour,
        hovertemplate="%{y}: %{x:.1%}, %{text}<extra></extra>",
    )  # fmt: skip
    figure = go.Figure(bars)
    height_px = ROW_PX * (len(known) + 1)
    styled(figure, "", "", height_px, showlegend=False)
    figure.add_vline(AIM, line={"color": GREY, "width": 1.5, "dash": "dash"})
    figure.update_xaxes(title="rows whose 90 % interval holds the measurement", range=[0, 1.02], tickformat=".0%",
                        ticksuffix="", gridcolor=GRID)  # fmt: skip
    figure.update_yaxes(autorange="reversed", automargin="left", showgrid=False, zeroline=False)
    figure.update_layout(margin={"t": 12}, height=height_px + 70)
    return figure
