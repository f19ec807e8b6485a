"""An update by parameter servers on the engines' nodes: from a checked scenario to plan and Program."""

from dataclasses import dataclass
from functools import cached_property

from ...base.errors import UserError
from ...base.units import format_bytes, format_count
from ...program import Program
from .lower import BucketSize, UpdatePlan, assign_readers, bucket_size, make_plan, serial, three_stage, two_stage
from .resolve import Resolved

_DEFAULT_BUCKET_BYTES = 8 * 2**30
_CONFIRMED_RANKS = 256  # the most of any published update that the ledger of docs/weight-update.md holds


@dataclass(frozen=True)
class ServedUpdate(Resolved):
    """Owners copy their share of the weights to their device and broadcast it, or receivers read it (P2P)."""

    from_trainers = False
    opening = "gather_metas"
    resuming = "barrier"

    @cached_property
    def bucket(self) -> BucketSize:
        """Size and number of buffers, by checkpoint-engine's rule or as the scenario says."""
        update = self.update
        largest = int(self.weights.aligned_bytes().max())
        try:
            fitting = bucket_size(
                self.free_bytes,
                largest,
                limit_bytes=update.bucket or update.max_bucket or _DEFAULT_BUCKET_BYTES,
                mem_fraction=update.mem_fraction,
                h2d_buffer=update.h2d_buffer,
            )
        except ValueError as error:
            raise self._no_room(str(error)) from None
        if update.bucket is not None and fitting.bytes != update.bucket:
            raise self._bucket_fault(update.bucket, largest, fitting)
        return fitting

    @cached_property
    def n_listed(self) -> int:
        """The number of ranks that are updated: the first ones."""
        gpus, ranks = self.cluster.n_gpus, self.update.ranks
        if ranks is not None and ranks > gpus:
            raise self._fault("update.ranks", ranks, f"there are {gpus} GPUs")
        return ranks or gpus

    @cached_property
    def plan(self) -> UpdatePlan:
        """Owners, buckets, and who reads them."""
        self._check_parallel()
        update, gpus = self.update, self.cluster.n_gpus
        plan = make_plan(
            self.weights.aligned_bytes(),
            gpus,
            self.bucket,
            tensor_parallel=update.inference.tp,
            classes=self.classes,
            dtype=self.dtype,
            new_group=update.process_group != "kept",
        )
        self._check_host_memory(plan)
        if update.method != "p2p":
            return plan
        try:
            nics = [self.cluster.nic_of(gpu) for gpu in range(gpus)]
        except UserError as error:
            raise UserError(f"{self.where}: update.method: p2p reads through NICs: {error}") from None
        return assign_readers(plan, nics, self.n_listed, single=update.readers == "one")

    @cached_property
    def executed(self) -> Program:
        """The Program that ranks execute."""
        plan, pipeline = self.plan, self.update.pipeline
        if pipeline != "three_stage":
            return {"two_stage": two_stage, "serial": serial}[pipeline](plan)
        try:
            return three_stage(plan, self.update.h2d_freed)
        except ValueError as error:
            raise self._fault("update.pipeline", pipeline, str(error)) from None

    @property
    def _way(self) -> str:
        machines, update = self.cluster, self.update
        devices = " and ".join(device.name for device in self.devices)
        where = f"{machines.n_gpus} x {devices} in {format_count(machines.n_nodes, 'node')}"
        return f" to {where}, TP{update.inference.tp}, {update.method}, {update.pipeline}"

    @property
    def _notes(self) -> list[str]:
        notes = []
        if self.update.free_memory is None and self.update.inference.memory_utilization is None:
            notes.append("free device memory: all but the resident weights (no KV cache); see update.free_memory")
        if self.n_listed > _CONFIRMED_RANKS:
            notes.append(f"more than {_CONFIRMED_RANKS} ranks: the time to fill the broadcast ring is unconfirmed")
        return notes

    def _check_parallel(self) -> None:
        tp, gpus = self.update.inference.tp, self.n_listed
        if gpus % tp:
            raise self._fault("update.inference.tp", tp, f"must divide the {gpus} GPUs")
        self._check_layouts()

    def _check_host_memory(self, plan: UpdatePlan) -> None:
        """A node's memory holds, pinned, the weights that its ranks own (0 bytes: not stated)."""
        owned = plan.buckets.owned_bytes(plan.ranks)
        for node in range(self.cluster.n_nodes):
            pinned = int(owned[list(self.cluster.gpus_of(node))].sum())
            memory = self.cluster.nodes[node].host_memory_bytes
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
            share, free = f"{self.update.mem_fraction:.0%}", format_bytes(self.free_bytes)
            most, buffers = format_bytes(fitting.bytes), fitting.buffers
            if most == format_bytes(asked):  # too close to tell them apart
                most = f"{fitting.bytes} bytes"
            allowed = f"at most {most} fit: {buffers} such buffers in {share} of {free} free"
        return self._fault("update.bucket", format_bytes(asked), allowed)
