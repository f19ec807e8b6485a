"""From a checked Scenario to everything a prediction rests on: cluster, weights, plan, Program, profile, and the hash.

What a file says and the machine does not allow (a bucket beyond memory, heads that do not divide) is found here.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import ClassVar

import numpy as np

from ...base.errors import UserError, fault
from ...base.units import format_bytes
from ...collectives import networks_of
from ...costs import Costs, Store, cost
from ...hardware import resolved
from ...models import ModelSpec, Weights, weights
from ...profile import Profile, check_complete, load_numbers, profile_notes
from ...program import Program
from ...timeline import Timeline
from ..machines import OnMachines, canonical
from ..shape import shape_of
from ..tables import FOR_PEOPLE
from .lower import (
    TRANSFERS,
    BucketSize,
    TransferPlan,
    UpdatePlan,
    alike,
    bucket_size,
    make_plan,
    serial,
    three_stage,
    two_stage,
    unfolded,
    with_readers,
)
from .methods import METHODS
from .scenario import Scenario, Storage, Trainer
from .transfers import Question

_CONFIRMED_RANKS = 256  # the most of any published update that the ledger of docs/weight-update.md holds


@dataclass(frozen=True)
class Resolved(OnMachines):
    """A scenario with everything that its names stand for; the parts are made when first asked for."""

    scenario: Scenario
    _of_profile: ClassVar[tuple[str, ...]] = "profile", "costs", "hash"

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
        drain = self.scenario.update.drain
        return joined if drain is None else joined.stated({"pause.s": drain}, f"{self.where}: update.drain")

    def _joined(self) -> Profile:
        joined = load_numbers(self.profile_names, self.cluster.fabric.network, "", self.scenario.stack, self.where)
        for profile in (joined, *joined.others.values()):
            check_complete(profile, self.where)
        return joined

    @property
    def opening(self) -> str:
        """The op behind which the time of an update begins: its metadata gathered, or requests stopped."""
        return "pause" if self.from_trainers else "gather_metas"

    def began_s(self, timeline: Timeline) -> float:
        """When the time of the update begins."""
        return timeline.span_of(self.opening)[1]

    @cached_property
    def dtype(self) -> str:
        """Precision of the weights that engines hold: fp8 where the model is quantised, or the update does it."""
        if self.scenario.update.quantize != "none":
            return "fp8"
        return "fp8" if self.spec is not None and self.spec.quantization is not None else "bf16"

    @cached_property
    def resident_bytes(self) -> int:
        """Bytes of weights that each inference rank holds while it is updated."""
        inference, held = self.scenario.update.inference, self.weights
        if self.scenario.update.quantize != "none" and self.spec is not None:
            held = weights(self.spec, mtp=self.scenario.model.mtp, fp8=True)
        total, experts = held.total_bytes, int(held.nbytes[held.expert].sum())
        return -(-(total - experts) // inference.tp) + -(-experts // max(inference.tp, inference.ep))

    @cached_property
    def engine_bytes(self) -> int:
        """What the engine holds on each device, its weights included."""
        share = self.scenario.update.inference.memory_utilization
        held = self.resident_bytes if share is None else int(self.memory_bytes * share)
        if held < self.resident_bytes:
            allowed = f"the weights alone need {self.resident_bytes / self.memory_bytes:.2f}"
            raise UserError(fault(self.where, "update.inference.memory_utilization", share, allowed))
        return held

    @cached_property
    def free_bytes(self) -> int:
        """Free device memory before the update: as given, or by the engine's utilisation, or all but the weights."""
        update, memory = self.scenario.update, self.memory_bytes
        if update.free_memory is not None and update.free_memory > memory:
            raise UserError(fault(self.where, "update.free_memory", update.free_memory, f"a device has {memory} bytes"))
        if update.free_memory is not None:
            return update.free_memory
        if update.inference.memory_utilization is not None:
            return memory - self.engine_bytes
        return memory - self.resident_bytes

    @cached_property
    def bucket(self) -> BucketSize:
        """Size and number of buffers, by the rule of the source or as the scenario says."""
        update = self.scenario.update
        largest = int(self.weights.aligned().max())
        try:
            fitting = bucket_size(
                self.free_bytes,
                largest,
                limit_bytes=update.bucket or update.max_bucket,
                mem_fraction=update.mem_fraction,
                h2d_buffer=update.h2d_buffer,
            )
        except ValueError as error:
            raise self._no_room(str(error)) from None
        if update.bucket is not None and fitting.bytes != update.bucket:
            raise self._bucket_fault(update.bucket, largest, fitting)
        if self.resident_bytes + fitting.buffers * fitting.bytes > self.memory_bytes:
            raise self._no_room(f"{fitting.buffers} buffers of {format_bytes(fitting.bytes)} do not fit")
        return fitting

    @cached_property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """Ranks that act alike: same kind of node, same slowness."""
        machines = self.cluster
        if not self.scenario.fold:
            return unfolded(machines.n_gpus)
        nodes = [machines.nodes[machines.node_of(gpu)] for gpu in range(machines.n_gpus)]
        listed = [gpu < self.listed for gpu in range(machines.n_gpus)]
        return alike([(id(node), *rest) for node, *rest in zip(nodes, self.slowness.tolist(), listed, strict=True)])

    @cached_property
    def listed(self) -> int:
        """How many ranks are updated: the first ones."""
        gpus, ranks = self.cluster.n_gpus, self.scenario.update.ranks
        if ranks is not None and ranks > gpus:
            raise UserError(fault(self.where, "update.ranks", ranks, f"there are {gpus} GPUs"))
        return ranks or gpus

    @cached_property
    def plan(self) -> UpdatePlan | TransferPlan:
        """Who holds what, in which buckets."""
        return self._transfer.plan() if self.from_trainers else self.served_plan

    @property
    def from_trainers(self) -> bool:
        """Whether the update starts at trainers, not at parameter servers beside the engines."""
        return METHODS[self.scenario.update.method].from_trainers

    @property
    def trainer(self) -> Trainer:
        """How the GPUs are laid out at which an update from trainers starts."""
        return self._transfer.trainer

    @property
    def trainers(self) -> range:
        """Those GPUs."""
        return self._transfer.trainers

    @cached_property
    def _transfer(self) -> Question:
        return Question(
            scenario=self.scenario,
            spec=self.spec,
            stored=self.weights,
            gpus=self.cluster.n_gpus,
            gpus_per_node=min(self.cluster.gpus_per_node),
            free_bytes=self.free_bytes,
            classes=self.classes,
            dtype=self.dtype,
            where=self.where,
        )

    @cached_property
    def served_plan(self) -> UpdatePlan:
        """The plan of an update by parameter servers: owners and buckets."""
        self._check_parallel()
        update = self.scenario.update
        plan = make_plan(
            self.weights.aligned(),
            self.cluster.n_gpus,
            self.bucket,
            tensor_parallel=update.inference.tp,
            classes=self.classes,
            dtype=self.dtype,
            new_group=update.process_group == "new",
        )
        self._check_host_memory(plan)
        return self._with_readers(plan) if update.method == "p2p" else plan

    def _with_readers(self, plan: UpdatePlan) -> UpdatePlan:
        try:
            nics = [self.cluster.nic_of(gpu) for gpu in range(self.cluster.n_gpus)]
        except UserError as error:
            raise UserError(f"{self.where}: update.method: p2p reads through NICs: {error}") from None
        return with_readers(plan, nics, self.listed, single=self.scenario.update.readers == "one")

    @cached_property
    def program(self) -> Program:
        """What happens."""
        update, plan = self.scenario.update, self.plan
        if isinstance(plan, TransferPlan):
            return TRANSFERS[update.method](plan)
        if update.pipeline == "three_stage":
            try:
                return three_stage(plan, update.h2d_freed)
            except ValueError as error:
                raise UserError(fault(self.where, "update.pipeline", update.pipeline, str(error))) from None
        return {"two_stage": two_stage, "serial": serial}[update.pipeline](plan)

    @cached_property
    def costs(self) -> Costs:
        """How long each op takes alone."""
        program, machines, profile = self.program, self.cluster, self.profile
        try:
            costs = cost(program, machines, profile, "ring", store=self._store, memo=self.memo)
        except UserError as error:  # a route that does not exist
            raise UserError(*(f"{self.where}: cluster: {line}" for line in error.faults)) from None
        for factor in np.unique(self.slowness[self.slowness > 1]):
            slow = set(np.flatnonzero(self.slowness == factor).tolist())
            places = [place for place, at in enumerate(self.program.places) if set(at.ranks) <= slow]
            costs = costs.scaled(self.program.only_at(places), float(factor))
        return costs

    @property
    def _store(self) -> Store | None:
        if self.scenario.update.method != "file_system":
            return None
        storage = self.scenario.update.storage or Storage()
        return Store(storage.write, storage.read)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What was assumed where the scenario is silent, for the report."""
        notes = [*self.scenario.notes, *(self.spec.assumptions if self.spec is not None else ())]
        update = self.scenario.update
        if self.from_trainers:
            notes += self._transfer.notes
        if not self.from_trainers and update.free_memory is None and update.inference.memory_utilization is None:
            notes.append("free device memory: all but the resident weights (no KV cache); see update.free_memory")
        if self.listed > _CONFIRMED_RANKS and not self.from_trainers:
            notes.append(f"more than {_CONFIRMED_RANKS} ranks: the time to fill the broadcast ring is unconfirmed")
        notes += profile_notes(self.profile_names, self.scenario.profile)
        network = networks_of(self.cluster, self.profile).note(self.cluster.fabric.network)
        if network and self.cluster.n_nodes > 1:
            notes.append(network)
        return tuple(notes)

    @cached_property
    def hash(self) -> str:
        """Names the result: everything that the prediction rests on, and the engine's version."""
        names = {*FOR_PEOPLE, "cluster", "model", "profile", "stack", "fold"}  # what they stand for counts, not they
        content = {
            "scenario": self.scenario.model_dump(mode="json", exclude=names),
            "cluster": resolved(self.scenario.cluster, self.scenario.nodes, self.where),
            "tensors": hashlib.sha256(self.weights.nbytes.tobytes()).hexdigest(),
            "dtype": self.dtype,
            "profile": self.profile.to_json(),
            "version": version("runcast"),
        }
        return hashlib.sha256(canonical(content).encode()).hexdigest()[:16]

    def _check_parallel(self) -> None:
        tp, gpus = self.scenario.update.inference.tp, self.listed
        key = "update.inference.tp"
        if gpus % tp:
            raise UserError(fault(self.where, key, tp, f"must divide the {gpus} GPUs"))
        if self.spec is not None and self.spec.num_attention_heads % tp:
            raise UserError(fault(self.where, key, tp, f"must divide the {self.spec.num_attention_heads} heads"))

    def _check_host_memory(self, plan: UpdatePlan) -> None:
        """The weights that the ranks of a node own lie pinned in its memory; 0 bytes of it means not stated."""
        owned = plan.buckets.owned_bytes(plan.ranks)
        for node in range(self.cluster.n_nodes):
            pinned, memory = int(owned[list(self.cluster.gpus_of(node))].sum()), self.cluster.host_memory_bytes(node)
            if 0 < memory < pinned:
                text = f"its ranks own {format_bytes(pinned)} of weights, but host memory is {format_bytes(memory)}"
                raise UserError(f"{self.where}: nodes: node {node}: {text}: more nodes, each owns less")

    def _no_room(self, why: str) -> UserError:
        memory, resident = format_bytes(self.memory_bytes), format_bytes(self.resident_bytes)
        free = format_bytes(max(self.free_bytes, 0))
        held = f"resident weights take {resident} of {memory} per device, {free} are free"
        return UserError(f"{self.where}: update: {why}; {held}: raise inference.tp or lower what the engine holds")

    def _bucket_fault(self, asked: int, largest: int, fitting: BucketSize) -> UserError:
        if asked < largest:
            allowed = f"the largest tensor has {format_bytes(largest)} and is never split"
        else:
            share, free = f"{self.scenario.update.mem_fraction:.0%}", format_bytes(self.free_bytes)
            most, buffers = format_bytes(fitting.bytes), fitting.buffers
            if most == format_bytes(asked):  # too close to tell them apart
                most = f"{fitting.bytes} bytes"
            allowed = f"at most {most} fit: {buffers} such buffers in {share} of {free} free"
        return UserError(fault(self.where, "update.bucket", format_bytes(asked), allowed))
