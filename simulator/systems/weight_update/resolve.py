"""From a checked Scenario to everything that a prediction needs: cluster, weights, profile, costs, hash.

The plan and Program are made by `served` and `transfers`. Here and there what the machine does not allow is refused: a
bucket beyond memory, heads that do not divide.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from ...base.arrays import Floats
from ...base.errors import UserError
from ...base.op_kinds import EXCHANGE, kinds_of_form
from ...base.units import format_bytes
from ...collectives import STREAMS, Choice, choice_of, networks_of, relay
from ...costs import Costs, Store, cost
from ...hardware import cluster_inputs
from ...models import ModelSpec, Weights, weights
from ...profile import Profile, check_complete, profile_notes
from ...program import Program
from ...timeline import Timeline
from ..machines import OnMachines, content_hash, release, shape_of, without_route
from ..tables import FOR_PEOPLE
from .lower import TransferPlan, UpdatePlan, group_alike, single_ranks
from .methods import METHODS, Method
from .scenario import Scenario, Trainer, Update

_BETWEEN_RANKS = kinds_of_form(EXCHANGE, "write", "forward", "pairs")
"""The kinds of ops whose time is that of links between ranks."""

_OF_STORE = kinds_of_form("fs_write", "fs_read")
"""The kinds of ops whose time is that of a store, at rates that are given."""


@dataclass(frozen=True)
class Resolved(OnMachines):
    """An update with what its names stand for; parts are made on first use.

    It is timed from the end of its op `opening`; rollouts are paused until that of `resuming`.
    """

    scenario: Scenario
    _of_profile: ClassVar[tuple[str, ...]] = "profile", "costs", "hash"
    from_trainers: ClassVar[bool]
    opening: ClassVar[str]
    resuming: ClassVar[str]

    @property
    def plan(self) -> UpdatePlan | TransferPlan:
        """Owners and buckets."""
        raise NotImplementedError

    @property
    def executed(self) -> Program:
        """The Program that ranks execute."""
        raise NotImplementedError

    @cached_property
    def program(self) -> Program:
        """The Program that is simulated: with messages of trees in place of broadcasts, if the stack sends so."""
        return relay(self.executed) if self._along_trees else self.executed

    @property
    def _along_trees(self) -> bool:
        return bool(self.profile.value_or("broadcast.tree", 0.0)) and "broadcast" not in dict(self.choice)

    @property
    def choice(self) -> Choice:
        """The algorithms of exchanges that are named."""
        return choice_of(self.scenario.collectives.model_dump())

    @property
    def question(self) -> str:
        """One line that says what is simulated."""
        model = self.spec.name if self.spec is not None else "a model by totals"
        return f"{model} {self.dtype}{self._way}"

    @property
    def _way(self) -> str:
        """The receivers and the method in words."""
        raise NotImplementedError

    @property
    def update(self) -> Update:
        """How the weights travel."""
        return self.scenario.update

    @property
    def method(self) -> Method:
        """The way of bytes to ranks."""
        return METHODS[self.update.method]

    @cached_property
    def spec(self) -> ModelSpec | None:
        """The model's shape, unless it is known by totals alone."""
        model = self.scenario.model
        return None if model.bytes is not None else shape_of(model, self.where)

    @cached_property
    def weights(self) -> Weights:
        """The tensors that travel."""
        return self.memo.get("weights", (repr(self.scenario.model), self.where), self._weights)

    def _weights(self) -> Weights:
        model = self.scenario.model
        if self.spec is not None:
            return weights(self.spec, mtp=model.mtp)
        assert model.bytes is not None
        assert model.tensors is not None
        return Weights.from_totals(model.bytes, model.tensors, model.largest, f"{self.where}: model")

    @cached_property
    def profile(self) -> Profile:
        """Device and software parameters together."""
        numbers = self.scenario.profile, self.scenario.stack, *self.machines
        joined = self.memo.get("numbers of updates", numbers, self._joined)
        drain = self.update.drain
        return joined if drain is None else joined.set_values({"pause.s": drain}, f"{self.where}: update.drain")

    def _joined(self) -> Profile:
        joined = super().profile
        for profile in (joined, *joined.others.values()):
            check_complete(profile, self.where)
        return joined

    def opening_s(self, timeline: Timeline) -> float:
        """When the time of the update begins."""
        return timeline.span_of(self.opening)[1]

    @cached_property
    def dtype(self) -> str:
        """Precision of the weights that engines hold: fp8 if the model is quantised, or the update quantises it."""
        if self.update.quantize != "none":
            return "fp8"
        return "fp8" if self.spec is not None and self.spec.quantization is not None else "bf16"

    @cached_property
    def resident_bytes(self) -> int:
        """Bytes of weights that each inference rank holds while it is updated."""
        inference, held = self.update.inference, self.weights
        if self.update.quantize != "none" and self.spec is not None:
            held = weights(self.spec, mtp=self.scenario.model.mtp, fp8=True)
        total, experts = held.total_bytes, int(held.nbytes[held.expert].sum())
        return -(-(total - experts) // inference.tp) + -(-experts // max(inference.tp, inference.ep))

    @cached_property
    def engine_bytes(self) -> int:
        """Bytes that the engine holds on each device, its weights included: what is not free, or its utilisation."""
        update, memory = self.update, self.memory_bytes
        share, free = update.inference.memory_utilization, update.free_memory
        if free is not None:
            if free > memory - self.resident_bytes:
                allowed = (
                    f"a device has {format_bytes(memory)}, of which weights need {format_bytes(self.resident_bytes)}"
                )
                raise self._fault("update.free_memory", format_bytes(free), allowed)
            return memory - free
        held = self.resident_bytes if share is None else int(memory * share)
        if held < self.resident_bytes:
            allowed = f"the weights alone need {self.resident_bytes / memory:.2f}"
            raise self._fault("update.inference.memory_utilization", share, allowed)
        return held

    @property
    def free_bytes(self) -> int:
        """Free device memory before the update."""
        return self.memory_bytes - self.engine_bytes

    def _check_layouts(self) -> None:
        """Engines and trainers hold whole heads, experts and layers of a model whose shape is known."""
        if (spec := self.spec) is None:
            return
        heads, experts = spec.num_attention_heads, spec.moe.n_routed_experts if spec.moe else 0
        inference, trainer = self.update.inference, self.update.trainer or Trainer()
        for side, of in (("inference", inference), ("trainer", trainer)):
            if heads % of.tp:
                raise self._fault(f"update.{side}.tp", of.tp, f"must divide the {heads} heads")
            if experts % of.ep or (of.ep > 1 and not experts):
                allowed = f"must divide the {experts} experts" if experts else "the model has no experts"
                raise self._fault(f"update.{side}.ep", of.ep, allowed)
        if trainer.pp > spec.n_layers:
            raise self._fault("update.trainer.pp", trainer.pp, f"the model has {spec.n_layers} layers")

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """Ranks that act alike: same kind of node, same slowness, same site; in a tree each has its own place."""
        machines = self.cluster
        if not self.scenario.fold or self._along_trees:
            return single_ranks(machines.n_gpus)
        slowness = self.slowness.tolist()
        return group_alike([
            (id(machines.nodes[machines.node_of(gpu)]), slowness[gpu], machines.site_of(gpu), gpu < self.n_listed)
            for gpu in range(machines.n_gpus)
        ])  # fmt: skip

    @property
    def engine_ranks(self) -> Sequence[int]:
        """The ranks with an engine."""
        return range(self.cluster.n_gpus)

    @property
    def n_listed(self) -> int:
        """The number of ranks that an update by parameter servers reaches: the first ones."""
        return self.cluster.n_gpus

    @cached_property
    def costs(self) -> Costs:
        """The time of each op without contention."""
        program, machines, profile = self.program, self.cluster, self.profile
        try:
            costs = cost(program, machines, profile, STREAMS, store=self.store, memo=self.memo, named=self.choice)
        except UserError as error:  # a route or algorithm that does not exist there
            raise without_route(self.where, error) from None
        slowed = self._slowness_of_ops()
        for factor in np.unique(slowed[slowed > 1]):
            costs = costs.scale(slowed == factor, float(factor))
        return costs

    def _slowness_of_ops(self) -> Floats:
        """How many times longer each op takes: as long as on its slowest rank.

        What crosses links between ranks is no work of their own, and slow only where all of them are; a store never is.
        """
        program, ranks = self.program, [list(place.ranks) for place in self.program.places]
        place = np.array([lane.place for lane in program.lanes], np.int64)[program.lanes_of.values]
        most, least = (np.array([of(self.slowness[one]) for one in ranks])[place] for of in (np.max, np.min))
        slowest, fastest, op = np.ones(len(program)), np.full(len(program), np.inf), program.lanes_of.row_of_value()
        np.maximum.at(slowest, op, most)
        np.minimum.at(fastest, op, least)
        own = np.where(program.is_kind(*_BETWEEN_RANKS), fastest, slowest)
        return np.where(program.is_kind(*_OF_STORE), 1.0, own)

    @property
    def store(self) -> Store | None:
        """The file system that bytes go through."""
        return None

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Assumptions, for the report."""
        spec = self.spec.assumptions if self.spec is not None else ()
        notes = [*self.scenario.notes, *spec, *self._notes, *profile_notes(self.profile_names, self.scenario.profile)]
        network = networks_of(self.cluster, self.profile).note(self.cluster.fabric.network)
        if network and self.cluster.n_nodes > 1:
            notes.append(network)
        return (*notes, *self.cluster.notes)

    @property
    def _notes(self) -> list[str]:
        """Assumptions about how the weights travel."""
        raise NotImplementedError

    @cached_property
    def hash(self) -> str:
        """The hash of everything that the prediction depends on, runcast's version included."""
        names = {*FOR_PEOPLE, "cluster", "model", "profile", "stack", "fold"}  # what they stand for counts, not they
        if not self.choice:
            names.add("collectives")  # so that hashes from before this table stay valid
        content = {
            "scenario": self.scenario.model_dump(mode="json", exclude=names),
            "cluster": cluster_inputs(self.scenario.cluster, self.scenario.nodes, self.where),
            "tensors": hashlib.sha256(self.weights.nbytes.tobytes()).hexdigest(),
            "dtype": self.dtype,
            "profile": self.profile.to_json(),
            "version": release(),
        }
        return content_hash(content)[:16]
