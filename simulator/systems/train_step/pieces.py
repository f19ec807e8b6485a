"""What a step at the coarser level costs: its actions run alone as their kernels do, with all links to themselves.

Beside messages they are slower: by what their kernels take of each other, and by what their exchanges take of links. Of
links that messages cross they ask in the step what their exchanges move there, as a mean over their seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import engine
from ...base.memo import Memo
from ...collectives import DEFAULT_ALGORITHM
from ...costs import EXCHANGES, PHASES, Costs, cost
from ...costs.costs import Floats, bytes_by_link
from ...costs.sheet import Prices
from ...hardware import Cluster
from ...insight import split_by_place
from ...profile import Profile
from ...program import Place, Program, Ragged
from ...timeline import Timeline
from .lower import Coarse
from .lower.coarse import KIND, TRAFFIC, Actions, Moment, Part
from .lower.piece import COMPUTE, Ints


def cost_coarse(
    coarse: Coarse, cluster: Cluster, profile: Profile, places: Sequence[Place] | None = None, memo: Memo | None = None
) -> tuple[Costs, Floats]:
    """How long each op takes alone: a part of an action as in a run of that alone, the rest as at the finer level.

    Ranks of one of `places` (those of the Program if not given) do the same at the same time.

    Messages and actions slow each other as messages do kernels and other exchanges, in the proportions of all actions.
    Beside the costs: the shares of phases in the time of each part, shape [parts, phases].
    """
    places = coarse.program.places if places is None else places
    found = cost(coarse.alone, cluster, profile, DEFAULT_ALGORITHM, places=places, memo=memo)
    alone = _Alone(coarse.alone, coarse.actions, found, cluster)
    each = replace(coarse.program, bytes=coarse.program.bytes // coarse.times)
    costs = cost(each, cluster, profile, DEFAULT_ALGORITHM, actions=alone.prices(coarse), places=places, memo=memo)
    work = costs.work_s * coarse.times
    costs = replace(
        costs,
        work_s=work,
        link_bytes=bytes_by_link(work, costs.row, costs.demand, costs.rate_bytes_per_s, len(costs.link_names)),
        interference=alone.interference(coarse.program, costs, profile),
    )
    return costs, alone.mix[coarse.actions.place[coarse.action]]


class _Inside(NamedTuple):
    """Exchanges in the actions of a stage that ask the same of links: what they ask, their share of the actions'
    seconds, and how much of that time the actions wait for them.
    """

    rates: Mapping[int, float]
    share: float
    exposed: float


@dataclass(frozen=True)
class _Alone:
    """Distinct actions, each by itself: without links, and without the messages that the step itself has.

    `actions` are all of them, on ranks of the cluster that may be others.
    """

    program: Program
    actions: Actions
    costs: Costs
    cluster: Cluster

    @cached_property
    def _place(self) -> Ints:
        """Where each op is; those of actions hold one lane each."""
        return np.array([lane.place for lane in self.program.lanes], np.int64)[self.program.lanes_of.values]

    @cached_property
    def _shift(self) -> Ints:
        """How much larger the numbers of links are for each of all actions, see `Cluster.links_moved`."""
        return self.cluster.links_moved(self.actions.ranks)

    def _on(self, *lanes: str) -> NDArray[np.bool_]:
        named = np.array([lane.name in lanes for lane in self.program.lanes], bool)
        return named[self.program.lanes_of.values]

    @cached_property
    def _messages(self) -> NDArray[np.bool_]:
        return self._on(*TRAFFIC)

    @cached_property
    def _exchanges(self) -> NDArray[np.bool_]:
        """Those inside actions."""
        return self.program.of_kind(*EXCHANGES) & ~self._messages

    @cached_property
    def _undisturbed(self) -> Costs:
        """The host runs ahead of the device from action to action: it holds nothing up unless it is slower in all."""
        costs, left = self.costs, ~self._messages & ~self.program.of_kind("issue")
        return replace(
            costs,
            latency_s=np.where(left, costs.latency_s, 0.0),
            work_s=np.where(left, costs.work_s, 0.0),
            row=np.zeros(len(self.program), np.int64),
            demand=Ragged.of([[]]),
            rate_bytes_per_s=np.empty(0),
        )

    @cached_property
    def _run(self) -> Timeline:
        apart = tuple(replace(place, ranks=(i,)) for i, place in enumerate(self.program.places))
        return engine.simulate(replace(self.program, places=apart), self._undisturbed)

    @cached_property
    def _ends(self) -> Floats:
        end = np.zeros(len(self.program.places))
        np.maximum.at(end, self._place, self._run.end_s)
        return end

    @cached_property
    def _seconds(self) -> Floats:
        """Of each action: from its first op to its last, or of its host if that takes longer."""
        host = np.where(self.program.of_kind("issue"), self.costs.uncontended_s, 0.0)
        return np.maximum(self._ends, self._by_place(host))

    @cached_property
    def mix(self) -> Floats:
        """Shares of phases in the time of each action; where its host takes longer than its device, that is a phase."""
        split = split_by_place(self._run, self._ends)
        split[:, PHASES.index("host")] += self._seconds - self._ends
        return split / np.maximum(self._seconds, 1e-30)[:, None]

    def _by_place(self, value: Floats) -> Floats:
        return np.bincount(self._place, value, minlength=len(self.program.places)).astype(np.float64)

    def prices(self, coarse: Coarse) -> Prices:
        """A price per part: what lies between its moments, longer in proportion where the host is slower.

        Spread is the mean of an action's ops by seconds, provenance what most of the seconds rest on.
        """
        seconds, label, places = self._undisturbed.uncontended_s, self.costs.provenance, len(self.program.places)
        spread = self._by_place(seconds * self.costs.spread) / np.maximum(self._by_place(seconds), 1e-30)
        labels = int(label.max(initial=0)) + 1
        by_label = np.bincount(self._place * labels + label, seconds, minlength=places * labels)
        most = by_label.reshape(places, labels).argmax(axis=1)
        took = np.array(self._took(coarse.parts))[coarse.part]
        place = self.actions.place[coarse.action]
        demand, rates = self._asked()
        asks = np.where(took > 0, coarse.action, len(self.actions.place))
        return Prices(took, spread[place], most[place], asks, demand, rates)

    def _took(self, parts: Sequence[Part]) -> list[float]:
        """Seconds of each distinct part; those of an action follow each other."""
        longer = self._seconds / np.maximum(self._ends, 1e-30)
        found, reached = list[float](), 0.0
        for place, since, until in parts:
            reached = reached if since else 0.0
            to = max(self._at(until) if until else float(self._ends[place]), reached)
            found.append((to - reached) * float(longer[place]))
            reached = to
        return found

    def _at(self, moment: Moment) -> float:
        return float((self._run.start_s if moment.starts else self._run.end_s)[moment.op])

    def _asked(self) -> tuple[Ragged, Floats]:
        """Of each of all actions what it asks of links that messages cross too, as a mean over its seconds; behind
        them an empty row.
        """
        links, n = len(self.costs.capacity_bytes_per_s), len(self.actions.place)
        place = self._place[self._exchanges]
        share = self.costs.uncontended_s[self._exchanges] / self._seconds[place]
        at, of = self.costs.demand.positions(self.costs.row[self._exchanges])
        asked, own = np.unique(place[of] * links + self.costs.demand.values[at], return_inverse=True)
        rate = np.bincount(own, self.costs.rate_bytes_per_s[at] * share[of], minlength=len(asked))
        by_place = _rows(asked // links, asked % links, len(self.program.places))
        crossed = np.zeros(links, bool)
        crossed[self._crossed_by_messages()] = True
        at, of = by_place.positions(self.actions.place)
        link = by_place.values[at] + self._shift[of]
        kept = crossed[link]
        return _rows(of[kept], link[kept], n + 1), rate[at[kept]]

    def _crossed_by_messages(self) -> Ints:
        """Links, of all actions."""
        place, row = self._place[self._messages], self.costs.row[self._messages]
        at, of = self.costs.demand.positions(row)
        crossed = _rows(place[of], self.costs.demand.values[at], len(self.program.places))
        at, of = crossed.positions(self.actions.place)
        return crossed.values[at] + self._shift[of]

    def interference(self, program: Program, costs: Costs, profile: Profile) -> Floats:
        """Of a step's costs, actions as the mean of what their kernels and exchanges take and make."""
        factors, place = costs.interference.copy(), self.actions.place
        busy = (self._run.end_s - self._run.start_s) * self._on(COMPUTE) * np.bincount(place)[self._place]
        shares = np.bincount(self.costs.cost_class, busy) / max(float(self._seconds[place].sum()), 1e-30)
        kinds = [(self.costs.classes[i], share) for i, share in enumerate(shares.tolist()) if share]
        own, (longer, lost) = costs.classes.index(KIND), self._crowding(program, costs)
        for i, other in enumerate(costs.classes):
            taken = [(share, _kept(profile, kind, other)) for kind, share in kinds]
            factors[own, i] = 1 / (1 + longer[i] + sum(share * (1 / kept - 1) for share, kept in taken))
            factors[i, own] = 1 - lost[i] + sum(share * (_kept(profile, other, kind) - 1) for kind, share in kinds)
        return factors

    def _crowding(self, program: Program, costs: Costs) -> tuple[Floats, Floats]:
        """What exchanges inside actions and ops beside these slow each other on links that both cross.

        By class of the ops beside: how much longer actions take, over their seconds, and the share of its speed that
        the op loses. Means over ops by their seconds: an exchange that is slowed crowds the other as much longer.
        """
        classes, crossed = len(costs.classes), self._crossed_inside()
        longer, lost, total = (np.zeros(classes) for _ in range(3))
        for ranks, row, of, seconds in _beside(program, costs):
            total[of] += seconds
            links, rates = costs.demand_row(row)
            if not crossed[links].any():
                continue
            other = dict(zip(links.tolist(), rates.tolist(), strict=True))
            for inside in self._inside(ranks):
                mine, its = _speeds(inside.rates, other, costs.capacity_bytes_per_s)
                longer[of] += seconds * inside.share * inside.exposed * (1 / mine - 1)
                lost[of] += seconds * inside.share / mine * (1 - its)
        longer /= np.maximum(total, 1e-30)
        return longer, lost / np.maximum(total, 1e-30) / (1 + longer)

    def _crossed_inside(self) -> NDArray[np.bool_]:
        """Links that exchanges inside any action cross."""
        place, row = self._place[self._exchanges], self.costs.row[self._exchanges]
        at, of = self.costs.demand.positions(row)
        links = _rows(place[of], self.costs.demand.values[at], len(self.program.places))
        at, of = links.positions(self.actions.place)
        crossed = np.zeros(len(self.costs.capacity_bytes_per_s), bool)
        crossed[links.values[at] + self._shift[of]] = True
        return crossed

    @cached_property
    def _stages(self) -> Mapping[tuple[int, ...], list[int]]:
        """The actions of each stage, by its ranks."""
        found: dict[tuple[int, ...], list[int]] = {}
        for action, (place, by) in enumerate(zip(*(column.tolist() for column in self.actions), strict=True)):
            ranks = tuple([rank + by for rank in self.program.places[place].ranks])
            found.setdefault(ranks, []).append(action)
        return found

    def _inside(self, ranks: tuple[int, ...]) -> list[_Inside]:
        """The exchanges in the actions of a stage."""
        actions = self._stages.get(ranks, [])
        spent: dict[tuple[int, int], float] = {}
        for action in actions:
            for row, seconds in self._spent[self.actions.place[action]]:
                key = row, int(self._shift[action])
                spent[key] = spent.get(key, 0.0) + seconds
        places = self.actions.place[actions]
        waits = self.mix[places][:, [PHASES.index(name) for name in _AXES]].sum(axis=1) @ self._seconds[places]
        exposed = min(float(waits) / max(sum(spent.values()), 1e-30), 1.0)
        total = max(float(self._seconds[places].sum()), 1e-30)
        return [_Inside(self._rates(*key), seconds / total, exposed) for key, seconds in spent.items()]

    def _rates(self, row: int, by: int) -> dict[int, float]:
        links, rates = self.costs.demand_row(row)
        return dict(zip((links + by).tolist(), rates.tolist(), strict=True))

    @cached_property
    def _spent(self) -> list[list[tuple[int, float]]]:
        """Of each distinct action the seconds of its exchanges, by row of demand."""
        ops, rows = np.flatnonzero(self._exchanges), len(self.costs.demand)
        keys, which = np.unique(self._place[ops] * rows + self.costs.row[ops], return_inverse=True)
        seconds = np.bincount(which, (self._run.end_s - self._run.start_s)[ops])
        found: list[list[tuple[int, float]]] = [[] for _ in self.program.places]
        for key, total in zip(keys.tolist(), seconds.tolist(), strict=True):
            if total:
                found[key // rows].append((key % rows, total))
        return found


_AXES = ("tp", "cp", "ep")
"""Phases that wait for exchanges inside actions."""


def _beside(program: Program, costs: Costs) -> list[tuple[tuple[int, ...], int, int, float]]:
    """What runs beside actions and asks for links: the ranks of its place, row of demand, class, and seconds in all."""
    lanes, op = program.lanes_of, program.lanes_of.row_of_value()
    asks = (np.diff(costs.demand.start)[costs.row[op]] > 0) & (costs.work_s[op] > 0) & ~program.of_kind(KIND)[op]
    place = np.array([lane.place for lane in program.lanes], np.int64)[lanes.values]
    sizes = len(program.places), len(costs.demand), len(costs.classes)
    keys = np.ravel_multi_index((place[asks], costs.row[op][asks], costs.cost_class[op][asks]), sizes)
    distinct, which = np.unique(keys, return_inverse=True)
    seconds = np.bincount(which, costs.work_s[op][asks])
    rows = zip(*(column.tolist() for column in np.unravel_index(distinct, sizes)), seconds.tolist(), strict=True)
    return [(program.places[at].ranks, row, of, total) for at, row, of, total in rows]


def _rows(row: Ints, value: Ints, rows: int) -> Ragged:
    """Values by their row, which are in order."""
    return Ragged(np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows)))), value)


def _speeds(mine: Mapping[int, float], other: Mapping[int, float], capacity: Floats) -> tuple[float, float]:
    """What two flows keep of their speeds that put these bytes per second on links, where some are full: a fair half,
    or what the other one leaves.
    """
    kept = 1.0, 1.0
    for link in mine.keys() & other.keys():
        room = float(capacity[link]) * (1 + 1e-9)
        if mine[link] + other[link] > room:
            kept = (
                min(kept[0], max(room / 2, room - other[link]) / mine[link]),
                min(kept[1], max(room / 2, room - mine[link]) / other[link]),
            )
    return kept


def _kept(profile: Profile, victim: str, aggressor: str) -> float:
    """The speed that ops of a family keep beside those of another."""
    found = profile.parameters.get(f"interference.{victim}.{aggressor}")
    return 1.0 if found is None else found.value
