"""The engine of a scenario: whether its model can be served and fits, its KV cache, and its pace."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import inf

from ...base.errors import UserError, fault
from ...base.units import format_bytes
from ...collectives import Machines
from ...hardware import Cluster
from ...models import ModelSpec
from ...models.parameters import split
from .engine import EngineCosts, EngineShape, Part, Terms, groups_of
from .pace import Curve, Roofline
from .scenario import Engine

_WATERMARK = 0.01
"""Share of the KV cache that stays free when a request starts (vLLM, v0.10: core/block_manager.py, watermark)."""

_TILE = 128
"""Rows of a tile of a GEMM, of which a last one that is nearly empty takes as long as a full one."""

_SIZES = tuple(sorted({
    *range(1, 17), 24, 48,
    *(tiles * _TILE + more for tiles in range(1, 17) for more in (0, 1)),
    *(2**power for power in range(5, 22)),
}))  # fmt: skip
"""Tokens of a step, or of a prompt, at which it is priced; between them it is linear (attention: that of a token).

Up to 2,048 they are both sides of each size at which GEMMs become longer at once, and few requests are priced one by
one, as each touches experts of its own.
"""

_UNKNOWN: dict[str, Callable[[ModelSpec], bool]] = {
    "layers that replace attention": lambda spec: spec.linear_attention is not None,
    "compressed attention": lambda spec: spec.compressed is not None,
    "towers or attention to them": lambda spec: bool(spec.towers) or spec.cross is not None,
    "attention to later tokens": lambda spec: not spec.causal,
    "several kinds of attention": lambda spec: bool(spec.variants),
}
"""Architectures whose decoding is not modelled."""


@dataclass(frozen=True)
class Served:
    """An engine with what it serves; `usual` are the mean tokens of an answer and of a prompt.

    Where engines are not `alike` it is the slowest one.
    """

    said: Engine
    costs: EngineCosts
    usual: tuple[float, float]
    device_bytes: float
    context_bytes: float
    alike: bool = True

    @property
    def shape(self) -> EngineShape:
        """The model on the engine's ranks."""
        return self.costs.shape

    # Memory

    @property
    def weight_bytes(self) -> float:
        """Bytes of a rank's weights."""
        return self.shape.weight_bytes

    @property
    def working_bytes(self) -> float:
        """Bytes that a rank needs for a step: activations of the widest layer and logits in 32 bits, at their most."""
        spec, tp = self.shape.spec, self.shape.tp
        inter = max(spec.intermediate_size, spec.moe.shared_intermediate_size if spec.moe else 0)
        per_token = 2 * (2 * spec.hidden_size + 3 * split(inter, tp))
        if spec.moe is not None:
            chosen, width = spec.moe.num_experts_per_tok, spec.moe.moe_intermediate_size
            per_token += 2 * chosen * (spec.hidden_size + 3 * width // self.shape.etp)
        return float(per_token * self.said.max_tokens + 10 * spec.vocab_size * self.said.max_batch)

    @property
    def cache_bytes(self) -> float:
        """Bytes that a rank has for its KV cache: its share of the memory less everything else."""
        share = self.device_bytes * self.said.memory_fraction
        return share - self.context_bytes - self.weight_bytes - self.working_bytes

    @property
    def capacity(self) -> float:
        """Tokens in the KV cache of the engine."""
        return self.shape.dp * self.cache_bytes / self.shape.token_bytes

    @property
    def room(self) -> int:
        """Requests of the usual length whose tokens fill the KV cache."""
        return int(self.capacity // sum(self.usual))

    # Time

    @cached_property
    def pace(self) -> Roofline:
        """How fast the engine decodes and prefills."""
        costs, said = self.costs, self.said
        windows = costs.windows()
        return Roofline(
            layers=_curve(lambda tokens: _seconds(costs.layers(tokens)), said.max_batch + said.max_tokens),
            head=_curve(lambda requests: _seconds(costs.head(requests)), said.max_batch),
            attention=_curve(lambda tokens: _seconds(costs.attention(tokens)) / tokens, self.capacity / self.shape.dp),
            cached_s=_seconds(costs.cache()),
            capacity=self.capacity,
            admits=self.capacity * (1 - _WATERMARK),
            windowed_s=sum(_seconds(parts) for _, parts in windows),
            window=max((window for window, _ in windows), default=0),
            replicas=self.shape.dp,
            chunk=said.max_tokens,
            step_s=said.step_time,
            request_s=costs.request[1],
            shares_prompts=said.prefix_caching,
            redoes=said.recompute,
            issue_s=costs.issue[1],
            graph_batch=inf if said.graph_batch is None else said.graph_batch,
        )

    def step(self, running: float) -> Terms:
        """A step with so many requests of half the usual answer."""
        answer, prompt = self.usual
        return self.costs.step(max(round(running), 1), prompt + answer / 2)

    @property
    def notes(self) -> list[str]:
        """Assumptions, for the report."""
        held = f"{format_bytes(self.weight_bytes)} of weights and {format_bytes(self.cache_bytes)} of KV cache a GPU"
        notes = [f"an engine has {held}: {self.capacity:,.0f} tokens"]
        if not self.alike:
            rank = self.costs.ranks[0]
            notes.append(f"engines are not alike: all are taken to decode as the slowest one, that of rank {rank}")
        if not self.said.step_time and not self.costs.request[1]:
            notes.append("no host time of engines is counted; see rollout.engine.step_time")
        if self.shape.index_layers:
            notes.append("an indexer reads keys in 8 bits, and computes at the peak of 16 bits, as nobody measured it")
        return notes


def _seconds(parts: Iterable[Part]) -> float:
    return Terms.add(parts).seconds


def _curve(seconds_at: Callable[[int], float], most: float) -> Curve:
    """A curve through the sizes up to the first one that is no smaller than `most`."""
    below = list(takewhile(lambda size: size < most, _SIZES))
    sizes = (*below, *_SIZES[len(below) : len(below) + 1])
    return Curve(sizes, tuple(map(seconds_at, sizes)))


def serve(
    said: Engine,
    tp: int,
    spec: ModelSpec,
    dtype: str,
    machines: Machines,
    ranks: Sequence[int],
    usual: tuple[float, float],
    where: str,
) -> Served:
    """The engine that a scenario describes, the slowest of those on these ranks.

    `dtype` is that of its weights where it says none.

    Raises:
        UserError: its model is none whose decoding is modelled, cannot be cut so, or does not fit.
    """
    check_shape(said, tp, spec, where)
    shape = EngineShape(spec, tp, said.dp, said.ep, said.dtype or dtype, said.kv_dtype)
    groups = _engines(shape, machines.cluster, ranks, where)
    costs = [
        EngineCosts(shape, machines, group, said.step_time, said.request_time, said.graph_batch) for group in groups
    ]
    slowest = max(costs, key=lambda one: one.step(said.max_batch * said.dp, sum(usual)).seconds)
    device = min(float(machines.cluster.device(rank).memory_bytes) for group in groups for rank in group)
    context_bytes = machines.profile.value_or("memory.context_bytes", 0.0)
    served = Served(said, slowest, usual, device, context_bytes, alike=len(groups) == 1)
    if served.capacity < sum(usual):
        allowed = (
            f"{format_bytes(served.weight_bytes)} of weights leave {format_bytes(max(served.cache_bytes, 0.0))} of "
            f"{format_bytes(device)} for a KV cache of {max(served.capacity, 0.0):,.0f} tokens"
        )
        raise UserError(fault(where, "rollout.engine.tp", tp, allowed))
    return served


def check_shape(said: Engine, tp: int, spec: ModelSpec, where: str) -> None:
    """A UserError where the model is none whose decoding is modelled, or cannot be cut so."""
    unknown = [what for what, has in _UNKNOWN.items() if has(spec)]
    if unknown:
        raise UserError(fault(where, "rollout.engine", spec.name, f"its decoding is not modelled: {unknown[0]}"))
    ranks = tp * said.dp
    if said.ep not in (1, ranks) or (said.ep > 1 and spec.moe is None):
        allowed = "the model has no experts" if spec.moe is None else f"expected 1 or tp x dp = {ranks}"
        raise UserError(fault(where, "rollout.engine.ep", said.ep, allowed))
    if said.dp > 1 and said.ep == 1:
        allowed = f"is for experts that are spread: rollout.engine.ep = {ranks}; give more engines otherwise"
        raise UserError(fault(where, "rollout.engine.dp", said.dp, allowed))
    if spec.num_attention_heads % tp:
        raise UserError(fault(where, "rollout.engine.tp", tp, f"must divide the {spec.num_attention_heads} heads"))


def _engines(shape: EngineShape, cluster: Cluster, ranks: Sequence[int], where: str) -> list[tuple[int, ...]]:
    """The ranks of the engines, those of one where several lie on nodes in the same way."""
    size = shape.tp * shape.dp
    if size > len(ranks):
        allowed = f"tp x dp = {size}, and {len(ranks)} GPUs roll out"
        raise UserError(fault(where, "rollout.engine.tp", shape.tp, allowed))
    groups = groups_of(ranks, size, cluster)
    for group in groups:
        if len(kinds := {cluster.device(rank).name: None for rank in group}) > 1:
            allowed = f"an engine has GPUs of one kind, not {' and '.join(kinds)}"
            raise UserError(fault(where, "rollout.engine.tp", shape.tp, allowed))
    return groups
