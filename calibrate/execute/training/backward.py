"""Backward ops: gradients of inputs and of weights, and the exchanges between them, by the op's label.

`dx` is the gradient of the residual stream so far, `dh` that of a branch. A norm ends a branch: what it gives is added
to `dx`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from . import kernels
from .exchanges import Exchanges
from .flow import Flow, Step
from .forward import BRANCHES, Forward
from .sharing import SharedBackward
from .slots import Act, Joined, Slot, act, nothing
from .view import RankView
from .weights import EMBEDDING, NORMS, OUTPUT

Learn = Callable[[Flow, int, str], Callable[..., None]]
"""Of a flow, a layer and a parameter or GEMM: what adds to its gradient, as `states.Gradient.add`."""


class Backward:
    """Binds the backward ops of a rank."""

    def __init__(self, view: RankView, exchanges: Exchanges, forward: Forward, learn: Learn):
        self.view, self.exchanges, self.forward, self.learn = view, exchanges, forward, learn
        self._sharing = SharedBackward(forward.sharing.context)

    def input_gradient(self, flow: Flow, layer: int, label: str) -> Act:
        """Bind the gradient of what an op reads."""
        if label == "residual":
            return self._residual(flow, layer)
        if label == "add_shared":
            flow.at["ds"] = flow.at["dh"]
            return nothing
        if label == "attention" and self.view.plan.dims.cp > 1 and self.view.plan.shard.cp_type != "ulysses":
            return self._sharing.attention(flow, layer)
        step = flow.steps[flow.next_key("backward", layer, label)]
        if label in NORMS:
            return self._norm(flow, layer, label, step)
        if label in ("qkv", "proj", "up", "down", "logits"):
            return self._product(flow, layer, label, step)
        makers: Mapping[str, Callable[[Flow, int, Step], Act]] = {
            "loss": self._loss, "embed": self._embed, "router": self._router, "topk": self._topk,
            "permute": self._permute, "unpermute": self._unpermute, "sort": self._sort, "unsort": self._unsort,
            "experts": self._experts,
        }  # fmt: skip
        if label in makers:
            return makers[label](flow, layer, step)
        return self._recorded(flow, step)

    def weight_gradient(self, flow: Flow, layer: int, label: str) -> Act:
        """Bind the gradient of a GEMM's matrix, from what it read and the gradient of what it gave."""
        step = flow.steps[flow.next_key("weights", layer, label)]
        assert step.gradient is not None
        if label == "experts":
            assert step.record is not None
            add = [self.learn(flow, layer, name) for name in self.forward.networks(flow, layer)]

            def learn_experts(graph: kernels.Graph, gradient: Tensor) -> None:
                for one, found in zip(add, graph.gradients(gradient, of=range(1, 4)), strict=True):
                    one(found)

            return act(learn_experts, [step.record, step.gradient])
        name = EMBEDDING if label == "logits" and self.forward.tied else label
        learn = self.learn(flow, layer, name)
        own = () if label in BRANCHES else self.forward.biases(flow, layer, label)
        learn_biases = [self.learn(flow, layer, name) for name in own]

        def back(rows: Tensor, gradient: Tensor) -> None:
            learn(gradient, rows)
            for one in learn_biases:
                one(gradient.sum(dim=0))

        return act(back, [step.gathered or flow.newest(step.takes[0]), step.gradient])

    def exchange(self, flow: Flow, layer: int, label: str) -> Act:
        """Bind an exchange of gradients, on what the last op gave."""
        name, _, kind = label.partition(" ")
        if name == "tp":
            of = flow.back if "ds" in flow.at else flow.now
            return self._give(flow, of, self._over_tp(kind), flow.at[of])
        if name == "etp":
            return self._over_etp(flow, layer, kind)
        if name == "cp":
            return self._sharing.exchange(flow, layer, label)
        key, route = self.view.key("ep"), flow.newest(flow.steps[layer, "dispatch", 0].gives[2])
        back = label == "dispatch_back"

        def exchange(rows: Tensor, route: tuple[list[int], list[int]]) -> Tensor:
            return self.exchanges.exchange(key, rows, *(route[::-1] if back else route))

        return self._give(flow, "dh", exchange, flow.at["dh"], route)

    def gather_input(self, flow: Flow, step: Step) -> Act:
        """Bind the gather of what a GEMM read, for the gradient of its matrix: the backward kept its own part alone."""
        giver = flow.giver(step.takes[0])
        assert giver is not None
        own, step.gathered = flow.newest(giver.takes[0]), Slot()
        return act(self._over_tp("all_gather"), [own], [step.gathered])

    def _give(self, flow: Flow, name: str, work: Callable[..., Any], *takes: Slot) -> Act:
        given = Slot()
        flow.at[name], flow.now = given, name
        return act(work, takes, [given])

    def _over_tp(self, kind: str) -> Callable[[Tensor], Tensor]:
        key = self.view.key("tp")
        work = {"all_gather": self.exchanges.gather, "reduce_scatter": self.exchanges.reduce_scatter,
                "all_reduce": self.exchanges.all_reduce}[kind]  # fmt: skip
        return lambda rows: work(key, rows)

    def _over_etp(self, flow: Flow, layer: int, kind: str) -> Act:
        key, rows = self.view.key("etp"), flow.newest(flow.steps[layer, "etp all_gather", 0].gives[2])
        if kind == "all_gather":
            return self._give(flow, "dh", lambda own: self.exchanges.gather_uneven(key, own)[0], flow.at["dh"])
        return self._give(flow, "dh", lambda every, counts: self.exchanges.reduce_uneven(key, every, counts),
                          flow.at["dh"], rows)  # fmt: skip

    # Kernels

    def _residual(self, flow: Flow, layer: int) -> Act:
        """A branch begins: its gradient is that of the stream; so is that of each row of its bias."""
        branch = BRANCHES[flow.next_key("backward", layer, "residual")[2]]
        learn = [self.learn(flow, layer, name) for name in self.forward.biases(flow, layer, branch)]

        def back(dx: Tensor) -> Tensor:
            for one in learn:
                one(dx.sum(dim=0))
            return dx

        return self._give(flow, "dh", back, flow.at["dx"])

    def _product(self, flow: Flow, layer: int, label: str, step: Step) -> Act:
        step.gradient = flow.at[flow.back]
        name = label if label != "logits" else EMBEDDING if self.forward.tied else OUTPUT
        held, view = self.forward.held(flow, layer, name)
        return self._give(flow, flow.back, lambda gradient, flat: gradient @ view(flat), step.gradient, held)

    def _recorded(self, flow: Flow, step: Step) -> Act:
        """The gradient of a kernel with one input, by its record."""
        assert step.record is not None
        of = flow.back
        return self._give(flow, of, lambda graph, gradient: graph.gradients(gradient)[0], step.record, flow.at[of])

    def _norm(self, flow: Flow, layer: int, label: str, step: Step) -> Act:
        assert step.record is not None
        learn = [self.learn(flow, layer, name) for name in self.forward.norms(flow, layer, label)]
        ends, stream = label != "qk_norm", flow.at.get("dx")
        if shared := flow.at.pop("ds", None):
            flow.at["dh"] = Joined(torch.add, flow.at["dh"], shared)
        adds = [stream] if ends and stream is not None else []

        def back(graph: kernels.Graph, gradient: Tensor, *stream: Tensor) -> Tensor:
            own, *weights = graph.gradients(gradient)
            for one, found in zip(learn, weights, strict=True):
                one(found)
            return own + stream[0] if stream else own

        return self._give(flow, "dx" if ends else "dh", back, step.record, flow.at["dh"], *adds)

    def _loss(self, flow: Flow, _: int, step: Step) -> Act:
        view, part = self.view, self.view.at.tp
        targets, whole = view.targets(flow.microbatch), view.resolved.scenario.batch
        tokens = whole.global_ * whole.seq_len

        def back(logits: Tensor, parts: Tensor) -> Tensor:
            return kernels.loss_gradient(logits, targets, part * logits.shape[1], parts[0], tokens)

        return self._give(flow, "dh", back, flow.newest(step.takes[0]), flow.at["loss"])

    def _embed(self, flow: Flow, layer: int, step: Step) -> Act:
        tokens, part = self.view.inputs(flow.microbatch), self.view.at.tp
        learn = self.learn(flow, layer, EMBEDDING)
        learn_places = [self.learn(flow, layer, name) for name in self.forward.learned_positions(flow)]
        words, places = self.view.plan.spec.vocab_size // self.view.at.tps, self.view.places
        rows, width = self.view.plan.spec.position_embeddings, self.view.plan.spec.hidden_size

        def back(gradient: Tensor) -> None:
            for one in learn_places:
                one(gradient.new_zeros((rows, width)).index_add_(0, places, gradient))
            at = tokens - part * words
            mine = ((at >= 0) & (at < words)).nonzero()[:, 0]
            learn(gradient.new_zeros((words, gradient.shape[1])).index_add_(0, at[mine], gradient[mine]))

        return act(back, [flow.at["dx"]])

    # Experts

    def _router(self, flow: Flow, layer: int, step: Step) -> Act:
        step.gradient = flow.at["dlogits"]
        held, view = self.forward.held(flow, layer, "router")
        return self._give(flow, "dh", lambda dh, own, flat: dh + own @ view(flat), flow.at["dh"], step.gradient, held)

    def _topk(self, flow: Flow, _: int, step: Step) -> Act:
        assert step.record is not None
        work = self._give(flow, "dlogits", lambda graph, of: graph.gradients(of)[0], step.record, flow.at["dweights"])
        flow.now = "dh"
        return work

    def _permute(self, flow: Flow, _: int, step: Step) -> Act:
        order, chosen = flow.newest(step.gives[1]), self.view.moe.num_experts_per_tok

        def back(rows: Tensor, order: Tensor) -> Tensor:
            return rows.new_zeros((len(rows) // chosen, rows.shape[1])).index_add_(0, order // chosen, rows)

        return self._give(flow, "dh", back, flow.at["dh"], order)

    def _unpermute(self, flow: Flow, _: int, step: Step) -> Act:
        assert step.record is not None
        rows, weights = Slot(), Slot()
        work = act(lambda graph, gradient: graph.gradients(gradient), [step.record, flow.at["dh"]], [rows, weights])
        flow.at.update(dh=rows, dweights=weights)
        flow.now = "dh"
        return work

    def _sort(self, flow: Flow, _: int, step: Step) -> Act:
        placed = flow.newest(step.gives[1])
        return self._give(flow, "dh", lambda rows, at: torch.empty_like(rows).index_copy_(0, at[0], rows),
                          flow.at["dh"], placed)  # fmt: skip

    def _unsort(self, flow: Flow, _: int, step: Step) -> Act:
        return self._give(flow, "dh", lambda rows, at: rows[at[0]], flow.at["dh"], flow.newest(step.takes[1]))

    def _experts(self, flow: Flow, _: int, step: Step) -> Act:
        assert step.record is not None
        step.gradient = flow.at["dh"]
        return self._give(flow, "dh", lambda graph, of: graph.gradients(of, of=range(1))[0], step.record, step.gradient)
