"""An inference engine: what it holds, and what a step of it takes, by roofline over the profile's kernels.

A step makes one token of every running request, and may prefill prompts beside. Its GEMMs read all weights of a rank,
its attention all keys and values in the cache. The profile prices the GEMMs at the step's few rows, the experts that
these touch, and the small messages between ranks; it has no kernel of decoding attention, which reads the cache at the
rate that device memory sustains, or computes at the device's peak, whichever takes longer.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from ...base.op_kinds import ATTENTION, op_kind
from ...collectives import CURVES, Collective, Layout, Machines, Pricer, price_slowest, pricer
from ...costs.kernels import Kernels
from ...hardware import Cluster
from ...models import ModelSpec
from ...models.blocks import embedding, embedding_parameters, head, head_parameters, layer, layer_parameters
from ...models.kernels import Kernel, element_bytes
from ...models.parameters import Parameters, split
from ...models.shard import Shard
from ...models.sparse_mla import LEARNING
from ...profile import PROVENANCE, Estimate, Parameter
from ...profile.forms.gemm import peak

GATHERS = ("permute", "sort", "unsort", "unpermute")
"""Kernels of a mixture of experts that are part of those which serve it."""

_CORE = "core_attn"  # the part of a layer that reads keys and values
_INDEX_BYTES = 1 + 4 / 128
"""Bytes of an element of an indexer's key: in FP8, with a scale in 32 bits for 128 (vLLM, DeepseekV32IndexerCache)."""

_WIDE = 2  # bytes of an element of an activation, and of weights that are not quantized
ISSUE = Parameter(
    0.00078,
    spread=0.2,
    provenance="fitted",
    source="beyond CUDA graphs, tokens of Qwen3 4B's 36 layers take 32.6 and 27.2 ms with SGLang (THisisPX/slime, "
    "A100) and 31.7 ms with vLLM's enforce_eager (THisisPX/verl_cambricon), those of Qwen2 7B's 28 layers 18.3 ms "
    "(eric-haibin-lin/verl-data, H20): 0.65 to 0.9 ms a layer, mean of logarithms 0.78, of which each is 13 % off "
    "(root mean square); dense models",
)
"""`engine.layer_s` where a stack tells none: host work of a layer in a step that is no CUDA graph."""

NO_WORK = Parameter(
    0.0, spread=0.0, provenance="assumed", source="engines of today prepare a step beside the one before it"
)
"""`engine.request_s` where a stack tells none."""

_PER_LOGIT = 10  # bytes: read in 16 bits, written in 32, read again by softmax (vLLM, v1/sample/sampler.py)


