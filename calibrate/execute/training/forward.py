"""Forward ops: which values each kernel and each exchange takes and gives, by the op's label."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from . import kernels
from .context import Context
from .exchanges import Exchanges
from .flow import Flow, Made, Op, Step
from .sharing import SharedForward
from .slots import Act, Slot, act
from .view import RankView
from .weights import EMBEDDING, NORMS, OUTPUT, POSITIONS

Weights = Callable[[Flow, int, str], tuple[Slot, Callable[[Tensor], Tensor]]]
"""Of a flow, a layer and a parameter or GEMM: the slot of the flat vector that holds it, and how to view it there."""

BRANCHES = "proj", "down"
"""The GEMMs at the end of the branches of a layer: their biases are added behind the exchanges, to the stream."""


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
        if label == "mlp_norm" and self.has_shared_experts(flow, layer):
            flow.at["s"] = flow.at["h"]
        if label == "add_shared":
            del flow.at["s"]
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
            return self.sharing.op(flow.peek_key("forward", layer, label)[2], label, self.view.plan.spec.window(layer))
        if name in ("tp", "etp"):
            return self._over_tp(flow, kind) if name == "tp" else self._over_etp(kind)
        if name in NORMS:
            return self._norm(flow, layer, name)
        if label in ("qkv", "proj", "up", "down"):
            own = () if label in BRANCHES else self.biases(flow, layer, label)
            return Op((flow.branch,), (flow.branch,), _product, (label, *own))
        layered: Mapping[str, Callable[[Flow, int], Op]] = {
            "attention": self._attention, "experts": self._experts, "residual": self._residual,
        }  # fmt: skip
        if label in layered:
            return layered[label](flow, layer)
        makers: Mapping[str, Callable[[Flow], Op]] = {
            "embed": self._embed, "rope": self._rope, "loss": self._loss, "activation": self._activation,
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
        name = flow.branch if "s" in flow.at else flow.now
        return Op((name,), (name,), lambda rows: work(key, rows))

    def _over_etp(self, kind: str) -> Op:
        key = self.view.key("etp")
        if kind == "reduce_scatter":
            return Op(("h", "rows"), ("h",), lambda rows, counts: self.exchanges.reduce_uneven(key, rows, counts))

        def gather(rows: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, list[int]]:
            found, many = self.exchanges.gather_uneven(key, rows)
            return found, self.exchanges.gather(key, counts), many

        return Op(("h", "counts"), ("h", "counts", "rows"), gather)

    def biases(self, flow: Flow, layer: int, gemm: str) -> tuple[str, ...]:
        """The biases of a GEMM as one parameter, if it has any."""
        return (f"{gemm} bias",) if self.view.has(flow.stage, layer, f"{gemm} bias") else ()

    def norms(self, flow: Flow, layer: int, label: str) -> tuple[str, ...]:
        """The parameters of a norm: weights, and a bias, if it has one."""
        names = [(name, name.replace(".weight", ".bias")) for name in NORMS[label]]
        return tuple(each for pair in names for each in pair if self.view.has(flow.stage, layer, each))

    def has_shared_experts(self, flow: Flow, layer: int) -> bool:
        """Whether a dense network stands beside the routed experts of a layer."""
        return all(self.view.has(flow.stage, layer, gemm) for gemm in ("experts", "up"))

    def networks(self, flow: Flow, layer: int) -> tuple[str, ...]:
        """The matrices of the experts: gate, up, down."""
        table = next(unit.table for unit in self.view.units[flow.stage] if unit.number == layer)
        return tuple(each.name for each in table if each.gemm == "experts")

    def _residual(self, flow: Flow, layer: int) -> Op:
        branch = BRANCHES[flow.peek_key("forward", layer, "residual")[2]]
        return Op(("x", "h"), ("x",), lambda *terms: sum(terms), self.biases(flow, layer, branch))

    def _activation(self, flow: Flow) -> Op:
        activation, is_gated = self.view.activation, self.view.plan.spec.gated_ffn
        work = partial(kernels.gated, activation=activation) if is_gated else activation
        return Op((flow.branch,), (flow.branch,), work, learns=True)

    def _experts(self, flow: Flow, layer: int) -> Op:
        def work(rows: Tensor, placed: tuple[Tensor, list[int]], *matrices: Tensor) -> Tensor:
            gate, up, down = matrices
            return kernels.experts(rows, gate, up, down, placed[1], self.view.activation)

        return Op(("h", "placed"), ("h",), work, self.networks(flow, layer), learns=True)

    def _norm(self, flow: Flow, layer: int, label: str) -> Op:
        if label == "qk_norm":
            return Op(
                ("h",),
                ("h",),
                lambda qkv, q, k: kernels.head_norms(qkv, q, k, self.view.heads),
                NORMS[label],
                learns=True,
            )
        return Op(
            ("x",), ("h",), kernels.NORM_KINDS[self.view.plan.spec.norm], self.norms(flow, layer, label), learns=True
        )

    def positions_of(self, flow: Flow) -> tuple[str, ...]:
        """The learned positions, on the one rank of tp that adds them to what all of them have looked up."""
        return self.learned_positions(flow) if self.view.at.tp == 0 else ()

    def learned_positions(self, flow: Flow) -> tuple[str, ...]:
        """The learned positions, if there are any. Who adds up gradients over tp must learn them on one rank alone."""
        learns = self.view.at.tp == 0 or not self.view.plan.shard.sequence_parallel
        return (POSITIONS,) if learns and self.view.has(flow.stage, -1, POSITIONS) else ()

    def _embed(self, flow: Flow) -> Op:
        tokens, places, part = self.view.inputs(flow.microbatch), self.view.places, self.view.at.tp

        def look_up(table: Tensor, *positions: Tensor) -> Tensor:
            at = tokens - part * len(table)
            mine = (at >= 0) & (at < len(table))
            found = table[at.clamp(0, len(table) - 1)] * mine[:, None]
            return found + positions[0][places] if positions else found

        return Op((), ("x",), look_up, (EMBEDDING, *self.positions_of(flow)))

    def _rope(self, flow: Flow) -> Op:
        places = self.view.places
        return Op(("h",), ("h",), lambda qkv: kernels.rope(qkv, places, self.view.heads), learns=True)

    def _attention(self, flow: Flow, layer: int) -> Op:
        plan, heads = self.view.plan, self.view.heads
        batch, window = plan.shard.batch, plan.spec.window(layer)
        return Op(("h",), ("h",), lambda qkv: kernels.attention(qkv, batch, heads, window), learns=True)

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


def _product(rows: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
    return linear(rows, matrix, bias)


def _sort(rows: Tensor, counts: Tensor) -> tuple[Tensor, tuple[Tensor, list[int]]]:
    """Rows of one source after another, each by expert, as rows by expert alone; and how to undo it."""
    experts = torch.arange(counts.shape[-1], device=counts.device).repeat(counts[..., 0].numel())
    order = experts.repeat_interleave(counts.flatten()).argsort(stable=True)
    return rows[order], (order, counts.sum(dim=(0, 1)).tolist())


def _unsort(rows: Tensor, placed: tuple[Tensor, list[int]]) -> Tensor:
    return torch.empty_like(rows).index_copy_(0, placed[0], rows)


_PLAIN: Mapping[str, Op] = {
    "router": Op(("h",), ("logits",), _product, ("router",)),
    "sort": Op(("h", "counts"), ("h", "placed"), _sort),
    "unsort": Op(("h", "placed"), ("h",), _unsort),
    "add_shared": Op(("h", "s"), ("h",), torch.add),
    "unpermute": Op(("h", "weights", "order"), ("h",), kernels.weighted_sum, learns=True),
}
