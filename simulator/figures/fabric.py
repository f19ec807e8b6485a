"""The network of a cluster as a drawing: nodes below, switches above them by level, a line for the cables of two.

Cables are told apart by their rate, or coloured by the load of a prediction. A torus or mesh is a grid, the routers of
a dragonfly are a ring. What has more than a few hundred vertices is drawn by level: one vertex for each, with how many
there are.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import cos, pi, sin
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..base.arrays import Floats
from ..base.units import format_rate
from ..hardware import Cluster
from ..hardware.fabrics import several
from .theme import BLUE, DARK_GREY, GREEN, GREY, ORANGE, PEACH, PINK, RED, SKY, WINE, plain, style

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST = 300
"""Vertices that are drawn one by one."""

HEIGHT_PX = 420
_LEVELS = ("node", "leaf", "router", "agg", "spine", "core", "border")
_COLOURS = dict(zip(_LEVELS, (GREY, BLUE, BLUE, SKY, ORANGE, GREEN, PINK), strict=True))

_LOADS = ((0.0, "idle", GREY, 1.0), (0.1, "under 10 % busy", SKY, 1.5), (0.3, "10 to 30 %", PEACH, 2.5),
          (0.6, "30 to 60 %", ORANGE, 3.5), (np.inf, "over 60 %", WINE, 4.5))  # fmt: skip
"""Up to which load a cable is drawn how: what is said of it, colour, width in pixels."""
_MOST_RATES = 4
_WIDEST_PX = 4.0

Place = tuple[float, float]
Pair = tuple[str, str]


class Cable(NamedTuple):
    """What two vertices are cabled with: bytes/s one way, and the largest load of its links."""

    bytes_per_s: float
    load: float = 0.0

    def merge(self, other: "Cable") -> "Cable":
        """This cable and another between the same ends, as one."""
        return Cable(self.bytes_per_s + other.bytes_per_s, max(self.load, other.load))


Cables = Mapping[Pair, Cable]


def draw_fabric(machine: Cluster, title: str = "Fabric", load: Floats | None = None) -> "go.Figure":
    """The nodes, switches and cables of a cluster; links that are degraded or down are red.

    `load` is the share of the time in which each link is busy, shape `[links]` (`insight.link_load`); a node has the
    colour of the busiest link inside.
    """
    import plotly.graph_objects as go

    vertices = _vertices(machine)
    by_level = len(vertices) > MOST
    cables, slow = _cables(machine, np.zeros(len(machine.links)) if load is None else load), _slow(machine)
    if by_level:
        cables = _between_levels(cables)
        places = _layers({level: [level] for level in _levels(vertices)})
    else:
        places = _places(machine, vertices)
    groups = _by_rate(cables) if load is None else _by_load(cables)
    lines = [_lines(some, places, colour, name, width) for name, some, colour, width in groups]
    if slow and not by_level:
        lines.append(_lines(slow, places, RED, "degraded or down", 2.0))
    lines.append(_middles(cables, places, load is not None))
    inside = {} if load is None else _inside(machine, load)
    dots = [_dots(level, names, places, by_level, inside) for level, names in _levels(vertices).items()]
    figure = go.Figure([*lines, *dots])
    counts = ", ".join(f"{len(names):,} {several(level, len(names))}" for level, names in _levels(vertices).items())
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


def _cables(machine: Cluster, load: Floats) -> Cables:
    """What nodes and switches are cabled to, each pair once."""
    found: dict[Pair, Cable] = defaultdict(lambda: Cable(0.0))
    for node, leaves in enumerate(machine.network.leaves):
        for nic, leaf in zip(machine.nics_of(node), leaves, strict=True):
            out, into = machine.nic_tx(nic), machine.nic_rx(nic)
            own = Cable(float(machine.capacity[out]), float(max(load[out], load[into])))
            found[f"node{node}", leaf] = found[f"node{node}", leaf].merge(own)
    for hop, busy in zip(machine.network.hops, load[machine.node_links :].tolist(), strict=True):
        pair = (hop.src, hop.dst) if _in_order(hop.src) < _in_order(hop.dst) else (hop.dst, hop.src)
        found[pair] = Cable(max(found[pair].bytes_per_s, hop.bytes_per_s), max(found[pair].load, busy))
    return found


def _slow(machine: Cluster) -> list[Pair]:
    """The two ends of each degraded link."""
    ends = [re.split("<?>", link) for link, _ in machine.fabric.degraded]
    return [(a, b) for a, b in ends]


def _between_levels(cables: Cables) -> Cables:
    """What each two levels are cabled with."""
    found: dict[Pair, Cable] = defaultdict(lambda: Cable(0.0))
    for (a, b), cable in cables.items():
        found[_level(a), _level(b)] = found[_level(a), _level(b)].merge(cable)
    return found


def _by_rate(cables: Cables) -> Iterator[tuple[str, list[Pair], str, float]]:
    """Groups of cables with equal rates, the fastest widest; all together where there are many rates."""
    by_text = {format_rate(cable.bytes_per_s): cable.bytes_per_s for cable in cables.values()}
    rates = sorted(by_text.items(), key=itemgetter(1))
    if len(rates) > _MOST_RATES:
        yield f"cables, {rates[0][0]} to {rates[-1][0]}", list(cables), GREY, 1.0
        return
    for i, (text, _) in enumerate(rates):
        some = [pair for pair, cable in cables.items() if format_rate(cable.bytes_per_s) == text]
        yield text, some, GREY, 1.0 + (_WIDEST_PX - 1.0) * i / max(len(rates) - 1, 1) * (len(rates) > 1)


def _by_load(cables: Cables) -> Iterator[tuple[str, list[Pair], str, float]]:
    """Groups of cables by how busy they are, the busiest last, and so on top."""
    least = -np.inf
    for most, name, colour, width in _LOADS:
        some = [pair for pair, cable in cables.items() if least < cable.load <= most]
        if some:
            yield name, some, colour, width
        least = most


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


def _lines(pairs: Iterable[Pair], places: Mapping[str, Place], colour: str, name: str, width_px: float) -> "go.Scatter":
    import plotly.graph_objects as go

    x: list[float | None] = []
    y: list[float | None] = []
    for a, b in pairs:
        (xa, ya), (xb, yb) = places[a], places[b]
        x += [xa, xb, None]
        y += [ya, yb, None]
    return go.Scatter(x=x, y=y, mode="lines", line={"color": colour, "width": width_px}, name=name,
                      hoverinfo="skip")  # fmt: skip


def _middles(cables: Cables, places: Mapping[str, Place], loaded: bool) -> "go.Scatter":
    """Dots that cannot be seen in the middle of cables: under the mouse each says what it is."""
    import plotly.graph_objects as go

    x = [(places[a][0] + places[b][0]) / 2 for a, b in cables]
    y = [(places[a][1] + places[b][1]) / 2 for a, b in cables]
    text = [
        plain(f"{a} to {b}: {format_rate(cable.bytes_per_s)}") + (f", {cable.load:.1%} busy" if loaded else "")
        for (a, b), cable in cables.items()
    ]
    marker = {"size": 10, "opacity": 0}
    return go.Scatter(x=x, y=y, mode="markers", marker=marker, hovertext=text, hoverinfo="text", showlegend=False)


class _Inside(NamedTuple):
    """The busiest link inside a node, and its load."""

    link: str
    load: float

    @property
    def colour(self) -> str:
        """That of cables as busy."""
        return next(colour for most, _, colour, _ in _LOADS if self.load <= most)


def _inside(machine: Cluster, load: Floats) -> dict[str, _Inside]:
    """By the name of the node."""
    found = {}
    ends = np.searchsorted(machine.node_of_link[: machine.node_links], np.arange(machine.n_nodes + 1)).tolist()
    for node, (first, end) in enumerate(pairwise(ends)):
        busiest = first + int(load[first:end].argmax())
        found[f"node{node}"] = _Inside(machine.links[busiest].name, float(load[busiest]))
    return found


def _dots(
    level: str, names: Sequence[str], places: Mapping[str, Place], by_level: bool, inside: Mapping[str, _Inside]
) -> "go.Scatter":
    import plotly.graph_objects as go

    shown = [level] if by_level else names
    busy = {name: f": {one.load:.1%} busy inside, {one.link}" for name, one in inside.items()}
    text = (
        [f"{len(names):,} {several(level, len(names))}"]
        if by_level
        else [plain(name + busy.get(name, "")) for name in names]
    )
    spots = [places[name] for name in shown]
    colour = _COLOURS.get(level, DARK_GREY)
    colours = [inside[name].colour if name in inside else colour for name in shown]
    marker = {"color": colours if inside else colour, "size": 18 if by_level else 12 if level == "node" else 8}
    mode = "markers+text" if by_level else "markers"
    x, y = [x for x, _ in spots], [y for _, y in spots]
    return go.Scatter(x=x, y=y, mode=mode, marker=marker, name=several(level), text=text, hovertext=text,
                      hoverinfo="text", textposition="middle right")  # fmt: skip
