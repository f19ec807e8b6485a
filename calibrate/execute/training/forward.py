"""Forward ops: which values each kernel and each exchange takes and gives, by the op's label."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import kernels
from .context import Context
from .exchanges import Exchanges
from .flow import Flow, Made, Op, Step
from .sharing import SharedForward
from .slots import Act, Slot, act
from .view import RankView

Weights = Callable[[Flow, int, str], tuple[Slot, Callable[[Tensor], Tensor]]]
"""Of a flow, a layer and a parameter or GEMM: the slot of the flat vector that holds it, and how to view it there."""

EMBEDDING, OUTPUT = "model.embed_tokens.weight", "logits"
NORMS = {
    "input_norm": ("input_layernorm.weight",), "mlp_norm": ("post_attention_layernorm.weight",),
    "final_norm": ("model.norm.weight",), "qk_norm": ("self_attn.q_norm.weight", "self_attn.k_norm.weight"),
}  # fmt: skip
NETWORKS = tuple(f"mlp.experts.{{}}.{name}_proj.weight" for name in ("gate", "up", "down"))


class Forward:
    """Binds the forward ops of a rank."""

    def __init__(self, view: RankView, exchanges: Exchanges, weights: Weights):
        self.view, self.exchanges, self.held = view, exchanges, weights
        self.sharing = SharedForward(Context(view, exchanges))
        self.tied = not any(unit.layouts["dense"].has(OUTPUT) for units in view.units.values() for unit in units)

    def bind(self, flow: Flow, layer: int, label: str) -> Act:
        """Bind the next op of this label."""
        op = self._op(flow, layer, label)
        takes = [flow.at[name] for name in op.takes]

        def make(takes: list[Slot]) -> Made:
            return self._make(flow, layer, op, takes)

        work, gives, record = make(takes)
        flow.steps[flow.next_key("forward", layer, label)] = Step(
            takes, gives, record, make, label in ("dispatch", "combine") or label.startswith(("tp ", "etp ", "cp "))
        )
        flow.at.update(zip(op.gives, gives, strict=True))
        flow.now = op.gives[0]
        return work

    def _make(self, flow: Flow, layer: int, op: Op, takes: Sequence[Slot]) -> Made:
        held = [self.held(flow, layer, name) for name in op.weights]
        gives, record = [Slot() for _ in op.gives], Slot() if op.learns else None
        first = len(takes)

        def work(*values: Any) -> Any:
            own = [view(flat) for (_, view), flat in zip(held, values[first:], strict=True)]
            if record is None:
                return op.work(*values[:first], *own)
            graph, outputs = kernels.run(op.work, *values[:first], *own)
            return (*outputs, graph)

        slots = [*takes, *(slot for slot, _ in held)]
        return act(work, slots, gives if record is None else [*gives, record]), gives, record

    def _op(self, flow: Flow, layer: int, label: str) -> Op:
        name, _, kind = label.partition(" ")
        if self.view.plan.dims.cp > 1 and (name == "cp" or label == "attention"):
            return self.sharing.op(flow.peek_key("forward", layer, label)[2], label)
        if name in ("tp", "etp"):
            return self._over_tp(flow, kind) if name == "tp" else self._over_etp(kind)
        if name in NORMS:
            return self._norm(name)
        if label in ("qkv", "proj", "up", "down"):
            return Op(("h",), ("h",), _product, (label,))
        makers: Mapping[str, Callable[[Flow], Op]] = {
            "embed": self._embed, "rope": self._rope, "attention": self._attention, "loss": self._loss,
            "topk": self._topk, "permute": self._permute, "dispatch": self._dispatch, "combine": self._combine,
        }  # fmt: skip
        if label in makers:
            return makers[label](flow)
        if label == "logits":
            return Op(("h",), ("h",), _product, (EMBEDDING if self.tied else OUTPUT,))
        return _PLAIN[label]

    def _over_tp(self, flow: Flow, kind: str) -> Op:
        key = self.view.key("tp")
        work = {"all_gather": self.exchanges.gather, "reduce_scatter": self.exchanges.reduce_scatter,
                "all_reduce": self.exchanges.all_reduce}[kind]  # fmt: skip
        return Op((flow.now,), (flow.now,), lambda rows: work(key, rows))

    def _over_etp(self, kind: str) -> Op:
        key = self.view.key("etp")
        if kind == "reduce_scatter":
            return Op(("h", "rows"), ("h",), lambda rows, counts: self.exchanges.reduce_uneven(key, rows, counts))

        def gather(rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, list[int]]:
            found, many = self.exchanges.gather_uneven(key, rows)
            return found, self.exchanges.gather(key, counts), many

        return Op(("h", "counts"), ("h", "counts", "rows"), gather)

    def _norm(self, label: str) -> Op:
        if label == "qk_norm":
            return Op(
                ("h",),
                ("h",),
                lambda qkv, q, k: kernels.head_norms(qkv, q, k, self.view.heads),
                NORMS[label],
                learns=True,
            )
        return Op(("x",), ("h",), kernels.rms_norm, NORMS[label], learns=True)

    def _embed(self, flow: Flow) -> Op:
        tokens, part = self.view.inputs(flow.microbatch), self.view.at.tp

        def look_up(table: Tensor) -> Tensor:
            at = tokens - part * len(table)
            mine = (at >= 0) & (at < len(table))
            return table[at.clamp(0, len(table) - 1)] * mine[:, None]

        return Op((), ("x",), look_up, (EMBEDDING,))

    def _rope(self, flow: Flow) -> Op:
        positions = self.view.positions.repeat(self.view.plan.shard.batch)
        return Op(("h",), ("h",), lambda qkv: kernels.rope(qkv, positions, self.view.heads), learns=True)

    def _attention(self, flow: Flow) -> Op:
        batch, heads = self.view.plan.shard.batch, self.view.heads
        return Op(("h",), ("h",), lambda qkv: kernels.attention(qkv, batch, heads), learns=True)

    def _loss(self, flow: Flow) -> Op:
        targets, part = self.view.targets(flow.microbatch), self.view.at.tp
        return Op(("h",), ("loss",), lambda logits: kernels.loss_parts(logits, targets, part * logits.shape[1]))

    # Experts

    def _topk(self, flow: Flow) -> Op:
        chosen = self.view.moe.num_experts_per_tok
        return Op(("logits",), ("weights", "experts"), lambda logits: kernels.choose(logits, chosen), learns=True)

    def _permute(self, flow: Flow) -> Op:
        """Rows by expert; `counts` has shape [1, ranks of ep, experts of one], `order` the (token, choice) of each."""
        moe, eps = self.view.moe, self.view.at.eps

        def permute(rows: Tensor, experts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            order = experts.flatten().argsort(stable=True)
            counts = experts.flatten().bincount(minlength=moe.n_routed_experts)
            return rows[order // experts.shape[1]], order, counts.view(1, eps, -1)

        return Op(("h", "experts"), ("h", "order", "counts"), permute)

    def _dispatch(self, flow: Flow) -> Op:
        """Rows to the ranks of their experts; `route` is how many were sent to each and came from each."""
        key, eps = self.view.key("ep"), self.view.at.eps

        def send(rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, tuple[list[int], list[int]]]:
            came = self.exchanges.exchange(key, counts[0], [1] * eps, [1] * eps)
            route = counts[0].sum(dim=1).tolist(), came.sum(dim=1).tolist()
            return self.exchanges.exchange(key, rows, *route), came[None], route

        return Op(("h", "counts"), ("h", "counts", "route"), send)

    def _combine(self, flow: Flow) -> Op:
        key = self.view.key("ep")
        return Op(("h", "route"), ("h",), lambda rows, route: self.exchanges.exchange(key, rows, *route[::-1]))


def _product(rows: Tensor, matrix: Tensor) -> Tensor:
    return rows @ matrix.T


def _sort(rows: Tensor, counts: Tensor) -> tuple[Tensor, tuple[Tensor, list[int]]]:
    """Rows of one source after another, each by expert, as rows by expert alone; and how to undo it."""
    experts = torch.arange(counts.shape[-1]).repeat(counts[..., 0].numel())
    order = experts.repeat_interleave(counts.flatten()).argsort(stable=True)
    return rows[order], (order, counts.sum(dim=(0, 1)).tolist())


def _unsort(rows: Tensor, placed: tuple[Tensor, list[int]]) -> Tensor:
    return torch.empty_like(rows).index_copy_(0, placed[0], rows)


def _networks(rows: Tensor, placed: tuple[Tensor, list[int]], *matrices: Tensor) -> Tensor:
    gate, up, down = matrices
    return kernels.experts(rows, gate, up, down, placed[1])


_PLAIN: Mapping[str, Op] = {
    "residual": Op(("x", "h"), ("x",), torch.add),
    "activation": Op(("h",), ("h",), kernels.swiglu, learns=True),
    "router": Op(("h",), ("logits",), _product, ("router",)),
    "sort": Op(("h", "counts"), ("h", "placed"), _sort),
    "experts": Op(("h", "placed"), ("h",), _networks, NETWORKS, learns=True),
    "unsort": Op(("h", "placed"), ("h",), _unsort),
    "unpermute": Op(("h", "weights", "order"), ("h",), kernels.weighted_sum, learns=True),
}
