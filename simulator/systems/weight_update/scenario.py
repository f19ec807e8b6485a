"""The scenario file of kind weight_update: one pydantic model per table, with all defaults and descriptions."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from ...collectives import MEASURED
from ..tables import Algorithms, Model, OnCluster, Rate, Seconds, Size, SlowNodes, Table
from .methods import MethodName


class Inference(Table):
    """The engines that receive the weights."""

    gpus: PositiveInt | None = Field(None, description="from trainers: receiving GPUs (default: all others)")
    tp: PositiveInt = Field(1, description="tensor-parallel size: a rank keeps 1/tp of the weights")
    ep: PositiveInt = Field(1, description="from trainers: expert-parallel size; an engine has max(tp, ep) GPUs")
    memory_utilization: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="share of device memory that the engine holds (vLLM's gpu_memory_utilization)"
    )


class Trainer(Table):
    """The GPUs that hold the new weights: the first ones of the cluster."""

    gpus: PositiveInt | None = Field(None, description="training GPUs (default: half of all; where colocated, all)")
    tp: PositiveInt = Field(1, description="tensor-parallel size in training")
    pp: PositiveInt = Field(1, description="pipeline-parallel size in training")
    cp: PositiveInt = Field(1, description="context-parallel size in training; weights do not depend on it")
    ep: PositiveInt = Field(1, description="expert-parallel size in training")
    sharded: bool | None = Field(
        None, description="whether tensors are sharded: FSDP (default: with a key below, or where tp, pp, ep are 1)"
    )
    shard: PositiveInt | None = Field(
        None, description="ranks over which a tensor is sharded beside tp; others hold replicas, HSDP (default: all)"
    )
    expert_shard: PositiveInt | None = Field(
        None, description="the same for tensors of experts, beside ep (default: what ep leaves of tp x shard)"
    )

    @property
    def is_sharded(self) -> bool:
        """Whether tensors are sharded."""
        if self.sharded is not None:
            return self.sharded
        return bool(self.shard or self.expert_shard) or self.tp * self.pp * self.ep == 1


class Delta(Table):
    """Only what changed is sent."""

    density: Annotated[float, Field(gt=0, le=1)] = Field(description="share of the values that changed")
    index_bytes: Annotated[float, Field(ge=0)] = Field(4.0, description="bytes of the index of a changed value")


class Storage(Table):
    """The shared file system.

    The default is the middle one of three in NVIDIA's guidelines for a unit of 32 nodes (DGX SuperPOD reference
    architecture, RA-11333-001 V11, table 6): 15 and 7, 40 and 20, or 125 and 62 GB/s out and in.
    """

    write: Rate = Field(20e9, description="what it takes in all (default: 20 GB/s, assumed)")
    read: Rate = Field(40e9, description="what it gives in all (default: 40 GB/s, assumed)")


class Update(Table):
    """How the weights travel."""

    method: MethodName = Field("broadcast", description="how the bytes reach the ranks")
    pipeline: Literal["two_stage", "three_stage", "serial"] = Field("two_stage", description="what overlaps with what")
    bucket: Size | None = Field(None, description="bytes of a bucket (default: what fits, at most max_bucket)")
    max_bucket: Size | None = Field(
        None, description="largest bucket (default: from servers 8 GiB, from trainers 512 MiB)"
    )
    mem_fraction: Annotated[float, Field(gt=0, le=1)] = Field(0.9, description="usable share of free memory")
    free_memory: Size | None = Field(
        None, description="free device memory before the update: engines hold the rest (default: derived)"
    )
    h2d_buffer: bool = Field(True, description="whether each rank has a buffer for host-to-device copies")
    h2d_freed: Literal["start", "end"] = Field("start", description="three_stage: what of a broadcast frees it")
    ranks: PositiveInt | None = Field(None, description="p2p: how many ranks are updated (default: all)")
    readers: Literal["assigned", "one"] | None = Field(
        None, description="p2p: a receiver per NIC (default), or one rank that reads all"
    )
    process_group: Literal["new", "kept"] | None = Field(
        None, description="whether the update creates its process group (default: from servers new, from trainers kept)"
    )
    inference: Inference = Field(default=Inference(), description="the engines that receive the weights")
    trainer: Trainer | None = Field(None, description="from trainers: the GPUs that hold the new weights")
    messages: Literal["tensor", "bucket"] | None = Field(
        None, description="stage_heads, reshard, colocated: a message or handle per tensor (default) or per bucket"
    )
    quantize: Literal["none", "before", "after"] = Field(
        "none", description="from trainers: BF16 weights become FP8 before or after the wire"
    )
    delta: Delta | None = Field(None, description="from trainers: send only what changed")
    storage: Storage | None = Field(None, description="file_system: what it takes and gives")
    registration: Literal["kept", "new"] = Field(
        "kept", description="writes and chain: whether engines first make their tensors known to the NICs"
    )
    in_flight: PositiveInt = Field(2, description="from trainers: buckets in flight at once, if there are so many")
    load: bool = Field(True, description="from trainers: whether engines load what they receive")
    drain: Seconds | None = Field(None, description="from trainers: time until running requests have stopped")


class Collectives(Algorithms):
    """By which algorithms ranks exchange. Measured: streams round the library's ring, with the stack's numbers."""

    broadcast: str = Field(MEASURED, description="buckets to all ranks: measured, chain, binomial, …")
    all_gather: str = Field(MEASURED, description="shards of trainers: measured, ring, …")
    all_reduce: str = Field(MEASURED, description="agreements between buckets: measured, tree, …")


class Scenario(OnCluster):
    """One weight update."""

    kind: Literal["weight_update"] = Field(description="what is simulated")
    stack: str = Field("checkpoint-engine", description="software stack")
    model: Model = Field(description="the weights")
    update: Update = Field(default=Update(), description="how they travel")
    collectives: Collectives = Field(default=Collectives(), description="by which algorithms ranks exchange")
    slow: SlowNodes = ()
    fold: bool = Field(True, description="whether ranks that act alike are simulated once")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="seed of what is random: the bytes that execute sends")
