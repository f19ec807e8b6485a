"""The end of a step: late reductions of gradients, the norm of all gradients, the optimizer, and new weights."""

from collections.abc import Callable, Iterator

from ....profile.forms import WIDE_ROW
from .held import Share, gradient_lanes
from .piece import COMPUTE, D2H, H2D, HOST
from .traffic import Traffic

_AGREED_BYTES = 4  # the sum of squares of all gradients
_NO_ROWS = (round(WIDE_ROW),)  # the shape of one sweep over all parameters, which has no short rows


class Ending:
    """Writes the end of a step; `ends_of(*ranks)` are the ops at the end of the ranks' last actions."""

    def __init__(self, traffic: Traffic, ends_of: Callable[..., list[int]]):
        self.plan, self.assembly, self._traffic, self._ends_of = traffic.plan, traffic.assembly, traffic, ends_of

    def write(self) -> None:
        """Write the norm of all gradients, then each rank's own update, then the gathers of new weights."""
        plan, ranks = self.plan, range(self.plan.grid.ranks)
        self._tied_embedding()
        if not plan.sharding.overlap_grads and not (plan.sharding.level >= 2 and plan.sharding.each_microbatch):
            for rank in self._traffic.leaders:
                self._reduce_late(rank)
        for rank in ranks:
            self._sum_replicated(rank)
        owned = [self._owned(rank) for rank in ranks]
        norms = [
            self.assembly.op("grad_norm", [(rank, COMPUTE), *self._lanes(rank)], self._ends_of(rank),
                             name="gradient norm", size_bytes=plan.types.gradients * owned[rank], shape=_NO_ROWS,
                             dtype="fp32")
            for rank in ranks
        ]  # fmt: skip
        world = tuple(range(plan.dims.world_size))
        agreed = self.assembly.op(
            "all_reduce", [(rank, COMPUTE) for rank in ranks], norms, name="agree on norm",
            size_bytes=_AGREED_BYTES, group=world,
        )  # fmt: skip
        done = [self._update(rank, owned[rank], agreed) for rank in ranks]
        if plan.sharding.level in (1, 2) and not plan.sharding.overlap_weights:
            for rank in self._traffic.leaders:
                self._traffic.gather_weights(rank, [done[other] for other in self._traffic.holders(rank)])

    def _reduce_late(self, rank: int) -> None:
        """Write reductions of gradients after the last backward."""
        ends = self._ends_of(*self._traffic.holders(rank))
        for share, messages in self._late(rank):
            self._traffic.reduce_gradients(rank, share, messages, ends)

    def _late(self, rank: int) -> Iterator[tuple[Share, int]]:
        """(share, number of messages) of these reductions.

        One message per tensor; or the buckets of torch's DistributedDataParallel, which always has them; or a single
        one (Megatron-LM without overlap: `bucket_size = None`).
        """
        sharding, units = self.plan.sharding, self._traffic.shares(rank)
        shares = [(number, share) for number, own in units for share in own]
        if sharding.by_tensor:
            for of, share in shares:
                tensors = self.plan.tensors(of, experts=share.lane == "edp")
                yield share, sharding.messages(share.parameters, tensors)
            return
        for lane in dict.fromkeys(share.lane for _, share in shares):
            alike = [share for _, share in shares if share.lane == lane]
            whole = alike[0]._replace(parameters=sum(share.parameters for share in alike))
            yield whole, 1 if sharding.level else sharding.messages(whole.parameters, 1)

    def _sum_replicated(self, rank: int) -> None:
        """Write the tensor-parallel sum of replicated gradients, after the data-parallel reductions."""
        if size := self._traffic.holdings[rank].replicated:
            self.assembly.op(
                "all_reduce", [(rank, "tp"), *self._lanes(rank)], self._ends_of(rank),
                name="replicated gradients", size_bytes=size * self.plan.types.reduced,
                group=self.plan.dims.group("tp", self._traffic.first[rank]),
            )  # fmt: skip

    def _lanes(self, rank: int) -> list[tuple[int, str]]:
        """The lanes that carry gradients. The norm holds them too, because it needs all gradients."""
        return [(rank, lane) for lane in gradient_lanes(self.plan)]

    def _owned(self, rank: int) -> int:
        """The number of parameters that a rank updates."""
        holdings, level = self._traffic.holdings[rank], self.plan.sharding.level
        total = 0.0
        for _, _, trained in holdings.own:
            parts = {share.lane: len(share.group) for share in holdings.shares(trained)} if level else {}
            total += trained.dense / parts.get("dp", 1) + trained.expert / parts.get("edp", 1) + trained.once
        return round(total)

    def _update(self, rank: int, owned: int, after: int) -> int:
        """Write Adam on the device; or on the host, with copies of gradients there and of weights back."""
        types = self.plan.types
        if not self.plan.offload_optimizer:
            return self.assembly.op(
                "adamw", [(rank, COMPUTE)], [after], name="optimizer", size_bytes=types.update_bytes * owned,
                shape=_NO_ROWS, dtype="fp32",
            )  # fmt: skip
        me = (self._traffic.first[rank],)
        there = self.assembly.op(D2H, [(rank, D2H)], [after], name="gradients to host", group=me,
                                 size_bytes=owned * types.gradients)  # fmt: skip
        step = self.assembly.op("host_adam", [(rank, HOST)], [there], name="optimizer", group=me,
                                size_bytes=owned * types.update_bytes)  # fmt: skip
        return self.assembly.op(H2D, [(rank, H2D)], [step], name="weights to device", group=me,
                                size_bytes=owned * types.weights)  # fmt: skip

    def _tied_embedding(self) -> None:
        """Write the sum of the tied embedding's gradients of the first and the last stage."""
        plan = self.plan
        first, last = plan.grid.rank_of(0, 0), plan.grid.rank_of(plan.grid.stages - 1, 0)
        if first == last or not plan.trains_embedding or plan.is_mirrored:
            return
        if self._traffic.holdings[last].copies_embedding(plan.stages[-1]):
            size = sum(self._traffic.holdings[last].embedding) * plan.types.reduced
        elif plan.spec.tie_word_embeddings:
            size = plan.spec.vocab_size * plan.spec.hidden_size / plan.dims.tp * plan.types.reduced
        else:
            return
        group = (self._traffic.first[first], self._traffic.first[last])
        self.assembly.op(
            "all_reduce", [(first, "dp"), (last, "dp")], self._ends_of(first, last), name="tied embedding",
            size_bytes=size, group=group,
        )  # fmt: skip
