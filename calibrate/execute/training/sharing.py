"""The ops of attention between ranks that share sequences: which values they take and give, forward and backward."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import kernels
from .context import Context, Part, join
from .flow import Flow, Op
from .kernels import Heads
from .slots import Act, Joined, Slot, act


class SharedForward:
    """Forward ops: `number` counts those of a label in a layer."""

    def __init__(self, context: Context):
        self.context, self.view = context, context.view
        self._ranks = self.view.plan.dims.cp

    def op(self, number: int, label: str, window: int | None) -> Op:
        """The op of a label; `window` is that of its layer."""
        context = self.context
        if label == "attention" and self._type == "ulysses":
            return self._spread(window)
        if label == "attention":
            return self._ring(number) if self._type == "ring" else self._gathered()
        if label == "cp all_gather":
            return Op(("h",), ("keys",), context.gather_keys)
        if label == "cp all_to_all":
            heads = heads_of(context, outputs=number == 1)
            way = context.collect_heads if number == 1 else context.spread_heads
            return Op(("h",), ("h",), lambda rows: way(rows, heads))
        if number == 0:
            return Op(("h",), ("keys",), lambda qkv: context.pass_on(context.keys(qkv), 1))
        return Op(("keys",), ("keys",), lambda keys: context.pass_on(keys, 1))

    @property
    def _type(self) -> str:
        return str(self.view.plan.shard.cp_type)

    def _ring(self, step: int) -> Op:
        context = self.context
        at = context.positions_of(context.block_of(step))
        if step == 0:
            return Op(("h",), ("part",), lambda qkv: context.attend(context.query(qkv), context.keys(qkv), at))

        def attend(qkv: Tensor, keys: Tensor, part: Part) -> Part:
            return join(part, context.attend(context.query(qkv), keys, at))

        if step < self._ranks - 1:
            return Op(("h", "keys", "part"), ("part",), attend)

        def end(qkv: Tensor, keys: Tensor, part: Part) -> tuple[Tensor, Part]:
            whole = attend(qkv, keys, part)
            return context.rows(whole.out).flatten(1), whole

        return Op(("h", "keys", "part"), ("h", "part"), end)

    def _gathered(self) -> Op:
        context = self.context

        def attend(qkv: Tensor, keys: Tensor) -> tuple[Tensor, Part]:
            part = context.attend(context.query(qkv), keys, context.everywhere)
            return context.rows(part.out).flatten(1), part

        return Op(("h", "keys"), ("h", "part"), attend)

    def _spread(self, window: int | None) -> Op:
        q, kv, size, theta = self.view.heads
        heads, batch = Heads(q // self._ranks, kv // self._ranks, size, theta), self.view.plan.shard.batch
        return Op(("h",), ("h",), lambda qkv: kernels.attention(qkv, batch, heads, window), learns=True)


def heads_of(context: Context, *, outputs: bool) -> tuple[int, ...]:
    """The heads in a row: of outputs, or of q, k and v."""
    q, kv, *_ = context.heads
    return (q,) if outputs else (q, kv, kv)


class SharedBackward:
    """Backward ops; the numbers of a label count in the order of the backward."""

    def __init__(self, context: Context):
        self.context, self._ranks = context, context.view.plan.dims.cp
        self._type = str(context.view.plan.shard.cp_type)

    def exchange(self, flow: Flow, layer: int, label: str) -> Act:
        """Bind an exchange around the backward of attention."""
        number = flow.next_key("shared", layer, label)[2]
        if label == "cp all_gather":
            return self._give(flow, ["dkeys"], self.context.gather_keys, self._qkv(flow, layer))
        if label == "cp reduce_scatter":
            return self._scatter(flow)
        if label == "cp all_to_all":
            heads = heads_of(self.context, outputs=number == 0)
            way = self.context.spread_heads if number == 0 else self.context.collect_heads
            return self._give(flow, ["dh"], lambda rows: way(rows, heads), flow.at["dh"])
        return self._pass_on(flow, layer, number)

    def attention(self, flow: Flow, layer: int) -> Act:
        """Bind the gradients of one kernel of attention."""
        number = flow.next_key("shared", layer, "attention")[2]
        context, last = self.context, flow.steps[layer, "attention", self._ranks - 1 if self._type == "ring" else 0]
        if number == 0:
            flow.at["dout"] = flow.at["dh"]
            if self._type == "ring":
                flow.at["dkeys"] = flow.newest(last.takes[1])
            flow.at.pop("dquery", None)
        at = context.positions_of(context.block_of(number, -1)) if self._type == "ring" else context.everywhere
        before = [flow.at["dquery"]] if "dquery" in flow.at else []

        def back(qkv: Tensor, keys: Tensor, whole: Part, rows: Tensor, *before: Tensor) -> tuple[Tensor, Tensor]:
            gradient = context.by_head(rows)
            of_query, of_keys = context.attend_back(context.query(qkv), keys, at, whole, gradient)
            return (of_query + before[0] if before else of_query), of_keys

        takes = self._qkv(flow, layer), flow.at["dkeys"], flow.newest(last.gives[1]), flow.at["dout"], *before
        return self._give(flow, ["dquery", "dlocal"], back, *takes)

    def _qkv(self, flow: Flow, layer: int) -> Slot:
        return flow.newest(flow.steps[layer, "attention", 0].takes[0])

    def _scatter(self, flow: Flow) -> Act:
        work = self._give(flow, ["down"], self.context.scatter_keys, flow.at["dlocal"])
        self._end(flow, flow.at["dquery"], flow.at["down"])
        return work

    def _pass_on(self, flow: Flow, layer: int, number: int) -> Act:
        """Bind a step of the ring: keys and values go on, and the gradient of the block before them follows."""
        goes, follows = number < self._ranks - 1, number > 0
        sums = [slot for slot in (flow.at.get("dbefore"), flow.at.get("dcame")) if slot is not None] if follows else []
        flow.at["dbefore"] = flow.at["dlocal"]
        keys = [flow.at["dkeys"]] if goes else []

        def pass_on(*values: Tensor) -> Any:
            sent = [*values[: len(keys)], *([torch.stack(values[len(keys) :]).sum(0)] if sums else [])]
            came = self.context.pass_on(torch.stack(sent), -1)
            return came.unbind() if len(sent) > 1 else came[0]

        names = ["dkeys"] * goes + ["dcame"] * follows
        work = self._give(flow, names, pass_on, *keys, *sums)
        if not goes:
            self._end(flow, flow.at["dquery"], flow.at["dlocal"], flow.at["dcame"])
            for name in ("dbefore", "dcame"):
                del flow.at[name]
        return work

    def _end(self, flow: Flow, of_query: Slot, *of_keys: Slot) -> None:
        """The gradients of q, k and v, which the next op puts together."""
        context = self.context

        def put_together(of_query: Tensor, *of_keys: Tensor) -> Tensor:
            return context.rows_of_gradients(of_query, torch.stack(of_keys).sum(0))

        flow.at["dh"], flow.now = Joined(put_together, of_query, *of_keys), "dh"

    def _give(self, flow: Flow, names: list[str], work: Callable[..., Any], *takes: Slot) -> Act:
        given = [Slot() for _ in names]
        flow.at.update(zip(names, given, strict=True))
        return act(work, takes, given)
