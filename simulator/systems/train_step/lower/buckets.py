"""Gradients of an action on their way to other ranks: buckets that are sent as they become full."""

from collections.abc import Sequence

from .held import Holdings, Share, Unit, exchanges
from .piece import PieceWriter
from .plan import TrainPlan


class Buckets:
    """The buckets of a stage's gradients, one for each lane, written behind the ops that make the gradients."""

    def __init__(self, plan: TrainPlan, holdings: Holdings, w: PieceWriter):
        self.plan, self.holdings, self.w = plan, holdings, w
        self._held: dict[str, tuple[int, Share]] = {}

    def add(self, unit: Unit, last: bool) -> None:
        """Add a unit's gradients, which the op that was written last has made, and send full buckets.

        All that is left goes with the `last` unit of the stage. Of ranks that hold the same stage one sends.
        """
        self.w.layer = unit.layer
        self.w.mark("grads", len(self.w) - 1)
        if self.holdings.leads:
            self._fill(unit, last)

    def _fill(self, unit: Unit, last: bool) -> None:
        after, sharding = [len(self.w) - 1], self.plan.sharding
        for share in self.holdings.shares(unit.learned):
            size, _ = self._held.get(share.lane, (0, share))
            self._held[share.lane] = (size + share.parameters, share)
        full = {lane: (size, share) for lane, (size, share) in self._held.items()
                if size and (last or sharding.by_tensor or size >= sharding.bucket or sharding.level >= 3)}  # fmt: skip
        if full and sharding.fused:
            after = [self.w.op("cycle", "fusion", after, name="tick")]
        for lane, (size, share) in full.items():
            self._send(unit.layer, size, share, after)
            self._held[lane] = (0, share)

    def _send(self, number: int, size: int, share: Share, after: Sequence[int]) -> None:
        """Write a bucket's exchange: reduce-scatter if sharded, all-reduce if replicated, both for hybrid sharding."""
        sharding, share = self.plan.sharding, share._replace(parameters=size)
        buckets = sharding.messages(size, self.plan.tensors(number, experts=share.lane == "edp"))
        for kind, lane, group, total in exchanges(share, sharding.level, self.plan.types.reduced):
            after = [
                self.w.op(kind, lane, after, name="reduce gradients", size_bytes=total / buckets, group=group)
                for _ in range(buckets)
            ][-1:]
