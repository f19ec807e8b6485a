"""Federated learning: rounds in which sampled clients fetch the model, train on their own data, and send it back.

A round of FedAvg (McMahan et al., arXiv 1602.05629, algorithm 1) takes as long as the slowest client that counts:

    max_i(S / down_i + E * epoch_i + S / up_i)

It is cut by what production systems do (Bonawitz et al., arXiv 1902.01046, section 2.2): more clients are selected than
needed and the first ones count, some drop out, and a deadline closes the round. Rounds are a plain loop over arrays of
clients and not SimPy processes, because clients of a round do not act on each other until it ends. The exception is
uploads that share the server's link, for which `shared_ends_s` goes from event to event.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from ....base.arrays import Floats, Ints
from ....base.errors import UserError, fault
from ..history import History, Recorder
from .fluid import shared_ends_s, together_s
from .tables import Federated

_MOST_LOST = 1000


@dataclass(frozen=True)
class FederatedPlan:
    """A federated run of a model of `model_bytes`. Equal seeds give equal runs."""

    keys: Federated
    model_bytes: float
    seed: int = 0

    def rng(self, stream: int) -> np.random.Generator:
        """Random numbers of one purpose; those of others do not move them."""
        return np.random.default_rng((self.seed, stream))

    @property
    def upload_bytes(self) -> float:
        """Bytes of a client's update on the wire."""
        masks = self.keys.masks
        return masks.masked_bytes(self.model_bytes, self.keys.group) if masks else self.model_bytes

    @property
    def capacity_bytes_per_s(self) -> float:
        """The links towards clients of all aggregators together: each serves an equal part of the clients."""
        return self.keys.server * self.keys.aggregators if self.keys.server else inf

    @property
    def root_s(self) -> float:
        """Seconds of the model between root and aggregators, one way; the root's link is shared by all of them."""
        if self.keys.aggregators == 1:
            return 0.0
        limits = (self.keys.aggregator_link or inf, (self.keys.server or inf) / self.keys.aggregators)
        return self.model_bytes / min(limits)


@dataclass(frozen=True)
class _Clients:
    """Clients by what they are in all rounds: seconds of an epoch, and rates of their links in B/s; [clients] each."""

    epoch_s: Floats
    up: Floats
    down: Floats

    def take(self, which: Ints) -> "_Clients":
        return _Clients(self.epoch_s[which], self.up[which], self.down[which])


def _clients(plan: FederatedPlan) -> _Clients:
    keys = plan.keys
    if keys.silos:
        count = [silo.count for silo in keys.silos]
        columns = [(silo.epoch_time, silo.up, silo.down) for silo in keys.silos]
        return _Clients(*np.repeat(np.array(columns), count, axis=0).T)
    assert keys.epoch_time is not None
    assert keys.up is not None
    assert keys.down is not None
    slow, far = (spread.draw(plan.rng(i), keys.population) for i, spread in enumerate((keys.compute, keys.links)))
    return _Clients(keys.epoch_time * slow, keys.up / far, keys.down / far)


@dataclass(frozen=True)
class Round:
    """One round: its seconds by cause, which add up to it, how many clients did what, and the bytes of all of them.

    `updates` is 0 where the round was lost. `late` are clients that were at work when the round ended, without those
    that would have dropped out later, which are among `dropped`.
    """

    seconds: Mapping[str, float]
    updates: int
    dropped: int
    late: int
    moved_bytes: float


@dataclass(frozen=True)
class _Paths:
    """When things happen to the clients of a round, in seconds from its start; [selected] each.

    `down_s` and `compute_s` are durations. `gone_s` is inf for those that stay, `end_s` for those that drop out.
    """

    open_s: float
    down_s: Floats
    compute_s: Floats
    sent_s: Floats
    gone_s: Floats
    end_s: Floats


