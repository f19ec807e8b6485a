"""An update that starts at trainers: from a checked scenario to plan and Program."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm

import numpy as np
from numpy.typing import NDArray

from ...base.errors import UserError
from ...base.units import format_bytes, format_rate
from ...costs import Store
from ...models import Weights, weights
from ...program import Program
from .lower import Layout, TransferPlan, Transport, make_transfer
from .resolve import Resolved
from .scenario import Storage, Trainer

_DEFAULT_BUCKET_BYTES = 512 * 2**20
"""Default of slime's and miles' update_weight_buffer_size."""

_EXPERT = re.compile(r"experts\.(\d+)\.(.+)")


@dataclass(frozen=True)
class TransferUpdate(Resolved):
    """Trainers send to engines, which leave `free_bytes` of each GPU for buckets."""

    from_trainers = True
    opening = "pause"
    resuming = "resume"

    @property
    def trainer(self) -> Trainer:
        """The layout of the GPUs that hold the new weights."""
        return self.update.trainer or Trainer()

    @cached_property
    def trainers(self) -> range:
        """The ranks that train: as given, else half of them, in whole nodes if possible; all if colocated.

        Raises:
            UserError: the number is not given, and no number leaves room for an engine.
        """
        gpus, asked = self.cluster.n_gpus, self.update.inference.gpus
        if self.trainer.gpus is not None:
            return range(self.trainer.gpus)
        if self.update.method == "colocated":
            return range(gpus)
        if asked is not None:
            return range(gpus - asked)
        possible = [count for count in range(1, gpus) if self._divides(count)]
        if not possible:
            raise self._no_split()
        fitting = [count for count in possible if self._has_buffers(count)] or possible[:1]
        each = min(self.cluster.gpus_per_node)
        return range(min(fitting, key=lambda count: (count % each > 0, abs(2 * count - gpus))))

    def _divides(self, trainers: int) -> bool:
        """Whether this number of trainers has whole groups of every axis, and leaves whole engines."""
        trainer, engine = self.trainer, max(self.update.inference.tp, self.update.inference.ep)
        whole = trainers % (trainer.tp * trainer.pp * trainer.cp) == 0
        return whole and trainers // trainer.pp % trainer.ep == 0 and (self.cluster.n_gpus - trainers) % engine == 0

    def _has_buffers(self, trainers: int) -> bool:
        """Whether receivers have memory for a bucket of each trainer, if all send at once."""
        if not self.method.striped:
            return True
        return trainers * max(self._bucket_bytes, int(self.wire_tensors.aligned_bytes().max())) <= self.free_bytes

    def _no_split(self) -> UserError:
        inference, trainer = self.update.inference, self.trainer
        key, engine = max(("inference.tp", inference.tp), ("inference.ep", inference.ep), key=lambda one: one[1])
        group = trainer.pp * lcm(trainer.tp * trainer.cp, trainer.ep)
        axes = f"tp {trainer.tp}, pp {trainer.pp}, cp {trainer.cp}, ep {trainer.ep} of update.trainer"
        trainers = f"trainers in groups of {group} ({axes})" if group > 1 else "trainers"
        smaller = ", smaller engines or smaller groups" if group > 1 else " or smaller engines"
        split = f"{self.cluster.n_gpus} GPUs do not split into engines of {engine} and {trainers}"
        return self._fault(f"update.{key}", engine, f"{split}: take more nodes{smaller}")

    @property
    def _notes(self) -> list[str]:
        found, storage = [], self._storage
        if self.trainer.gpus is None:
            found.append(f"{len(self.trainers)} of the {self.cluster.n_gpus} GPUs train; see update.trainer.gpus")
        if self.update.method == "file_system" and not {"write", "read"} <= storage.model_fields_set:
            rates = f"takes {format_rate(storage.write)} and gives {format_rate(storage.read)}"
            found.append(f"the file system {rates}, which is assumed; see update.storage")
        return found

    @property
    def _stage_ranks(self) -> int:
        return len(self.trainers) // self.trainer.pp

    @property
    def receivers(self) -> range:
        """The ranks that are updated."""
        if self.update.method == "colocated":
            return self.trainers
        first, wanted = len(self.trainers), self.update.inference.gpus
        return range(first, self.cluster.n_gpus if wanted is None else first + wanted)

    @property
    def engine_ranks(self) -> Sequence[int]:
        """The ranks that are updated: trainers have no engine."""
        return self.receivers

    @cached_property
    def plan(self) -> TransferPlan:
        """Stages, buckets, and what receivers keep.

        Raises:
            UserError: sizes that do not divide, a bucket that does not fit.
        """
        update, method = self.update, self.method
        if update.quantize != "none" and self.spec is None:
            allowed = "none: which tensors become FP8 needs model.preset or model.config"
            raise self._fault("update.quantize", update.quantize, allowed)
        if self.free_bytes <= 0:
            held, memory = format_bytes(self.engine_bytes), format_bytes(self.memory_bytes)
            helps = "raise inference.tp (in an RL cycle rollout.engine.tp), or lower what the engine holds"
            text = f"an engine holds {held} on each device of {memory}: {helps}"
            raise UserError(f"{self.where}: update.inference: {text}")
        self._check_ranks()
        self._check_layouts()
        sent, used = self.wire_tensors, {*self.trainers, *self.receivers}
        classes = [[rank for rank in ranks if rank in used] for ranks in self.classes]
        plan = make_transfer(
            sent.aligned_bytes(),
            sent.expert,
            sent.layer,
            trainers=self.trainers,
            receivers=self.receivers,
            train=self._layout,
            inference=Layout(tp=update.inference.tp, ep=update.inference.ep),
            bucket_bytes=self._bucket_bytes,
            classes=[ranks for ranks in classes if ranks],
            transport=self._transport,
            unit=self._units(sent) if method.by_local_tensors else None,
            apart=method.apart,
        )
        buffers = method.receive_buffers(plan)
        if buffers * plan.bucket_bytes > self.free_bytes:
            free = format_bytes(max(self.free_bytes, 0))
            allowed = f"{buffers} in flight do not fit beside what engines hold, which leaves {free}"
            raise self._fault("update.bucket", format_bytes(plan.bucket_bytes), allowed)
        return plan

    @cached_property
    def executed(self) -> Program:
        """The Program that ranks execute."""
        assert self.method.program is not None
        return self.method.program(self.plan)

    @property
    def _way(self) -> str:
        trainer, inference, machines = self.trainer, self.update.inference, self.cluster
        sizes = [f"{name.upper()}{size}" for name in ("tp", "pp", "cp", "ep") if (size := getattr(trainer, name)) > 1]
        engine = [f"TP{inference.tp}", *([f"EP{inference.ep}"] if inference.ep > 1 else [])]
        sources = f"{len(self.trainers)} trainers {' '.join([*sizes, ''])}"
        devices = " and ".join(device.name for device in self.devices)
        layouts = f"{sources}to {len(self.receivers)} GPUs {' '.join(engine)}"
        return f", {self.update.method}: {layouts} ({machines.n_nodes} x {devices} nodes)"

    @property
    def _storage(self) -> Storage:
        return self.update.storage or Storage()

    @property
    def store(self) -> Store | None:
        """The file system, if bytes go through one."""
        through = self.update.method == "file_system"
        return Store(self._storage.write, self._storage.read) if through else None

    @cached_property
    def _layout(self) -> Layout:
        trainer = self.trainer
        if not trainer.is_sharded:
            return Layout(trainer.tp, trainer.pp, trainer.ep)
        shard = trainer.shard or self._stage_ranks // trainer.tp
        beside_ep = max(trainer.tp * shard // trainer.ep, 1)
        return Layout(trainer.tp, trainer.pp, trainer.ep, shard, trainer.expert_shard or beside_ep)

    def _units(self, sent: Weights) -> NDArray[np.int64]:
        """Units that one gather of a trainer's own tensor brings: the same matrices of one expert of each of its peers.

        A trainer stores the input matrices of an expert as one tensor; every `experts / ep`-th expert has the same
        place on its trainer.
        """
        ep, count = self.trainer.ep, self.spec.moe.n_routed_experts if self.spec and self.spec.moe else 0
        per_trainer, placed = max(count // ep, 1), zip(sent.names, sent.layer.tolist(), strict=True)
        keys = [_unit(name, layer, per_trainer) for name, layer in placed]
        number = {key: i for i, key in enumerate(dict.fromkeys(key for key in keys if key))}
        return np.array([number[key] if key else -1 - i for i, key in enumerate(keys)], np.int64)

    @property
    def _bucket_bytes(self) -> int:
        """Bytes of a bucket on the wire."""
        update = self.update
        return round((update.bucket or update.max_bucket or _DEFAULT_BUCKET_BYTES) / self._gathered)

    @cached_property
    def wire_tensors(self) -> Weights:
        """The tensors on the wire: FP8 if quantised before, else as in the checkpoint."""
        if self.update.quantize == "none" or self.spec is None:
            return self.weights
        return weights(self.spec, mtp=self.scenario.model.mtp, fp8=self.update.quantize == "before")

    @cached_property
    def _gathered_weights(self) -> Weights:
        """The tensors that trainers gather: those on the wire, or if they quantise before it, those in 16 bits."""
        if self.update.quantize != "before":
            return self.wire_tensors
        assert self.spec is not None  # checked
        return weights(self.spec, mtp=self.scenario.model.mtp, fp8=False)

    @cached_property
    def _gathered(self) -> float:
        """Bytes that trainers gather per byte on the wire: more than 1 if they quantise before."""
        return self._gathered_weights.total_bytes / self.wire_tensors.total_bytes

    @cached_property
    def _gathered_tensors(self) -> float:
        """Tensors that trainers gather per tensor on the wire: fewer if they quantise before, as scales come then."""
        return len(self._gathered_weights.nbytes) / len(self.wire_tensors.nbytes)

    @property
    def _transport(self) -> Transport:
        update, delta = self.update, self.update.delta
        share = 1.0
        if delta is not None:
            each = 1 if self.dtype == "fp8" and update.quantize != "after" else 2
            share = min(delta.density * (1 + delta.index_bytes / each), 1.0)
        return Transport(
            share=share,
            gathered=self._gathered,
            gathered_tensors=self._gathered_tensors,
            quantize=update.quantize,
            delta=delta is not None,
            messages=update.messages or ("tensor" if self.method.by_tensor else "bucket"),
            load=update.load,
            dtype=self.dtype,
            slots=update.in_flight,
            new_group=update.process_group == "new",
            registers=update.registration == "new",
        )

    def _check_ranks(self) -> None:
        trainer, inference, gpus = self.trainer, self.update.inference, self.cluster.n_gpus
        trainers, receivers, ranks = len(self.trainers), self.receivers, self._stage_ranks
        engine, product = max(inference.tp, inference.ep), trainer.tp * trainer.pp * trainer.cp
        of_engine = "inference.ep" if inference.ep > inference.tp else "inference.tp"
        elsewhere = self.update.method == "colocated" and trainers != gpus
        apart = engine % inference.tp or engine % inference.ep
        for wrong, key, value, allowed in (
            (trainers > gpus, "trainer.gpus", trainers, f"there are {gpus} GPUs"),
            (elsewhere, "trainer.gpus", trainers, f"all {gpus} GPUs, where engines are on the same ones"),
            (not trainers, "inference.gpus", inference.gpus, f"leaves none of {gpus} GPUs to train"),
            (not receivers, "trainer.gpus", trainers, f"leaves none of {gpus} GPUs to receive"),
            (receivers.stop > gpus, "inference.gpus", inference.gpus,
             f"{gpus - trainers} GPUs are left beside the trainers"),
            (len(receivers) % engine, of_engine, engine, f"must divide the {len(receivers)} receiving GPUs"),
            (apart, "inference.ep", inference.ep, f"must divide tp = {inference.tp}, or be a multiple of it"),
            (trainers % product, "trainer.gpus", trainers, f"must be a multiple of tp x pp x cp = {product}"),
            (ranks % trainer.ep, "trainer.ep", trainer.ep, f"must divide the {ranks} GPUs of a pipeline stage"),
        ):  # fmt: skip
            if wrong:
                raise self._fault(f"update.{key}", value, allowed)
        layout = self._layout
        for key, size, beside in (("shard", layout.shard, "tp"), ("expert_shard", layout.expert_shard, "ep")):
            split = getattr(layout, beside)
            if ranks // split % size:
                allowed = f"must divide {ranks // split}: the {ranks} GPUs of a pipeline stage / {beside} {split}"
                raise self._fault(f"update.trainer.{key}", size, allowed)


def _unit(name: str, layer: int, per_trainer: int) -> tuple[int, int, bool] | None:
    """Layer, place among a trainer's experts, whether an output matrix; None if not a tensor of one expert."""
    found = _EXPERT.search(name)
    if found is None:
        return None
    return layer, int(found[1]) % per_trainer, "down" in found[2] or "w2" in found[2]
