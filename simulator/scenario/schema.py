"""What a scenario file may say: one pydantic model per table, a description per field. No defaults live elsewhere."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, model_validator

from ..units import parse

_LARGEST = 2**60


def _size(value: Any) -> int:
    size = round(min(parse(value, "bytes"), 2.0 * _LARGEST))
    if not 0 < size <= _LARGEST:
        raise ValueError("expected a size above zero, and at most 1 EiB")
    return size


def _rate(value: Any) -> float:
    rate = parse(value, "bytes_per_s")
    if not 0 < rate < 1e18:
        raise ValueError("expected a rate above zero, such as '20 GB/s'")
    return rate


def _seconds(value: Any) -> float:
    seconds = parse(value, "seconds")
    if not 0 <= seconds < 1e9:
        raise ValueError("expected a duration, such as '2 s'")
    return seconds


Size = Annotated[int, BeforeValidator(_size)]
Rate = Annotated[float, BeforeValidator(_rate)]
Seconds = Annotated[float, BeforeValidator(_seconds)]


FOR_PEOPLE = ("name", "notes")
"""Keys that no prediction rests on."""


class Table(BaseModel):
    """A table of a scenario file: no key but those named here, each of exactly its type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Model(Table):
    """The weights: a preset, a Hugging Face config, or totals alone."""

    preset: str | None = Field(None, description="name of a shipped model, such as kimi-k2")
    config: str | dict[str, Any] | None = Field(
        None, description="a Hugging Face config.json, the folder that holds it, or its keys"
    )
    bytes: Size | None = Field(None, description="total bytes, for a model known by totals alone")
    tensors: PositiveInt | None = Field(None, description="number of tensors, with bytes")
    largest: Size | None = Field(None, description="bytes of the largest tensor, with bytes (default: an even split)")
    mtp: bool = Field(True, description="whether the checkpoint's multi-token-prediction layers are sent too")
    overrides: dict[str, Any] = Field(default_factory=dict, description="Hugging Face keys that replace the preset's")

    @model_validator(mode="after")
    def _one_source(self) -> "Model":
        given = [key for key in ("preset", "config", "bytes") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of preset, config or bytes (given: {', '.join(given) or 'none'})")
        if self.bytes is not None and self.tensors is None:
            raise ValueError("bytes and tensors go together")
        return self


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
    """A file system that all share.

    The default is the middle one of three in NVIDIA's guidelines for a unit of 32 nodes (DGX SuperPOD reference
    architecture, RA-11333-001 V11, table 6): 15 and 7, 40 and 20, or 125 and 62 GB/s out and in.
    """

    write: Rate = Field(20e9, description="what it takes in all (default: 20 GB/s, assumed)")
    read: Rate = Field(40e9, description="what it gives in all (default: 40 GB/s, assumed)")


SERVED = ("broadcast", "p2p")
FROM_TRAINERS = (
    "single_sender", "relays", "all_senders", "stage_heads", "replica_writes", "static_writes", "reshard", "chain",
    "colocated", "file_system",
)  # fmt: skip
REGISTERED = ("replica_writes", "static_writes", "chain")
TENSOR_BY_TENSOR = ("stage_heads", "reshard", "colocated")
PUT_IN_PLACE = ("replica_writes", "static_writes")
"""Methods whose writes end where the engine reads its weights: nobody at the receiver does anything with them."""


class Update(Table):
    """How the weights travel."""

    method: Literal[
        "broadcast", "p2p",
        "single_sender", "relays", "all_senders", "stage_heads", "replica_writes", "static_writes", "reshard", "chain",
        "colocated", "file_system",
    ] = Field("broadcast", description="how the bytes reach the ranks")  # fmt: skip
    pipeline: Literal["two_stage", "three_stage", "serial"] = Field("two_stage", description="what overlaps with what")
    bucket: Size | None = Field(None, description="bytes of a bucket (default: what fits, at most max_bucket)")
    max_bucket: Size = Field(8 * 2**30, description="largest bucket by default (from trainers: 512 MiB)")
    mem_fraction: Annotated[float, Field(gt=0, le=1)] = Field(0.9, description="usable share of free memory")
    free_memory: Size | None = Field(None, description="free device memory before the update (default: derived)")
    h2d_buffer: bool = Field(True, description="whether each rank has a buffer for host-to-device copies")
    h2d_freed: Literal["start", "end"] = Field("start", description="three_stage: what of a broadcast frees it")
    ranks: PositiveInt | None = Field(None, description="p2p: how many ranks are updated (default: all)")
    readers: Literal["assigned", "one"] | None = Field(
        None, description="p2p: a receiver per NIC (default), or one rank that reads all"
    )
    process_group: Literal["new", "kept"] = Field("new", description="whether the update creates its process group")
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
    in_flight: PositiveInt = Field(2, description="from trainers: buckets in flight at once")
    load: bool = Field(True, description="from trainers: whether engines load what they receive")
    drain: Seconds | None = Field(None, description="from trainers: time until running requests have stopped")


class Slow(Table):
    """A node that runs slower than its like."""

    node: Annotated[int, Field(ge=0)] = Field(description="which node")
    factor: Annotated[float, Field(ge=1, le=1000)] = Field(description="how many times longer its own work takes")


class Scenario(Table):
    """One question to the simulator. The content hash names its results."""

    name: str = Field("unnamed", description="a title for people; not part of the hash")
    notes: tuple[str, ...] = Field((), description="lines that the report repeats; not part of the hash")
    kind: Literal["weight_update"] = Field(description="what is simulated")
    cluster: str | dict[str, Any] = Field(description="a cluster by name, a file, or a table of changes to one")
    nodes: Annotated[int, Field(gt=0, le=100_000)] = Field(1, description="number of nodes")
    profile: str | None = Field(None, description="device profile (default: the device's own, else generic)")
    stack: str = Field("checkpoint-engine", description="software stack")
    model: Model = Field(description="the weights")
    update: Update = Field(default=Update(), description="how they travel")
    slow: tuple[Slow, ...] = Field((), description="nodes that run slower than the others")
    fold: bool = Field(True, description="whether ranks that act alike are simulated once")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="seed of what is random: the bytes that execute sends")
