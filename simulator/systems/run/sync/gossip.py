"""Decentralised SGD: workers average their parameters with their neighbours', and nobody waits for all.

Lian et al., arXiv 1705.09056, algorithm 1. A step of a worker takes compute, then `degree * S / B` of its own link: no
term grows with the number of workers. A delay travels one hop per step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from ....base.arrays import Floats, Ints
from ...tables import Table
from ..history import MOST_SPANS, History, Recorder
from ..spread import draw_each
from ..team import Team
from .compression import Message

_GRAPH, _STEPS = 1, 2  # streams of random numbers
_BLOCK = 2**16  # times of steps of workers that are in memory at once
_SWITCHES = 10  # tries per edge, after which little is left of the graph before


class Gossip(Table):
    """Who averages with whom."""

    topology: Literal["ring", "torus", "random"] = Field(
        "ring", description="who are neighbours: on a ring, on a square torus, or in a random graph"
    )
    degree: Annotated[int, Field(ge=3)] | None = Field(None, description="random: neighbours of each worker")
    overlap: bool = Field(
        False, description="whether messages travel beside the next step, which then averages without them"
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "Gossip":
        if (self.degree is not None) != (self.topology == "random"):
            raise ValueError("degree goes with topology = 'random': a ring has 2 neighbours, a torus 4")
        return self


@dataclass(frozen=True)
class Graph:
    """A connected graph in which all have equally many neighbours: `near[i]` are those of worker i."""

    near: Ints

    @property
    def degree(self) -> int:
        """Neighbours of each worker."""
        return self.near.shape[1]


def neighbours(keys: Gossip, workers: int, rng: np.random.Generator) -> Graph:
    """The neighbours of each worker.

    Raises:
        ValueError: this many workers have no such graph; the message says which have.
    """
    if workers < 2:
        raise ValueError(f"gossip needs at least 2 workers (given: {workers})")
    if keys.topology == "random":
        return _random(workers, keys.degree or 0, rng)
    return _torus(1, workers) if keys.topology == "ring" else _torus(_rows(workers), workers)


def _rows(workers: int) -> int:
    """The rows of the torus that is closest to a square."""
    rows = max(rows for rows in range(1, isqrt(workers) + 1) if workers % rows == 0)
    if rows == 1:
        raise ValueError(f"a torus needs a product of two numbers above 1 as workers (given: {workers})")
    return rows


def _torus(rows: int, workers: int) -> Graph:
    """A torus, or with one row a ring. Where both ways round lead to the same worker, it counts once."""
    columns = workers // rows
    row, column = np.divmod(np.arange(workers), columns)
    along = [row * columns + (column + by) % columns for by in _both_ways(columns)]
    across = [(row + by) % rows * columns + column for by in _both_ways(rows)]
    return Graph(np.column_stack(along + across))


def _both_ways(length: int) -> set[int]:
    return {1, length - 1} if length > 1 else set()


def _random(workers: int, degree: int, rng: np.random.Generator) -> Graph:
    if degree >= workers or workers * degree % 2:
        raise ValueError(
            "a random graph needs a degree below the number of workers, and one of the two even "
            f"(given: degree {degree}, {workers} workers)"
        )
    while True:
        near = _switch(workers, degree, rng)
        if _connected(near):
            return Graph(np.array([sorted(others) for others in near]))


def _connected(near: list[set[int]]) -> bool:
    """Whether all hear from worker 0 in the end."""
    heard, last = {0}, {0}
    while last:
        last = {j for i in last for j in near[i]} - heard
        heard |= last
    return len(heard) == len(near)


def _switch(workers: int, degree: int, rng: np.random.Generator) -> list[set[int]]:
    """A random graph: where each knows those next to it in a circle, pairs of edges switch their ends many times.

    Cooper, Dyer and Greenhill, Combinatorics, Probability and Computing 2007: all regular graphs become equally likely.
    """
    hops = {by for hop in range(1, degree // 2 + 1) for by in (hop, -hop)} | ({workers // 2} if degree % 2 else set())
    near = [{(i + hop) % workers for hop in hops} for i in range(workers)]
    edges = [(i, j) for i in range(workers) for j in sorted(near[i]) if i < j]
    for one, other, turn in rng.integers(len(edges), size=(_SWITCHES * len(edges), 3)).tolist():
        (a, b), (c, d) = edges[one], edges[other][:: 1 if turn % 2 else -1]
        if a != d and b != c and d not in near[a] and b not in near[c]:
            edges[one], edges[other] = (a, d), (c, b)
            for i, old, new in ((a, b, d), (b, a, c), (c, d, b), (d, c, a)):
                near[i].remove(old)
                near[i].add(new)
    return near


@dataclass(frozen=True)
class Moments:
    """When workers began a step, ended its compute, and their messages arrived: [step, worker], in seconds.

    The first two rows are the two steps before.
    """

    begin: Floats
    end: Floats
    arrive: Floats

    @staticmethod
    def start(workers: int) -> "Moments":
        """Before the first step."""
        zeros = np.zeros((2, workers))
        return Moments(zeros, zeros, zeros)


def advance(graph: Graph, before: Moments, compute_s: Floats, exchange_s: float, overlap: bool) -> Moments:
    """More steps, of `compute_s` [step, worker], each followed by messages of `exchange_s` on the worker's link.

    Step k of worker i begins when its neighbours' messages of step k-1 have come (`overlap`: of k-2), and its own have
    left: `t_i(k) = max(t_j(k-1) for j near i, and i) + compute + exchange`.
    """
    steps, workers = compute_s.shape
    heard = np.vstack((np.arange(workers), graph.near.T))
    begin, end, arrive = (
        np.vstack((past[-2:], np.empty_like(compute_s))) for past in (before.begin, before.end, before.arrive)
    )
    lag = _lag(overlap)
    for k in range(2, steps + 2):
        np.maximum(end[k - 1], arrive[k - lag][heard].max(axis=0), out=begin[k])
        np.add(begin[k], compute_s[k - 2], out=end[k])
        np.maximum(end[k], arrive[k - 1], out=arrive[k])
        arrive[k] += exchange_s
    return Moments(begin, end, arrive)


def _lag(overlap: bool) -> int:
    """Steps since the one whose messages a step needs."""
    return 2 if overlap else 1


def run_gossip(team: Team, keys: Gossip, steps: int, message: Message | None = None) -> History:
    """`steps` steps of each worker, which sends its parameters, or `message` where they are compressed.

    Staleness is that of what a step averages with: one step where messages travel beside compute. Seconds in which a
    worker stands for its own messages are exchange; those until its neighbours' have come, and the end, are wait.

    Raises:
        ValueError: the team's workers have no graph of this topology.
    """
    graph = neighbours(keys, team.workers, team.rng(_GRAPH))
    size, encode_s = team.parameter_bytes, 0.0
    if message is not None:
        size, encode_s = message.wire_bytes, message.encode_s + graph.degree * message.decode_one_s
    exchange_s = graph.degree * size / team.link_bytes_per_s + team.latency_s
    recorder, moments = Recorder(), Moments.start(team.workers)
    for compute_s in _draws(team, steps):
        moments = advance(graph, moments, compute_s + team.inside_s + encode_s, exchange_s, keys.overlap)
        _spend(recorder, moments, _lag(keys.overlap), encode_s, team.inside_s)
        if not recorder.spans:
            _draw_spans(recorder, moments, _lag(keys.overlap), encode_s, team.inside_s)
    wall_s = float(moments.arrive[-1].max())
    recorder.spend("exchange", float(np.mean(moments.arrive[-1] - moments.end[-1])))
    recorder.spend("wait", float(np.mean(wall_s - moments.arrive[-1])))
    return recorder.history(wall_s, steps, steps * team.workers * team.samples, {int(keys.overlap): steps})


def _draws(team: Team, steps: int) -> Iterator[Floats]:
    """Seconds of compute, [step, worker], a block of steps at a time."""
    rng, speeds = team.rng(_STEPS), np.array([team.speed(worker) for worker in range(team.workers)])
    block = max(1, _BLOCK // team.workers)
    for first in range(0, steps, block):
        yield team.step_s * speeds * draw_each(team.jitter, rng, min(block, steps - first), team.workers)


def _spend(recorder: Recorder, moments: Moments, lag: int, encode_s: float, inside_s: float) -> None:
    """Count where the time of these steps went, the mean over workers.

    Each step encodes and decodes for `encode_s`, and exchanges inside a group for `inside_s`.
    """
    begin, end, before = moments.begin[2:], moments.end[2:], moments.end[1:-1]
    own = np.maximum(moments.arrive[2 - lag : -lag] - before, 0)
    encode = np.full_like(begin, encode_s)
    compute, wait = end - begin - encode - inside_s, begin - before - own
    parts = {"compute": compute, "encode": encode, "exchange": own + inside_s, "wait": wait}
    for cause, seconds in parts.items():
        recorder.spend(cause, float(seconds.sum(axis=0).mean()))


def _draw_spans(recorder: Recorder, moments: Moments, lag: int, encode_s: float, inside_s: float) -> None:
    """Note spans of the first steps, for charts; what they compute ends before their exchange inside a group."""
    begin, end, arrive = (times.tolist() for times in (moments.begin, moments.end, moments.arrive))
    workers = len(begin[0])
    for k in range(2, min(len(begin), 2 + MOST_SPANS // (3 * workers))):
        for i in range(workers):
            recorder.span(f"worker {i}", "wait", max(end[k - 1][i], arrive[k - lag][i]), begin[k][i])
            encodes_s = end[k][i] - encode_s
            recorder.span(f"worker {i}", "compute", begin[k][i], encodes_s - inside_s)
            recorder.span(f"worker {i}", "exchange", encodes_s - inside_s, encodes_s)
            recorder.span(f"worker {i}", "encode", encodes_s, end[k][i])
            recorder.span(f"link {i}", "exchange", max(end[k][i], arrive[k - 1][i]), arrive[k][i])
