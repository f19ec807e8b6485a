"""Costs of a step at the coarser level. Each distinct action is simulated alone, kernel by kernel, without contention.

Beside messages an action is slower: its kernels interfere with messages, and its exchanges share links with them. On
links that messages cross, an action asks for the mean rate of its exchanges over its time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import engine
from ...base.arrays import Floats, Ints
from ...base.memo import Memo
from ...collectives import Choice
from ...costs import EXCHANGES, PHASES, Costs, cost
from ...costs.costs import bytes_by_link
from ...costs.sheet import Prices
from ...hardware import Cluster
from ...insight import split_by_place
from ...profile import Profile
from ...program import Place, Program, Ragged, group_equal
from ...timeline import Timeline
from .lower import Coarse
from .lower.coarse import ALL, BEHIND, KIND, OF_HOST, TRAFFIC, Actions, Moment, Part
from .lower.piece import COMPUTE

_SLOW = 0.5
"""From this share of the time of kernels on, hosts have ops: so they are in the interval even if kernels hide them."""


class CoarseCosts(NamedTuple):
    """The costs of a coarse step, and the share of each phase in the time of each part, shape [parts, phases].

    `has_slow_hosts`: the hosts of some actions take more than _SLOW of the time of their kernels, and have no ops.
    """

    costs: Costs
    mix: Floats
    has_slow_hosts: bool


def cost_coarse(
    coarse: Coarse,
    cluster: Cluster,
    profile: Profile,
    choice: Choice,
    slowness: Floats,
    places: Sequence[Place] | None = None,
    memo: Memo | None = None,
) -> CoarseCosts:
    """The costs of a coarse step.

    A part of an action takes the time that it takes in a simulation of the action's kernels alone. Other ops are priced
    as at the finer level. `choice` names algorithms of exchanges. The ranks of one of `places` (default: the Program's
    places) act alike at the same time. All in an action but its exchanges takes as many times as long as `slowness`,
    by rank, says of the slowest of its ranks; other ops of the step do not.
    Interference between messages and actions is the mean interference between messages and the actions' kernels and
    exchanges, weighted by their time over all actions.
    """
    places = coarse.program.places if places is None else places
    found = cost(coarse.alone, cluster, profile, choice, places=places, memo=memo)
    alone = _Alone(coarse.alone, coarse.actions, found, cluster, coarse.hosts)
    each = replace(coarse.program, bytes=coarse.program.bytes // coarse.times)
    prices, mix = alone.prices(coarse), alone.mix[coarse.actions.place[coarse.action]]
    slow = alone.slowness(slowness)[coarse.action]
    for factor in np.unique(slow[slow > 1]).tolist():
        longer = alone.lengthen(factor)
        prices = replace(prices, seconds=np.where(slow == factor, longer.prices(coarse).seconds, prices.seconds))
        mix = np.where((slow == factor)[:, None], longer.mix[coarse.actions.place[coarse.action]], mix)
    costs = cost(each, cluster, profile, choice, actions=prices, places=places, memo=memo)
    work = costs.work_s * coarse.times
    costs = replace(
        costs,
        work_s=work,
        link_bytes=bytes_by_link(work, costs.row, costs.demand, costs.rate_bytes_per_s, len(costs.link_names)),
        interference=alone.interference(coarse.program, costs, profile),
    )
    has_slow_hosts = not coarse.hosts and bool((alone.host_s > _SLOW * alone.device_s).any())
    return CoarseCosts(costs, mix, has_slow_hosts)


class _Inside(NamedTuple):
    """Exchanges in the actions of a stage with the same rates on links.

    `rates` is bytes per second by link, `share` their share of the actions' time, `exposed` the share of their own
    time in which the actions wait for them.
    """

    rates: Mapping[int, float]
    share: float
    exposed: float


@dataclass(frozen=True)
class _Alone:
    """The distinct actions, each simulated alone: without contention, and without messages, which are ops of the step.

    `actions` lists all actions of the step, each with its distinct action and the offset of its ranks. With `hosts`,
    hosts have ops of their own in the step; without, an action takes as long as its host if that takes longer.
    """

    program: Program
    actions: Actions
    costs: Costs
    cluster: Cluster
    hosts: bool

    @cached_property
    def _place(self) -> Ints:
        """The place of each op. Every op of an action holds one lane."""
        return np.array([lane.place for lane in self.program.lanes], np.int64)[self.program.lanes_of.values]

    @cached_property
    def _shift(self) -> Ints:
        """The offset of link numbers for each action of the step, see `Cluster.links_moved`."""
        return self.cluster.links_moved(self.actions.ranks)

    def _on(self, *lanes: str) -> NDArray[np.bool_]:
        named = np.array([lane.name in lanes for lane in self.program.lanes], bool)
        return named[self.program.lanes_of.values]

    def lengthen(self, factor: float) -> "_Alone":
        """The same actions where all but exchanges takes `factor` times as long."""
        return replace(self, costs=self.costs.scale(~self.program.is_kind(*EXCHANGES), factor))

    def slowness(self, by_rank: Floats) -> Floats:
        """That of the slowest rank of each action of the step."""
        found = np.ones(len(self.actions.place))
        for ranks, actions in self._stages.items():
            found[actions] = by_rank[list(ranks)].max()
        return found

    @cached_property
    def _messages(self) -> NDArray[np.bool_]:
        return self._on(*TRAFFIC)

    @cached_property
    def _exchanges(self) -> NDArray[np.bool_]:
        """A mask of the exchanges inside actions (not the messages of the step)."""
        return self.program.is_kind(*EXCHANGES) & ~self._messages

    @cached_property
    def _undisturbed(self) -> Costs:
        """Costs without contention, messages and host time: hosts run ahead of the device across actions."""
        return self._only(~self._messages & ~self._issues)

    @cached_property
    def _issues(self) -> NDArray[np.bool_]:
        return self.program.is_kind("issue")

    def _only(self, left: NDArray[np.bool_]) -> Costs:
        """Costs without contention, where only the ops that are `left` take time."""
        costs = self.costs
        return replace(
            costs,
            latency_s=np.where(left, costs.latency_s, 0.0),
            work_s=np.where(left, costs.work_s, 0.0),
            row=np.zeros(len(self.program), np.int64),
            demand=Ragged.build([[]]),
            rate_bytes_per_s=np.empty(0),
        )

    @cached_property
    def _run(self) -> Timeline:
        return self._simulate(self._undisturbed)

    def _simulate(self, costs: Costs) -> Timeline:
        apart = tuple(replace(place, ranks=(i,)) for i, place in enumerate(self.program.places))
        return engine.simulate(replace(self.program, places=apart), costs)

    def _last(self, end_s: Floats) -> Floats:
        end = np.zeros(len(self.program.places))
        np.maximum.at(end, self._place, end_s)
        return end

    @cached_property
    def device_s(self) -> Floats:
        """Seconds of each distinct action from its first op to its last, with a host that takes no time."""
        return self._last(self._run.end_s)

    @cached_property
    def host_s(self) -> Floats:
        """Seconds of the host to issue each distinct action."""
        return self._by_place(np.where(self._issues, self.costs.uncontended_s, 0.0))

    @cached_property
    def _left_s(self) -> Floats:
        """Seconds that the device has left to do at least when a host has issued an action, all else being there."""
        whole = self._last(self._simulate(self._only(~self._messages)).end_s)
        return np.clip(whole - self.host_s, 0.0, self.device_s)

    @cached_property
    def _seconds(self) -> Floats:
        """Seconds that each distinct action has its lane, if the host has issued it or has an op of its own."""
        return self.device_s if self.hosts else np.maximum(self.device_s, self.host_s)

    @cached_property
    def mix(self) -> Floats:
        """The share of each phase in the time of each distinct action, shape [actions, phases].

        Time that the host takes beyond the device is the phase `host`.
        """
        split = split_by_place(self._run, self.device_s)
        split[:, PHASES.index("host")] += self._seconds - self.device_s
        return split / np.maximum(self._seconds, 1e-30)[:, None]

    def _by_place(self, value: Floats) -> Floats:
        return np.bincount(self._place, value, minlength=len(self.program.places)).astype(np.float64)

    def prices(self, coarse: Coarse) -> Prices:
        """The price of each part: the time between its moments, scaled up if a slower host has no op; or of its host.

        The spread is the mean over the action's ops, weighted by seconds; the provenance is that of most seconds.
        """
        took = np.array(self._took(coarse.parts))[coarse.part]
        of_host = np.array([part.of == OF_HOST for part in coarse.parts])[coarse.part]
        place = self.actions.place[coarse.action]
        bases = zip(self._rest_on(self._issues), self._rest_on(~self._messages & ~self._issues), strict=True)
        spread, label = (np.where(of_host, its[place], kernels[place]) for its, kernels in bases)
        demand, rates = self._asked()
        asks = np.where((took > 0) & ~of_host, coarse.action, len(self.actions.place))
        return Prices(took, spread, label, asks, demand, rates)

    def _rest_on(self, ops: NDArray[np.bool_]) -> tuple[Floats, Ints]:
        """The mean spread of these ops of each distinct action, and the provenance that most of their seconds have."""
        seconds, label = np.where(ops, self.costs.uncontended_s, 0.0), self.costs.provenance
        spread = self._by_place(seconds * self.costs.spread) / np.maximum(self._by_place(seconds), 1e-30)
        places, labels = len(self.program.places), int(label.max(initial=0)) + 1
        by_label = np.bincount(self._place * labels + label, seconds, minlength=places * labels)
        return spread, by_label.reshape(places, labels).argmax(axis=1)

    def _took(self, parts: Sequence[Part]) -> list[float]:
        """Seconds of each distinct part. `parts` lists the parts of an action in order."""
        longer = self._seconds / np.maximum(self.device_s, 1e-30)
        found, reached = list[float](), 0.0
        for place, since, until, of in parts:
            reached = reached if since else 0.0
            to = max(self._at(until) if until else float(self.device_s[place]), reached)
            took = (to - reached) * float(longer[place])
            if of == ALL:
                reached = to
            elif of == OF_HOST:
                took = float(self.host_s[place])
            else:  # a share of one part, the last one, which ends when the device has done all
                left = min(float(self._left_s[place]), took)
                took = left if of == BEHIND else took - left
            found.append(took)
        return found

    def _at(self, moment: Moment) -> float:
        return float((self._run.start_s if moment.starts else self._run.end_s)[moment.op])

    def _asked(self) -> tuple[Ragged, Floats]:
        """The mean rates of each action on links that messages also cross: rows of links, and bytes per second.

        The last row is empty; it serves parts without time.
        """
        links, n = len(self.costs.capacity_bytes_per_s), len(self.actions.place)
        place = self._place[self._exchanges]
        share = self.costs.uncontended_s[self._exchanges] / self._seconds[place]
        at, of = self.costs.demand.positions(self.costs.row[self._exchanges])
        keys = place[of] * links + self.costs.demand.values[at]
        first, own = group_equal(keys)
        asked, rate = keys[first], np.bincount(own, self.costs.rate_bytes_per_s[at] * share[of], minlength=len(first))
        by_place = _rows(asked // links, asked % links, len(self.program.places))
        crossed = np.zeros(links, bool)
        crossed[self._crossed_by_messages()] = True
        at, of = by_place.positions(self.actions.place)
        link = by_place.values[at] + self._shift[of]
        kept = crossed[link]
        return _rows(of[kept], link[kept], n + 1), rate[at[kept]]

    def _crossed_by_messages(self) -> Ints:
        """The links that messages of any action cross."""
        place, row = self._place[self._messages], self.costs.row[self._messages]
        at, of = self.costs.demand.positions(row)
        crossed = _rows(place[of], self.costs.demand.values[at], len(self.program.places))
        at, of = crossed.positions(self.actions.place)
        return crossed.values[at] + self._shift[of]

    def interference(self, program: Program, costs: Costs, profile: Profile) -> Floats:
        """The interference factors of a step's costs, with factors of actions.

        They are means over the actions' kernels and exchanges, as victims and as aggressors.
        """
        factors, place = costs.interference.copy(), self.actions.place
        busy = (self._run.end_s - self._run.start_s) * self._on(COMPUTE) * np.bincount(place)[self._place]
        shares = np.bincount(self.costs.cost_class, busy) / max(float(self._seconds[place].sum()), 1e-30)
        kinds = [(self.costs.classes[i], share) for i, share in enumerate(shares.tolist()) if share]
        own, (longer, lost) = costs.classes.index(KIND), self._crowding(program, costs)
        for i, other in enumerate(costs.classes):
            taken = [(share, _keeps(profile, kind, other)) for kind, share in kinds]
            factors[own, i] = 1 / (1 + longer[i] + sum(share * (1 / kept - 1) for share, kept in taken))
            factors[i, own] = 1 - lost[i] + sum(share * (_keeps(profile, other, kind) - 1) for kind, share in kinds)
        return factors

    def _crowding(self, program: Program, costs: Costs) -> tuple[Floats, Floats]:
        """How much exchanges inside actions, and ops beside the actions, slow each other on links that both cross.

        Two arrays by class of the op beside: the relative increase of the actions' time, and the share of its speed
        that the op loses. Both are means over ops, weighted by seconds. A slowed exchange disturbs the other op longer.
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
        """The exchanges in the actions of the stage with these ranks."""
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
        """For each distinct action: (row of demand, seconds of its exchanges with that row)."""
        ops, rows = np.flatnonzero(self._exchanges), len(self.costs.demand)
        keys = self._place[ops] * rows + self.costs.row[ops]
        first, which = group_equal(keys)
        seconds = np.bincount(which, (self._run.end_s - self._run.start_s)[ops])
        found: list[list[tuple[int, float]]] = [[] for _ in self.program.places]
        for key, total in zip(keys[first].tolist(), seconds.tolist(), strict=True):
            if total:
                found[key // rows].append((key % rows, total))
        return found


_AXES = ("tp", "cp", "ep")
"""Phases that wait for exchanges inside actions."""


def _beside(program: Program, costs: Costs) -> list[tuple[tuple[int, ...], int, int, float]]:
    """Ops beside actions that use links: (ranks of the place, row of demand, cost class, total seconds)."""
    lanes, op = program.lanes_of, program.lanes_of.row_of_value()
    asks = (np.diff(costs.demand.start)[costs.row[op]] > 0) & (costs.work_s[op] > 0) & ~program.is_kind(KIND)[op]
    place = np.array([lane.place for lane in program.lanes], np.int64)[lanes.values]
    sizes = len(program.places), len(costs.demand), len(costs.classes)
    keys = np.ravel_multi_index((place[asks], costs.row[op][asks], costs.cost_class[op][asks]), sizes)
    first, which = group_equal(keys)
    seconds = np.bincount(which, costs.work_s[op][asks])
    rows = zip(*(column.tolist() for column in np.unravel_index(keys[first], sizes)), seconds.tolist(), strict=True)
    return [(program.places[at].ranks, row, of, total) for at, row, of, total in rows]


def _rows(row: Ints, value: Ints, rows: int) -> Ragged:
    """The values as a Ragged of `rows` rows; `row` must be sorted."""
    return Ragged(np.concatenate(([0], np.cumsum(np.bincount(row, minlength=rows)))), value)


def _speeds(mine: Mapping[int, float], other: Mapping[int, float], capacity: Floats) -> tuple[float, float]:
    """The shares of their speeds that two flows keep, given their bytes per second by link.

    On a link that is full, a flow gets half of the capacity, or what the other flow leaves if that is more.
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


def _keeps(profile: Profile, victim: str, aggressor: str) -> float:
    """The share of its speed that an op of kind `victim` keeps beside one of kind `aggressor`; 1 without a number."""
    found = profile.parameters.get(f"interference.{victim}.{aggressor}")
    return 1.0 if found is None else found.value