@dataclass(frozen=True)
class EngineShape:
    """A model on the `tp` x `dp` ranks of an engine; experts are spread over `ep` ranks, else cut like the rest.

    `dp` ranks (or groups of tp) have requests of their own. `dtype` is that of GEMMs and of the weights they read,
    `kv_dtype` that of keys and values.
    """

    spec: ModelSpec
    tp: int = 1
    dp: int = 1
    ep: int = 1
    dtype: str = "bf16"
    kv_dtype: str = "bf16"

    @property
    def etp(self) -> int:
        """Ranks that an expert is cut over."""
        return 1 if self.ep > 1 else self.tp

    @cached_property
    def weight_bytes(self) -> float:
        """Bytes of a rank's weights."""
        spec = self.spec
        tables: list[Parameters] = [layer_parameters(spec, spec.kind(number)) for number in range(spec.n_layers)]
        ends = [*embedding_parameters(spec), *head_parameters(spec, tied=spec.tie_word_embeddings)]
        return sum(map(self._bytes_of, (*tables, ends)))

    def _bytes_of(self, table: Parameters) -> float:
        total = 0.0
        for each in table:
            held = prod(each.rank_shape(self.etp if each.experts else self.tp))
            held *= split(each.experts, self.ep) if each.experts else 1
            total += held * (element_bytes(self.dtype) if each.quantized else _WIDE)
        return total

    @cached_property
    def kv_layers(self) -> Counter[int]:
        """Layers by the tokens of each request that attention reads: those of a window, or as many as are picked.

        0: all.
        """
        picked = self.spec.indexer.topk if self.spec.indexer else 0
        return Counter(self.spec.window(number) or picked for number in range(self.spec.n_layers))

    @property
    def index_layers(self) -> int:
        """Layers with an indexer, which reads its keys of all tokens."""
        return sum(self.spec.kind(number).indexer for number in range(self.spec.n_layers))

    @property
    def index_bytes(self) -> float:
        """Bytes of the key that a layer with an indexer keeps of a token, on each rank."""
        return _INDEX_BYTES * self.spec.indexer.head_dim if self.spec.indexer else 0.0

    @property
    def index_flop(self) -> float:
        """Floating-point operations of an indexer for one token in the cache, on each rank."""
        of = self.spec.indexer
        return 2.0 * of.num_heads * of.head_dim if of else 0.0

    @property
    def kv_bytes(self) -> float:
        """Bytes that a layer of a rank keeps of a token: heads of tp, or the latents, of which each rank has a copy."""
        width = element_bytes(self.kv_dtype)
        if (mla := self.spec.mla) is not None:
            return width * (mla.kv_lora_rank + mla.qk_rope_head_dim)
        both = self.spec.head_dim + self.spec.v_head_dim
        return width * split(self.spec.num_key_value_heads, self.tp) * both

    @property
    def token_bytes(self) -> float:
        """Bytes that all layers of a rank keep of a token, windows left out of account."""
        return self.kv_bytes * self.spec.n_layers + self.index_bytes * self.index_layers

    @property
    def token_flop(self) -> float:
        """Floating-point operations of a rank's attention for one token in the cache, in one layer.

        Latent attention multiplies latents, with the matrices behind them absorbed (DeepSeek-V2, arXiv 2405.04434).
        """
        heads = split(self.spec.num_attention_heads, self.tp)
        if (mla := self.spec.mla) is not None:
            return 2.0 * heads * (2 * mla.kv_lora_rank + mla.qk_rope_head_dim)
        return 2.0 * heads * (self.spec.head_dim + self.spec.v_head_dim)

    def shard(self, tokens: int, seq: int = 1) -> Shard:
        """What a rank computes in a step of `tokens` tokens, of requests with `seq` new ones each."""
        return Shard(
            batch=max(tokens // seq, 1), seq=seq, tp=self.tp, ep=self.ep, etp=self.etp, sequence_parallel=False,
            linear=self.dtype,
        )  # fmt: skip

    def layers(self, shard: Shard) -> Iterator[tuple[Kernel, int]]:
        """(kernel, how often) of all layers of a step and of the embedding, without attention to the cache."""
        for number, count in Counter(self.spec.first_alike[: self.spec.n_layers]).items():
            kernels = layer(self.spec, number, shard).all
            yield from ((kernel, count) for kernel in kernels if kernel.name not in (*GATHERS, *LEARNING))
        yield from ((kernel, 1) for kernel in embedding(self.spec, shard))

    def head(self, requests: int) -> Iterator[Kernel]:
        """The kernels from the last layer to a sampled token of each request."""
        *kernels, loss = head(self.spec, self.shard(requests))
        yield from kernels
        yield Kernel("softmax", "sampling", "head", loss.shape, loss.dtype, _PER_LOGIT * requests * loss.shape[0])


@dataclass(frozen=True)
class Terms:
    """Terms of a time: `seconds` in all, by provenance, and as `errors` by class: standard deviations in seconds."""

    seconds: float
    by_label: dict[str, float]
    errors: dict[str, float]

    @classmethod
    def add(cls, parts: Iterable[tuple[str, float, float, str]]) -> "Terms":
        """The sum of (class, seconds, relative spread, provenance); errors of one class go together."""
        labels, errors, total = defaultdict[str, float](float), defaultdict[str, float](float), 0.0
        for name, seconds, spread, label in parts:
            total += seconds
            labels[label] += seconds
            errors[name] += seconds * spread
        return cls(total, dict(labels), dict(errors))

    def add_to(self, issue: "Part | None", host: Sequence["Part"]) -> "Terms":
        """The step of these kernels, or of their issue where that takes longer, and what the host does before it."""
        before = [part for part in host if part[1]]
        if issue is not None and issue[1] > self.seconds:
            return Terms.add([issue, *before])
        more = Terms.add(before)
        return Terms(self.seconds + more.seconds, _sums(self.by_label, more.by_label), _sums(self.errors, more.errors))

    @property
    def spread(self) -> float:
        """The relative standard deviation; classes err independently."""
        return float(np.sqrt(sum(error**2 for error in self.errors.values()))) / self.seconds if self.seconds else 0.0

    @property
    def shares(self) -> dict[str, float]:
        """The share of the time by provenance."""
        return {name: seconds / self.seconds for name, seconds in self.by_label.items()}


Part = tuple[str, float, float, str]


def _sums(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {**one, **other}}


def groups_of(ranks: Sequence[int], size: int, cluster: Cluster) -> list[tuple[int, ...]]:
    """Groups of so many neighbours: the first one of all that lie on nodes in the same way."""
    groups = [tuple(ranks[first : first + size]) for first in range(0, len(ranks) - size + 1, size)]
    return list({_place_of(group, cluster): group for group in reversed(groups)}.values())


def _place_of(group: Sequence[int], cluster: Cluster) -> tuple[tuple[int, ...], ...]:
    """For each rank its kind of node, and which of the group is the first on its node, NVLink domain and site."""
    kinds = [id(cluster.nodes[cluster.node_of(rank)]) for rank in group]
    homes = [[of(rank) for rank in group] for of in (cluster.node_of, cluster.island, cluster.site_of)]
    return tuple(zip(kinds, *([home.index(one) for one in home] for home in homes), strict=True))


@dataclass(frozen=True)
class EngineCosts:
    """What steps of an engine take on its `ranks` of a cluster, which are GPUs of one kind.

    `step_s`, and `request_s` for each request of a replica (None: the stack's), is host time that nothing hides. Steps
    of more than `graph_batch` requests on a replica (None: of none) are no CUDA graphs: they take at least the time in
    which the host issues their kernels.
    """

    shape: EngineShape
    machines: Machines
    ranks: tuple[int, ...]
    step_s: float = 0.0
    request_s: float | None = None
    graph_batch: int | None = None

    @cached_property
    def request(self) -> Part:
        """Host work of a step for each request: as given, or the stack's."""
        if self.request_s is not None:
            return "host", self.request_s, 0.0, "given"
        of = self.kernels.profile.parameters.get("engine.request_s", NO_WORK)
        return "requests", of.value, of.spread, of.provenance

    @cached_property
    def issue(self) -> Part:
        """The issue of a step's kernels by the host, where it is no CUDA graph."""
        of = self.kernels.profile.parameters.get("engine.layer_s", ISSUE)
        return "issue", self.shape.spec.n_layers * of.value, of.spread, of.provenance

    @cached_property
    def kernels(self) -> Kernels:
        """Prices of kernels on the engine's devices."""
        machine = self.machines.machine_of(self.ranks[0])
        return Kernels(machine.profile.as_served(), machine.limits, served=True)

    def layers(self, tokens: int) -> list[Part]:
        """The terms of all layers for a step of so many tokens on each of the dp ranks, without reading the cache."""
        shard = self.shape.shard(tokens)
        parts = [
            self._part(self._call(kernel) if op_kind(kernel.kind).form == ATTENTION else self._price(kernel),
                       kernel.kind, count)
            for kernel, count in self.shape.layers(shard)
        ]  # fmt: skip
        return [*parts, *self._exchanges(tokens)]

    def head(self, requests: int) -> list[Part]:
        """The terms of the logits and of sampling for so many requests on each of the dp ranks."""
        parts = [self._part(self._price(kernel), kernel.kind) for kernel in self.shape.head(requests)]
        if self.shape.tp > 1:
            size = float(_WIDE * requests * self.shape.spec.vocab_size)
            parts.append(self._in_groups("all_gather", size))
        return parts

    def cache(self) -> list[Part]:
        """The terms of attention for each token in the cache of a rank, in layers that read all tokens; of indexers."""
        shape = self.shape
        return [*self._attending(shape.kv_layers[0]),
                *self._reading(shape.index_layers, shape.index_bytes, shape.index_flop)]  # fmt: skip

    def windows(self) -> list[tuple[int, list[Part]]]:
        """(window, terms for each token in it) of layers that read so many tokens."""
        return [(window, self._attending(count)) for window, count in self.shape.kv_layers.items() if window]

    def attention(self, seq: int) -> list[Part]:
        """The terms of attention to a prompt of so many tokens, beyond what a step of as many tokens has."""
        shard = self.shape.shard(seq, seq)
        found = [(kernel, count) for kernel, count in self.shape.layers(shard)
                 if kernel.part == _CORE]  # fmt: skip
        return [self._part(self._price(kernel), kernel.kind, count) for kernel, count in found]

    def _attending(self, layers: int) -> list[Part]:
        return self._reading(layers, self.shape.kv_bytes, self.shape.token_flop)

    def _reading(self, layers: int, size_bytes: float, flop: float) -> list[Part]:
        """The terms of so many layers that read some bytes of a token in the cache, and compute with them."""
        limits = self.kernels.limits
        fraction: Parameter = self.kernels.profile["link_fraction.hbm"]
        read_s = size_bytes / (limits.memory_bytes_per_s * fraction.value)
        compute_s = flop / peak(limits, "bf16")
        if compute_s > read_s:
            return [("attention", layers * compute_s, fraction.spread, "datasheet")]
        return [("attention", layers * read_s, fraction.spread, fraction.provenance)]

    def _price(self, kernel: Kernel) -> Estimate:
        return self.kernels.estimate(kernel.kind, kernel.shape, kernel.bytes, kernel.dtype)

    def _call(self, kernel: Kernel) -> Estimate:
        """The call of an attention kernel, as that of a prompt of one token."""
        _, _, heads, kv_heads, *rest = kernel.shape
        return self._price(replace(kernel, shape=(1, 1, heads, kv_heads, *rest)))

    @staticmethod
    def _part(found: Estimate, name: str, count: int = 1) -> Part:
        return name, count * float(found.seconds[0]), float(found.spread[0]), found.labels()[0]

    def _exchanges(self, tokens: int) -> Iterator[Part]:
        """Sums over tp behind attention and network of a layer; with dp the experts' tokens go to and fro instead."""
        shape, spec = self.shape, self.shape.spec
        size, moe = float(_WIDE * tokens * spec.hidden_size), sum(map(spec.is_moe, range(spec.n_layers)))
        to_and_fro = moe if shape.dp > 1 else 0
        if shape.tp > 1:
            yield self._in_groups("all_reduce", size, 2 * spec.n_layers - to_and_fro + 1)
        if to_and_fro and spec.moe is not None:
            sent = size * spec.moe.num_experts_per_tok / shape.tp
            yield self._exchange("all_to_all", sent, self.ranks, 2 * to_and_fro)

    def _in_groups(self, op: str, size: float, count: int = 1) -> Part:
        """An exchange in each group of tp ranks: that of the slowest one."""
        groups = groups_of(self.ranks, self.shape.tp, self.machines.cluster)
        return max((self._exchange(op, size, group, count) for group in groups), key=lambda part: part[1])

    def _exchange(self, op: str, size: float, ranks: tuple[int, ...], count: int = 1) -> Part:
        found = price_slowest(self._pricer, self.machines, Collective(op, ranks, size))
        return op, count * found.seconds, found.spread, PROVENANCE[found.provenance]

    @cached_property
    def _pricer(self) -> Pricer:
        return pricer(CURVES, self.machines, Layout(self.machines.cluster, {}))

    def step(self, requests: int, context: float) -> Terms:
        """A step of an engine that makes a token for each of `requests` requests, of `context` tokens on average."""
        each = -(-requests // self.shape.dp)
        reads = [(context, self.cache()), *((min(context, window), parts) for window, parts in self.windows())]
        cached = [
            (name, seconds * each * tokens, spread, label)
            for tokens, parts in reads for name, seconds, spread, label in parts
        ]  # fmt: skip
        name, request_s, spread, label = self.request
        host = [("host", self.step_s, 0.0, "given"), (name, request_s * each, spread, label)]
        is_graph = self.graph_batch is None or each <= self.graph_batch
        on_device = Terms.add([*self.layers(each), *self.head(each), *cached])
        return on_device.add_to(None if is_graph else self.issue, host)