class ClientRounds:
    """Plays the rounds of a run, one after the other; every round draws its own clients."""

    def __init__(self, plan: FederatedPlan):
        self._plan, self._keys, self._all = plan, plan.keys, _clients(plan)
        self._choices, self._jitter, self._drops = (plan.rng(stream) for stream in (2, 3, 4))
        self._groups = np.arange(plan.keys.selected) % plan.keys.aggregators
        self._group_sizes = np.bincount(self._groups)

    def play(self) -> Round:
        """The next round, whether it succeeds or is lost."""
        who = self._all.take(self._choose())
        paths = self._paths(who)
        there, close_s = self._close(paths)
        counted = self._unmaskable(there)
        dropped = int(np.isfinite(paths.gone_s).sum())
        late = self._keys.selected - dropped - len(there)
        lost = len(counted) < self._keys.minimum
        seconds = {"lost": close_s} if lost else self._seconds(who, paths, counted, close_s)
        return Round(seconds, 0 if lost else len(counted), dropped, late, self._moved_bytes(len(there)))

    def _choose(self) -> Ints:
        """The clients of a round, none of them twice."""
        keys = self._keys
        if keys.selected == keys.population:
            return np.arange(keys.population)
        return self._choices.choice(keys.population, keys.selected, replace=False, shuffle=False)

    def _paths(self, who: _Clients) -> _Paths:
        plan, keys = self._plan, self._keys
        open_s = plan.root_s + keys.select + self._setup_s(who)
        down_s = keys.latency + together_s(plan.model_bytes, who.down, plan.capacity_bytes_per_s)
        compute_s = keys.epochs * who.epoch_s * keys.jitter.draw(self._jitter, keys.selected)
        sent_s = open_s + down_s + compute_s + self._mask_s + keys.latency
        gone_s = self._gone_s(sent_s + plan.upload_bytes / who.up)
        return _Paths(open_s, down_s, compute_s, sent_s, gone_s, self._end_s(who, sent_s, gone_s))

    @property
    def _mask_s(self) -> float:
        masks = self._keys.masks
        return masks.mask_s(self._plan.model_bytes, self._keys.group) if masks else 0.0

    def _setup_s(self, who: _Clients) -> float:
        """Keys and shares: in each of these messages the server waits for all clients."""
        masks = self._keys.masks
        if not masks:
            return 0.0
        sizes = masks.setup_bytes(self._keys.group)
        return sum(self._message_s(size, limits) for size, limits in zip(sizes, (who.up, who.down) * 2, strict=True))

    def _message_s(self, size_bytes: float, limits: Floats) -> float:
        capacity = self._plan.capacity_bytes_per_s
        return self._keys.latency + float(together_s(size_bytes, limits, capacity).max())

    def _gone_s(self, alone_s: Floats) -> Floats:
        """When clients drop out: at any time of what they would have needed; inf for those that stay."""
        gone_s = np.full(len(alone_s), inf)
        if chance := self._keys.dropout:
            draw = self._drops.random(len(alone_s))  # below the chance, a draw is uniform, too: it also says when
            gone = draw < chance
            gone_s[gone] = draw[gone] / chance * alone_s[gone]
        return gone_s

    def _end_s(self, who: _Clients, sent_s: Floats, gone_s: Floats) -> Floats:
        """When updates are there; of clients that drop out, the bytes that they have sent load the link."""
        capacity, size = self._plan.capacity_bytes_per_s, self._plan.upload_bytes
        if who.up.sum() <= capacity:
            return np.where(gone_s < inf, inf, sent_s + size / who.up)
        sizes = np.clip((gone_s - sent_s) * who.up, 0.0, size)
        sending = sizes > 0
        end_s = np.full(len(sent_s), inf)
        end_s[sending] = shared_ends_s(sent_s[sending], sizes[sending], who.up[sending], capacity)
        return np.where(gone_s < inf, inf, end_s)

    def _close(self, paths: _Paths) -> tuple[Ints, float]:
        """The clients whose updates are there when the round closes, and when that is.

        The server sees at once who has dropped out, so that it does not wait for anybody who cannot come.
        """
        wanted, ends_s = self._keys.wanted, paths.end_s
        first = np.argpartition(ends_s, wanted - 1)[:wanted]
        close_s = float(ends_s[first].max())
        if close_s == inf:  # fewer than wanted stay
            close_s = float(np.minimum(ends_s, paths.gone_s).max())
        close_s = min(close_s, self._keys.deadline or inf)
        return first[ends_s[first] <= close_s], close_s

    def _unmaskable(self, there: Ints) -> Ints:
        """The clients of groups in which enough have delivered; without secure aggregation, all of them."""
        masks = self._keys.masks
        if not masks:
            return there
        delivered = np.bincount(self._groups[there], minlength=len(self._group_sizes))
        enough = delivered >= np.array([masks.needed(int(size)) for size in self._group_sizes])
        return there[enough[self._groups[there]]]

    def _seconds(self, who: _Clients, paths: _Paths, counted: Ints, close_s: float) -> dict[str, float]:
        """The path of the slowest client that counts, and what the server does before and after."""
        slowest = counted[np.argmax(paths.end_s[counted])]
        up_s = paths.end_s[slowest] - paths.sent_s[slowest] + self._keys.latency
        final_s, unmask_s = self._unmask_s(who, paths, counted)
        return {
            "setup": paths.open_s - self._plan.root_s + final_s,
            "exchange": float(2 * self._plan.root_s + paths.down_s[slowest] + up_s),
            "compute": float(paths.compute_s[slowest]),
            "encode": self._mask_s + unmask_s,
            "wait": float(close_s - paths.end_s[slowest]),
        }

    def _unmask_s(self, who: _Clients, paths: _Paths, counted: Ints) -> tuple[float, float]:
        """Seconds until all shares for the removal of masks are there, and until the last server has removed them."""
        masks, keys = self._keys.masks, self._keys
        if not masks:
            return 0.0, 0.0
        final_s = keys.latency + self._message_s(keys.group * masks.share, who.up[counted])
        groups = len(self._group_sizes)
        delivered = np.bincount(self._groups[counted], minlength=groups)
        joined = np.bincount(self._groups[paths.gone_s > paths.open_s], minlength=groups)
        most = np.argmax(delivered * (1 + joined - delivered))
        missing = int(joined[most] - delivered[most])
        return final_s, masks.unmask_s(self._plan.model_bytes, keys.group, int(delivered[most]), missing)

    def _moved_bytes(self, there: int) -> float:
        """Bytes between clients and servers: all that are selected fetch the model, updates that are there count."""
        masks, group = self._keys.masks, self._keys.group
        fetched = self._plan.model_bytes + (sum(masks.setup_bytes(group)) if masks else 0)
        sent = self._plan.upload_bytes + (group * masks.share if masks else 0)
        return self._keys.selected * fetched + there * sent


