"""The network of a cluster as a drawing: nodes below, switches above them by level, a line for the cables of two.

A torus or mesh is a grid, the routers of a dragonfly are a ring. What has more than a few hundred vertices is drawn by
level: one vertex for each, with how many there are.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from math import cos, pi, sin
from typing import TYPE_CHECKING

from ..hardware import Cluster
from ..hardware.fabrics import several
from .theme import BLUE, DARK_GREY, GREEN, GREY, LIGHT_GREY, ORANGE, PINK, RED, SKY, plain, style

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST = 300
"""Vertices that are drawn one by one."""

HEIGHT_PX = 420
_LEVELS = ("node", "leaf", "router", "agg", "spine", "core", "border")
_COLOURS = dict(zip(_LEVELS, (GREY, BLUE, BLUE, SKY, ORANGE, GREEN, PINK), strict=True))

Place = tuple[float, float]
Pair = tuple[str, str]
Cables = Mapping[Pair, float]
"""Pairs of vertices with the bytes/s that their cables carry, one way."""


def draw_fabric(machine: Cluster, title: str = "Fabric") -> "go.Figure":
    """The nodes, switches and cables of a cluster; links that are degraded or down are red."""
    import plotly.graph_objects as go

    vertices = _vertices(machine)
    by_level = len(vertices) > MOST
    cables, slow = _cables(machine), _slow(machine)
    if by_level:
        cables = _rates_between_levels(cables)
        places = _layers({level: [level] for level in _levels(vertices)})
    else:
        places = _places(machine, vertices)
    lines = [_lines(cables, places, LIGHT_GREY, "cables")]
    if slow and not by_level:
        lines.append(_lines(dict.fromkeys(slow, 0.0), places, RED, "degraded or down"))
    dots = [_dots(level, names, places, by_level) for level, names in _levels(vertices).items()]
    figure = go.Figure([*lines, *dots])
    counts = ", ".join(f"{len(names):,} {several(level)}" for level, names in _levels(vertices).items())
    style(figure, title, plain(f"{machine.fabric.kind}: {counts}"), HEIGHT_PX, showlegend=True)
    figure.update_xaxes(visible=False, title=None)
    return figure.update_yaxes(visible=False)


def _vertices(machine: Cluster) -> list[str]:
    """Nodes and switches by name."""
    switches = [leaf for leaves in machine.network.leaves for leaf in leaves]
    switches += [name for hop in machine.network.hops for name in (hop.src, hop.dst)]
    return [*(f"node{node}" for node in range(machine.n_nodes)), *dict.fromkeys(switches)]


def _level(name: str) -> str:
    """The level of a vertex: its name without plane, site and number."""
    return name.rpartition("-")[2].rstrip("0123456789")


def _levels(vertices: Sequence[str]) -> dict[str, list[str]]:
    """The vertices of each level, the lowest first."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(vertices, key=_in_order):
        found[_level(name)].append(name)
    return {level: found[level] for level in _LEVELS if level in found}


def _in_order(name: str) -> tuple[int | str, ...]:
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name))


def _cables(machine: Cluster) -> Cables:
    """What nodes and switches are cabled to, each pair once."""
    found: dict[Pair, float] = defaultdict(float)
    for node, leaves in enumerate(machine.network.leaves):
        for nic, leaf in zip(machine.nics_of(node), leaves, strict=True):
            found[f"node{node}", leaf] += machine.capacity[machine.nic_tx(nic)]
    for hop in machine.network.hops:
        pair = (hop.src, hop.dst) if _in_order(hop.src) < _in_order(hop.dst) else (hop.dst, hop.src)
        found[pair] = max(found[pair], hop.bytes_per_s)
    return found


def _slow(machine: Cluster) -> list[Pair]:
    """The two ends of each degraded link."""
    ends = [re.split("<?>", link) for link, _ in machine.fabric.degraded]
    return [(a, b) for a, b in ends]


def _rates_between_levels(cables: Cables) -> Cables:
    """What each two levels are cabled with."""
    found: dict[Pair, float] = defaultdict(float)
    for (a, b), rate in cables.items():
        found[_level(a), _level(b)] += rate
    return found


def _places(machine: Cluster, vertices: Sequence[str]) -> dict[str, Place]:
    """Where each vertex is drawn."""
    levels = _levels(vertices)
    if machine.fabric.sizes and machine.n_nodes > 1:
        return _grid(machine, vertices)
    if machine.fabric.kind == "dragonfly" and "router" in levels:
        inner, outer = _ring(levels["router"], 0.75), _ring(levels["node"], 1.0)
        others = {name: (0.05 * i, 0.0) for i, name in enumerate(levels.get("border", ()))}
        return {**inner, **outer, **others}
    return _layers(levels)


def _layers(levels: Mapping[str, Sequence[str]]) -> dict[str, Place]:
    return {
        name: ((i + 0.5) / len(names), float(height))
        for height, names in enumerate(levels.values())
        for i, name in enumerate(names)
    }


def _ring(names: Sequence[str], radius: float) -> dict[str, Place]:
    turns = [2 * pi * i / len(names) for i in range(len(names))]
    return {name: (radius * cos(turn), radius * sin(turn)) for name, turn in zip(names, turns, strict=True)}


def _grid(machine: Cluster, vertices: Sequence[str]) -> dict[str, Place]:
    """x to the right, y up, further dimensions a little to both; nodes on their routers, sites beside each other."""
    sizes = machine.fabric.sizes
    spots = [place[::-1] for place in product(*map(range, reversed(sizes)))]
    found = {}
    for name in vertices:
        number, site = int(re.findall(r"\d+$", name)[0]) if name[-1].isdecimal() else 0, re.match(r"site(\d+)-", name)
        beside = int(site[1]) if site else number // len(spots)
        x, y, *deep = (*spots[number % len(spots)], 0, 0)[: max(len(sizes), 2)]
        far = sum(0.35 * (k + 1) * z for k, z in enumerate(deep))
        found[name] = (x + far + beside * (sizes[0] + 2), -1.0 if name.endswith("border") else y + far)
    return found


def _lines(cables: Cables, places: Mapping[str, Place], colour: str, name: str) -> "go.Scatter":
    import plotly.graph_objects as go

    x: list[float | None] = []
    y: list[float | None] = []
    for a, b in cables:
        (xa, ya), (xb, yb) = places[a], places[b]
        x += [xa, xb, None]
        y += [ya, yb, None]
    return go.Scatter(x=x, y=y, mode="lines", line={"color": colour, "width": 1}, name=name, hoverinfo="skip")


def _dots(level: str, names: Sequence[str], places: Mapping[str, Place], by_level: bool) -> "go.Scatter":
    import plotly.graph_objects as go

    shown = [level] if by_level else names
    text = [f"{len(names):,} {several(level)}"] if by_level else [plain(name) for name in names]
    spots = [places[name] for name in shown]
    marker = {"color": _COLOURS.get(level, DARK_GREY), "size": 18 if by_level else 8}
    mode = "markers+text" if by_level else "markers"
    x, y = [x for x, _ in spots], [y for _, y in spots]
    return go.Scatter(x=x, y=y, mode=mode, marker=marker, name=several(level), text=text, hovertext=text,
                      hoverinfo="text", textposition="middle right")  # fmt: skip
