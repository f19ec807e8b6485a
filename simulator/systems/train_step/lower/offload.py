"""Activations on the host: a layer's activations leave after its forward and come back for its backward.

Staging slots limit the number of layers in flight in each direction. A slot out is taken when a forward of a layer
begins and is free when its copy to the host has ended. So a forward waits for the copy of an earlier layer, and slow
copies delay it. A slot in is taken when a copy to the device begins and is free when the backward of the layer has
ended. With two slots a layer leaves beside the forward of the next layer, and comes back beside the backward before
its own, as in Kimi K2 (arXiv 2507.20534, figure 7).

Layers leave in the order of forwards and come back in the order of backwards. Both are known when the Program is
written, so "a slot is free" is a plain dependency on the op that frees it. A layer stays on the device if its slot in
is free before its forward begins: these are the layers at which a rank turns from forward to backward.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from ....schedules import Action
from .assembly import Assembly
from .kept import layer_buffer, offload_bytes
from .piece import D2H, H2D, LayerPass
from .plan import TrainPlan


class _Layer(NamedTuple):
    """A layer and a micro-batch."""

    stage: int
    microbatch: int
    layer: int


Passes = dict[_Layer, LayerPass]


class Offload:
    """Writes the copies of one pipeline rank, and the buffers that they move."""

    def __init__(self, plan: TrainPlan, assembly: Assembly, rank: int):
        self._plan, self._assembly, self._rank = plan, assembly, rank
        self._bytes = {stage: offload_bytes(plan, stage) for stage in plan.grid.stages_of(rank)}
        self._held: list[tuple[int, int, int, int]] = []  # layer, bytes, writer, last reader

    def write(self, done: Iterable[tuple[Action, tuple[LayerPass, ...]]]) -> None:
        """Write the copies; `done` lists the rank's actions with their layers, in their order."""
        forward, backward, weights = self._passes(done)
        freed = self._frees_slot(backward)
        stays = {of for of, before in freed.items() if before is None or max(before.tails) < forward[of].first}
        gone = self._leave({of: one for of, one in forward.items() if of not in stays})
        for of, one in backward.items():
            last = max(one.last, weights[of].last if of in weights else -1)
            if of in stays:
                self._hold(of, forward[of].first, last)
            else:
                before = freed[of]
                assert before is not None
                back = self._copy(H2D, of, [gone[of], *before.tails])
                self._assembly.wait(one.first, [back])
                self._hold(of, forward[of].first, gone[of])
                self._hold(of, back, last)
        if self._held:
            layer, size, writer, until = np.array(self._held, np.int64).T
            names = [layer_buffer(number) for number in range(layer.max() + 1)]
            self._assembly.hold_each(names, layer, self._rank, size, writer, until)

    def _passes(self, done: Iterable[tuple[Action, tuple[LayerPass, ...]]]) -> tuple[Passes, Passes, Passes]:
        """(forwards, backwards or input gradients, separate weight gradients) of the layers that are offloaded."""
        forward, backward, weights = Passes(), Passes(), Passes()
        kinds = {"F": forward, "B": backward, "I": backward, "W": weights}
        for action, layers in done:
            for one in layers:
                if self._bytes[action.stage][one.layer]:
                    kinds[action.kind][_Layer(action.stage, action.microbatch, one.layer)] = one
        return forward, backward, weights

    def _frees_slot(self, backward: Passes) -> Mapping[_Layer, LayerPass | None]:
        """For each layer the backward that frees its slot in; None if a slot is free from the start."""
        slots, order = self._plan.offload_slots, list(backward.values())
        return {of: order[i - slots] if i >= slots else None for i, of in enumerate(backward)}

    def _leave(self, forward: Passes) -> dict[_Layer, int]:
        """Write the copies to the host in the order of forwards. A forward waits until its slot out is free."""
        copies: list[int] = []
        for i, (of, one) in enumerate(forward.items()):
            if i >= self._plan.offload_slots:
                self._assembly.wait(one.first, [copies[i - self._plan.offload_slots]])
            copies.append(self._copy(D2H, of, one.tails))
        return dict(zip(forward, copies, strict=True))

    def _copy(self, lane: str, of: _Layer, after: Iterable[int]) -> int:
        return self._assembly.op(
            lane, [(self._rank, lane)], after, name="offload" if lane == D2H else "onload",
            size_bytes=self._bytes[of.stage][of.layer], group=(self._plan.first_rank(self._rank),),
            stage=of.stage, microbatch=of.microbatch, layer=of.layer,
        )  # fmt: skip

    def _hold(self, of: _Layer, writer: int, last: int) -> None:
        self._held.append((of.layer, self._bytes[of.stage][of.layer], writer, last))
