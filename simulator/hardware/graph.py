"""Directed graphs of links, and the shortest route through one. What the vertices mean is decided elsewhere.

A vertex is a name; its last part says what it is (`gpu3`, `numa1`, `nic0`). Data never passes *through* a GPU or
through host memory, so those vertices only begin and end routes.
"""

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..base.rows import Rows

KINDS = ("nvlink", "pcie", "nic", "leaf", "spine", "socket", "host_memory", "hbm", "c2c")
"""`nic` is the cable between NIC and leaf, `leaf` goes up from a switch or across, and `spine` comes down; `socket`
joins CPUs (UPI, xGMI), `c2c` joins a GPU to its CPU's die."""

HOP_S = 1e-9
"""Added to each link's latency when routes are compared: of equally fast routes the one with fewer links wins."""

_ENDPOINT = re.compile(r"(?:.*\.)?(?:gpu|numa)\d+")
_GPU = re.compile(r"(?:.*\.)?gpu\d+")

Route = tuple[int, ...]


class Link(NamedTuple):
    """One direction of a wire; `bytes_per_s` is the vendor's peak for that direction alone."""

    name: str
    kind: str
    bytes_per_s: float
    latency_s: float


class Wire(NamedTuple):
    """A link and the vertices that it joins. Wires with an equal link share it: memory read and write, for example."""

    src: str
    dst: str
    link: Link


def oneway(src: str, dst: str, kind: str, bytes_per_s: float, latency_s: float = 0.0) -> Wire:
    """A wire with its own link from `src` to `dst`."""
    return Wire(src, dst, Link(f"{src}>{dst}", kind, bytes_per_s, latency_s))


def duplex(a: str, b: str, kind: str, bytes_per_s: float, latency_s: float = 0.0) -> list[Wire]:
    """Two independent directions, each with the full `bytes_per_s`."""
    return [oneway(a, b, kind, bytes_per_s, latency_s), oneway(b, a, kind, bytes_per_s, latency_s)]


def half_duplex(a: str, b: str, kind: str, bytes_per_s: float, latency_s: float = 0.0) -> list[Wire]:
    """Two directions that share one link, as reads and writes share a memory bus."""
    link = Link(f"{a}<>{b}", kind, bytes_per_s, latency_s)
    return [Wire(a, b, link), Wire(b, a, link)]


def loop(vertex: str, kind: str, bytes_per_s: float, latency_s: float = 0.0) -> Wire:
    """A link that no route crosses but that belongs to a vertex, such as a GPU's own memory."""
    return Wire(vertex, vertex, Link(f"{vertex}.{kind}", kind, bytes_per_s, latency_s))


def join_links(tables: Sequence[tuple[Link, ...]], before: Sequence[str]) -> Rows[Link]:
    """The links of several graphs as one table; `before` is put before the names of each graph's links."""
    columns = {id(links): _columns(links) for links in {id(links): links for links in tables}.values()}
    joined = {field: np.concatenate([columns[id(links)][field] for links in tables]) for field in Link._fields}
    names = np.repeat(np.array(before, object), [len(links) for links in tables]) + joined["name"]
    return Rows(Link, {**joined, "name": names})


def _columns(links: Sequence[Link]) -> dict[str, NDArray[Any]]:
    names, kinds, rates, latencies = zip(*links, strict=True) if links else ((),) * 4
    texts = np.array(names, object), np.array(kinds, object)
    return dict(zip(Link._fields, (*texts, np.array(rates, float), np.array(latencies, float)), strict=True))


class Graph:
    """Wires as a directed graph; link indices count links in order of first appearance."""

    def __init__(self, wires: Iterable[Wire]):
        self.wires = tuple(wires)
        self.links = tuple(dict.fromkeys(wire.link for wire in self.wires))
        self.vertices = tuple(dict.fromkeys(v for wire in self.wires for v in (wire.src, wire.dst)))
        self.out: dict[str, list[tuple[str, int]]] = {}
        self._found: dict[tuple[str, str], Route | None] = {}
        index = {link: i for i, link in enumerate(self.links)}
        for wire in self.wires:
            self.out.setdefault(wire.src, []).append((wire.dst, index[wire.link]))

    def route(self, src: str, dst: str) -> Route | None:
        """Link indices of the fastest route, or None; between GPUs a pure NVLink route goes before any other."""
        if (src, dst) not in self._found:
            self._found[src, dst] = self._preferred(src, dst)
        return self._found[src, dst]

    def loop_at(self, vertex: str, kind: str) -> int | None:
        """Index of the link of this kind that belongs to the vertex itself."""
        return next((i for to, i in self.out[vertex] if to == vertex and self.links[i].kind == kind), None)

    def _preferred(self, src: str, dst: str) -> Route | None:
        both_gpus = _GPU.fullmatch(src) and _GPU.fullmatch(dst)
        nvlink = self._search(src, dst, frozenset(("nvlink",))) if both_gpus else None
        return self._search(src, dst, frozenset(KINDS)) if nvlink is None else nvlink

    def latencies(self, src: str) -> dict[str, float]:
        """Latency, as routes are compared (with `HOP_S` per link), from one vertex to each that it reaches."""
        return {vertex: cost for vertex, cost, _ in self._reached(src, frozenset(KINDS))}

    def _search(self, src: str, dst: str, kinds: frozenset[str]) -> Route | None:
        return next((path for vertex, _, path in self._reached(src, kinds) if vertex == dst), None)

    def _reached(self, src: str, kinds: frozenset[str]) -> Iterator[tuple[str, float, Route]]:
        """Vertices with latency and route, nearest first: Dijkstra's algorithm over links of the given kinds."""
        queue: list[tuple[float, int, str, Route]] = [(0.0, 0, src, ())]
        done: set[str] = set()
        pushed = 0
        while queue:
            cost, _, vertex, path = heapq.heappop(queue)
            if vertex in done:
                continue
            done.add(vertex)
            yield vertex, cost, path
            if vertex != src and _ENDPOINT.fullmatch(vertex):
                continue
            for to, i in self.out.get(vertex, ()):
                link = self.links[i]
                if to not in done and link.kind in kinds:
                    pushed += 1
                    heapq.heappush(queue, (cost + link.latency_s + HOP_S, pushed, to, (*path, i)))
