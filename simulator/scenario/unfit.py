"""What fused gradients, a sharded embedding, 2-D tensor parallelism and unfused attention do not go with."""

from collections.abc import Iterator
from math import isqrt

from ..errors import fault
from ..parallel import ParallelDims
from ..workload import ModelSpec
from .training import TrainScenario


def unfit(scenario: TrainScenario, spec: ModelSpec, dims: ParallelDims, where: str) -> Iterator[str]:
    """The faults of all four, one line each."""
    if scenario.overlap.fusion is not None:
        given = scenario.overlap.fusion.model_dump()
        yield from (fault(where, "overlap.fusion", given, line) for line in _fusion(scenario))
    if scenario.parallel.shard_embedding:
        yield from (fault(where, "parallel.shard_embedding", True, line) for line in _embedding(scenario, spec))
    if scenario.parallel.tp_2d:
        yield from (fault(where, "parallel.tp_2d", True, line) for line in _grid(scenario, spec, dims))
    if scenario.attention == "unfused" and (dims.cp > 1 or scenario.parallel.tp_2d):
        allowed = "scores are not split over ranks by cp or tp_2d: flash with these"
        yield fault(where, "attention", "unfused", allowed)


def _fusion(scenario: TrainScenario) -> Iterator[str]:
    if scenario.parallel.zero:
        yield f"Horovod all-reduces whole gradients: zero = 0, not {scenario.parallel.zero}"
    if not scenario.overlap.dp:
        yield "gradients travel beside the backward: overlap.dp = true"
    if scenario.bucket is not None:
        yield "its threshold takes the place of bucket: leave that out"
    if scenario.level != "kernels":
        yield "ticks lie between kernels: level = 'kernels'"


def _embedding(scenario: TrainScenario, spec: ModelSpec) -> Iterator[str]:
    if spec.tie_word_embeddings:
        yield f"the output matrix of {spec.name} is its embedding, and is read whole: not with tied embeddings"
    if scenario.parallel.zero == 3:
        yield "zero = 3 shards and gathers the embedding already: 0 to 2"
    if scenario.parallel.tp_2d:
        yield "tp_2d splits the embedding over its grid: one of the two"
    if scenario.schedule.name == "dualpipe":
        yield "in dualpipe each stage lies on two ranks, and so does the embedding: another schedule"


def _grid(scenario: TrainScenario, spec: ModelSpec, dims: ParallelDims) -> Iterator[str]:
    given, batch, q = scenario.parallel, scenario.batch, isqrt(dims.tp)
    if q * q != dims.tp:
        yield f"tp = {dims.tp} is no square: such as {q * q} or {(q + 1) ** 2}"
        return
    if given.sequence_parallel and "sequence_parallel" in given.model_fields_set:
        yield "a grid splits tokens itself: sequence_parallel = false"
    kinds = {"experts": spec.moe, "latent attention": spec.mla, "linear attention": spec.linear_attention}
    if held := [name for name, there in kinds.items() if there]:
        yield f"{spec.name} has {' and '.join(held)}: dense models with plain attention only"
    if dims.cp > 1 or scenario.lora is not None or scenario.overlap.tp:
        yield "neither with cp above 1, nor with lora, nor with overlap.tp, which it has of its own"
    sizes = {"hidden size": spec.hidden_size, "width of the network": spec.intermediate_size}
    for name, size in {**sizes, "heads": spec.num_attention_heads, "batch.micro": batch.micro}.items():
        if size % q:
            yield f"{name} = {size}: must be a multiple of the grid's side, {q}"
