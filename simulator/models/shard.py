"""Shards: what one rank computes of a micro-batch, and of a model on a grid; and builders of kernels on one rank.

Which kernels that are is `blocks`'.
"""

from dataclasses import dataclass, replace

from .kernels import Kept, Kernel, Kernels, element_bytes
from .model import ModelSpec
from .parameters import Parameters, matrix

_SCALE = 4 / 128  # bytes of an element's share of its scale: one in fp32 for 128 of a row (arXiv 2412.19437, 3.3.2)
STORED = {"bf16": 2.0, "fp8": 1 + _SCALE, "e5m6": 1.5 + _SCALE}
"""Bytes of an element of an activation that is kept or sent in a type of its own; E5M6 has 12 bits."""


@dataclass(frozen=True)
class Shard:
    """What one rank computes of a micro-batch of `batch` sequences of `seq` tokens.

    `linear` is the type of matrix products, `dtype` that of all else. `load` is how many times its even share of
    tokens the most loaded rank's experts get. `lora_rank` adds adapters to the products named in `adapted`.
    `unfused` attention has kernels of its own for scores and softmax, with `dropout` between them and values if so.
    `loss_passes`: the loss is made by one pass over the logits after another, in fp32.
    `keeps_gathered` keeps what is gathered over tp whole, in place of a rank's own part; `keeps_gate` keeps a gate's
    activation beside its product. `stored` are types in which the inputs of modules lie until the backward: of the
    product behind attention (attn_proj), of an activation (mlp_act, moe_act), of experts' first product (expert_fc1).
    `dispatch` is the type in which tokens go to experts, that of all else if none is given.
    `side` is that of a grid of tp = side x side ranks, which split sequences and widths; 1 where tp splits widths.
    """

    batch: int
    seq: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = True
    cp_type: str = "ring"
    linear: str = "bf16"
    dtype: str = "bf16"
    load: float = 1.0
    lora_rank: int = 0
    adapted: tuple[str, ...] = ()
    side: int = 1
    unfused: bool = False
    dropout: bool = False
    loss_passes: bool = False
    keeps_gathered: bool = False
    keeps_gate: bool = False
    stored: tuple[tuple[str, str], ...] = ()
    dispatch: str = ""

    @property
    def tokens(self) -> int:
        """Tokens that the ranks of a tensor-parallel group compute together."""
        return self.batch * self.seq // self.cp

    @property
    def own_tokens(self) -> int:
        """Tokens of which this rank computes norms and residuals; on a grid, the whole ones that its parts make up."""
        return -(-self.tokens // self.tp) if self.sequence_parallel or self.side > 1 else self.tokens

    @property
    def wide(self) -> int:
        """Bytes of an element of an activation."""
        return int(element_bytes(self.dtype))

    @property
    def narrow(self) -> float:
        """Bytes of an element of what a matrix product reads."""
        return min(element_bytes(self.linear), self.wide)

    def stored_bytes(self, module: str, otherwise: float) -> float:
        """Bytes of an element of a module's input until the backward, where none is stated `otherwise`."""
        stored = dict(self.stored).get(module)
        return otherwise if stored is None else STORED[stored]

    @property
    def dispatch_bytes(self) -> float:
        """Bytes of an element of a token on its way to experts."""
        return STORED[self.dispatch] if self.dispatch else self.wide

    @property
    def plain(self) -> str:
        """The type of products that stay out of 8 bits."""
        return self.linear if element_bytes(self.linear) >= 2 else self.dtype


def block(spec: ModelSpec, side: int) -> ModelSpec:
    """What one rank of a grid holds: a model so many times narrower, whose matrices are blocks of the whole one's."""
    return replace(
        spec, hidden_size=spec.hidden_size // side, num_attention_heads=spec.num_attention_heads // side,
        num_key_value_heads=max(spec.num_key_value_heads // side, 1), vocab_size=-(-spec.vocab_size // side),
        intermediate_size=spec.intermediate_size // side,
    )  # fmt: skip


def rank_view(spec: ModelSpec, shard: Shard) -> tuple[ModelSpec, Shard]:
    """The model and its sharding as one rank sees them: on a grid, its block and its share of the sequences alone."""
    if shard.side == 1:
        return spec, shard
    return block(spec, shard.side), replace(shard, batch=shard.batch // shard.side, tp=1)


def gemm(
    shard: Shard,
    table: Parameters,
    name: str,
    part: str,
    tokens: int,
    role: str = "",
    *,
    keeps: float = 0,
    kept_width: int = 0,
    dtype: str = "",
) -> Kernels:
    """The GEMM of this name on so many tokens, with its adapter's two where it has one; none without parameters.

    `role` is what adapters are asked for by. For the backward it keeps `keeps` bytes of each output, or of `kept_width`
    values per token. On a grid it is as many equal steps as the grid is wide, which all add to one result.
    """
    n, k = matrix(table, name, shard.tp)
    if not n:
        return ()
    kept = (Kept(part, round(tokens * (kept_width or n) * keeps)),) if keeps else ()
    shape = (tokens, n, k)
    base = Kernel("gemm", name, part, shape, dtype or shard.linear, keeps=kept, trained=not shard.lora_rank)
    if not shard.lora_rank or role not in shard.adapted:
        return (*[replace(base, keeps=())] * (shard.side - 1), base)
    rank, wide = shard.lora_rank, shard.plain
    down_kept = (Kept("lora", tokens * rank * shard.wide),)
    down = Kernel("gemm", f"{name}_lora_a", "lora", (tokens, rank, k), wide, keeps=down_kept)
    return (base, down, Kernel("gemm", f"{name}_lora_b", "lora", (tokens, n, rank), wide))


def memory_bound(
    kind: str, name: str, part: str, width: int, elements: float, per_element: float, shard: Shard, keeps: float = 0
) -> Kernel:
    """A kernel that moves `per_element` values of the activations' type for each element, and keeps `keeps` bytes."""
    kept = (Kept(part, round(keeps)),) if keeps else ()
    return Kernel(kind, name, part, (width,), shard.dtype, round(elements * per_element * shard.wide), kept)
