"""How the workers of a run keep in step: what they exchange between and inside groups, and what a step waits for it."""

from dataclasses import dataclass
from functools import cached_property

from ...base.units import format_bytes, format_seconds
from ...collectives import Machines, Price, choice_of
from ...profile import PROVENANCE
from .exchange import Exchange, Exposed, OnCluster, over_links
from .scenario import Inside
from .sync.compression import Message, dense
from .sync.overlap import exposed_s
from .sync.rounds import EachStep, Local, Rounds
from .team import Team
from .workers import ResolvedWorkers

_LAYERS = 32  # of a model of which only the step's time is known: gradients travel in so many parts


@dataclass(frozen=True)
class ResolvedSteps(ResolvedWorkers):
    """Workers with what they exchange; parts are made on first use."""

    def team(self, seed: int) -> Team:
        """The workers as those who do not all wait for each other; groups of them, if they wait inside."""
        units = self.crew(seed).units
        return Team(
            workers=self.sites,
            step_s=self.step_s,
            samples=self.samples * self.site_workers,
            gradient_bytes=self.gradient_bytes,
            parameter_bytes=self.parameter_bytes,
            link_bytes_per_s=self.link_bytes_per_s * self.site_workers,
            latency_s=self.latency_s,
            speeds=tuple(units.speeds.tolist()),
            jitter=units.jitter,
            seed=seed,
            inside_s=self._inside_s,
        )

    @property
    def _inside_s(self) -> float:
        """The exchange inside a group."""
        inside = self.scenario.sync.inside
        return 0.0 if inside is None else self._inside(dense(self.gradient_bytes), 1)

    # Exchanges

    def _between(self, sites: int) -> Exchange:
        """Exchanges between groups of workers, in which each worker has a shard; between workers without groups."""
        if not self.is_priced:
            return over_links(sites, self.link_bytes_per_s * self.site_workers, self.latency_s)
        return self._on_cluster(self.site_workers).among(range(sites), range(sites))

    @property
    def _inside(self) -> Exchange:
        """Exchanges inside groups of workers, in all of them at once."""
        inside = self.scenario.sync.inside
        assert inside is not None
        if self._is_priced_inside(inside):
            return self._on_cluster(1).among(range(inside.workers), range(self.workers))
        rate = inside.bandwidth or self.node_bytes_per_s * self.worker_nodes
        return over_links(inside.workers, rate, inside.latency or 0.0)

    @property
    def is_priced(self) -> bool:
        """Whether the cluster says what exchanges between groups of workers take, as the scenario does not."""
        return self.scenario.sync.bandwidth is None and self.scenario.sync.latency is None

    @staticmethod
    def _is_priced_inside(inside: Inside) -> bool:
        """The same of exchanges inside groups."""
        return inside.bandwidth is None and inside.latency is None

    def _on_cluster(self, workers: int) -> OnCluster:
        """Exchanges on the cluster between groups of so many workers."""
        choice = choice_of(self.scenario.collectives.model_dump())
        return OnCluster(self._machines, workers * self.worker_gpus, choice)

    @cached_property
    def _machines(self) -> Machines:
        return Machines(self.cluster, self.profile)

    @property
    def exchange_note(self) -> str | None:
        """How exchanges between workers are priced, for the report; None where the scenario states their links."""
        if self.mode.has_workers and self.sites > 1 and not self._message_bytes:
            return "nothing travels between workers; see step.gradient"
        if (price := self._price_between) is None:
            return None
        what = f"{self.message.exchange.replace('_', '-')} of {format_bytes(self.message.wire_bytes)}"
        label = PROVENANCE[price.provenance]
        return f"exchanges between workers are priced as in a training step: an {what} takes " + (
            f"{format_seconds(self.message.rounds * price.seconds)} ({label}, ±{price.spread:.0%})"
        )

    @property
    def _message_bytes(self) -> float:
        """Bytes that workers send before compression, those of gradients or of parameters."""
        return self.gradient_bytes if self.mode.in_step else max(self.gradient_bytes, self.parameter_bytes)

    @cached_property
    def _price_between(self) -> Price | None:
        """One exchange between groups of workers; None where the cluster does not price them."""
        if not self.mode.in_step or self.sites == 1 or not self.is_priced:
            return None
        return self._on_cluster(self.site_workers).price(self.message, 1, range(self.sites), range(self.sites))

    @cached_property
    def _price_inside(self) -> Price | None:
        """One exchange inside a group of workers; None where the cluster does not price them."""
        inside = self.scenario.sync.inside
        if not self.mode.in_step or inside is None or not self._is_priced_inside(inside):
            return None
        return self._on_cluster(1).price(dense(self.gradient_bytes), 1, range(inside.workers), range(self.workers))

    @cached_property
    def exposed(self) -> tuple[Exposed, ...]:
        """What a step waits for exchanges that the cluster prices."""
        if not self.mode.in_step:
            return ()
        whole_s, inside_s, found = self._wait_s(), self._inside_s, list[Exposed]()
        local = self.scenario.sync.mode == "local"  # whose exchange inside a group nothing hides
        within_s = 0.0 if local else whole_s * self._share_inside
        if (price := self._price_between) is not None:
            more_s = self._wait_s(between=1 + price.spread) - whole_s
            found.append(Exposed(price, whole_s - within_s, whole_s - within_s + more_s))
        if (price := self._price_inside) is not None and local:
            found.append(Exposed(price, inside_s, inside_s * (1 + price.spread)))
        elif price is not None:
            more_s = self._wait_s(inside=1 + price.spread) - whole_s
            found.append(Exposed(price, within_s, within_s + more_s))
        return tuple(found)

    @property
    def _share_inside(self) -> float:
        """The share of the exchanges of a step that is inside groups."""
        between_s = self._between(self.sites)(self.message, 1) if self.sites > 1 else 0.0
        return self._inside_s / (self._inside_s + between_s) if self._inside_s else 0.0

    # How workers keep in step

    def rounds(self, workers: int) -> Rounds:
        """Rounds of so many workers that all wait for each other."""
        sync, sites = self.scenario.sync, self.sites_of(workers)
        message = self._message(sites)
        encode_s = (message.encode_s + message.decode_s) if sites > 1 else 0.0
        if sync.mode == "local":
            return self._local(message, sites, encode_s)
        return EachStep(self.step_s, self._exposed_s(message, sites), encode_s, sync.backup)

    def _local(self, message: Message, sites: int, encode_s: float = 0.0, more: float = 1.0) -> Local:
        """Rounds of several steps, whose exchange between groups takes `more` times as long as priced."""
        sync = self.scenario.sync
        assert sync.inner is not None
        outer_s = self._outer_s(message, sites, more)
        return Local(self.step_s, sync.inner, outer_s, encode_s, sync.fragments, sync.delay, self._inside_s)

    def _outer_s(self, message: Message, sites: int, more: float) -> float:
        """The exchange of models between groups, of whose result each worker has a shard: groups gather it inside."""
        if sites == 1:
            return 0.0
        parts, shard = self.scenario.sync.fragments, Message(self.gradient_bytes / self.site_workers, "all_gather")
        gather_s = self._inside(shard, parts) if self.site_workers > 1 else 0.0
        return more * self._between(sites)(message, parts) + gather_s

    def _wait_s(self, between: float = 1.0, inside: float = 1.0) -> float:
        """What a step waits for exchanges that take so many times as long as priced, between and inside groups."""
        if self.scenario.sync.mode == "local":
            rounds = self._local(self.message, self.sites, more=between)
            return rounds.exposed_s / rounds.steps
        return self._exposed_s(self.message, self.sites, between, inside)

    def _exposed_s(self, message: Message, sites: int, between: float = 1.0, inside: float = 1.0) -> float:
        """What exchanges of gradients add to a step; each layer's message is an exchange of its own."""
        among: list[tuple[float, Exchange, Message]] = []
        if sites > 1:
            among.append((between, self._between(sites), message))
        if self.site_workers > 1:
            among.append((inside, self._inside, dense(self.gradient_bytes)))
        if not among:
            return 0.0

        def message_s(many: int) -> float:
            return sum(more * exchange(what, many) for more, exchange, what in among) / many

        return exposed_s(self.scenario.sync.overlap, self.step_s, message_s, self.gradient_bytes, self._layers)

    @property
    def _layers(self) -> int:
        return self.spec.n_layers if self.spec is not None else _LAYERS