def run_federated(plan: FederatedPlan) -> History:
    """All rounds of a federated run.

    `steps` are rounds that succeeded, `samples` the updates of clients in them. `breakdown_s` is the path of the
    slowest client that counts in each round: setup (clients chosen, keys and shares), exchange, compute, encode (masks
    made and removed), wait (the server waits for others that do not come), and lost rounds. `counts` has dropped and
    late clients, rounds_lost, server_bytes (all that clients send and receive) and client_bytes (a selected client's
    share of that, per round).

    Raises:
        UserError: 1000 rounds in a row are lost.
    """
    rounds, recorder, now_s = ClientRounds(plan), Recorder(), 0.0
    done = updates = failed = 0
    while done < plan.keys.rounds:
        one = rounds.play()
        now_s = _record(recorder, one, now_s, f"round {done + 1}")
        failed = 0 if one.updates else failed + 1
        if failed == _MOST_LOST:
            raise UserError(fault("federated", "minimum", plan.keys.minimum, _hopeless(plan.keys)))
        done, updates = done + (one.updates > 0), updates + one.updates
    selected = plan.keys.selected * (done + recorder.counts.get("rounds_lost", 0.0))
    recorder.count("client_bytes", recorder.counts["server_bytes"] / selected)
    return recorder.history(now_s, done, updates, {0: done})


def _hopeless(keys: Federated) -> str:
    asked = f"{keys.minimum} updates" + (", or secure.threshold," if keys.masks else "")
    return f"{_MOST_LOST} rounds in a row had fewer than {asked} by the deadline: raise it, or lower dropout"


def _record(recorder: Recorder, one: Round, now_s: float, name: str) -> float:
    """Write a round down; when the next one begins."""
    for cause, seconds in one.seconds.items():
        recorder.spend(cause, seconds)
        recorder.span("slowest client", cause, now_s, now_s + seconds, name)
        now_s += seconds
    if not one.updates:
        recorder.happen(now_s, "rounds_lost", name)
    recorder.count("dropped", one.dropped)
    recorder.count("late", one.late)
    recorder.count("server_bytes", one.moved_bytes)
    return now_s
