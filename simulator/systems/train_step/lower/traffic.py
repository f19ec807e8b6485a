"""Exchanges of gradients and weights between all ranks that hold a stage, as single ops of a step."""

from collections.abc import Iterable, Sequence

from .assembly import Assembly
from .held import Holdings, Share, exchanges
from .plan import TrainPlan


class Traffic:
    """Writes these exchanges; `holdings` and `first` are the parameters and the first rank of each pipeline rank."""

    def __init__(self, plan: TrainPlan, assembly: Assembly):
        self.plan, self.assembly, ranks = plan, assembly, range(plan.grid.ranks)
        self.holdings = [Holdings(plan, rank) for rank in ranks]
        self.first = [plan.first_rank(rank) for rank in ranks]

    def holders(self, rank: int) -> tuple[int, ...]:
        """The pipeline ranks with the same stages as this one; the first one writes their exchanges."""
        mirror = self.holdings[rank].mirror
        return (rank,) if mirror is None else (min(rank, mirror), max(rank, mirror))

    @property
    def leaders(self) -> list[int]:
        """The pipeline ranks that write exchanges, one for each set of equal stages."""
        return [rank for rank, holdings in enumerate(self.holdings) if holdings.leads]

    def shares(self, rank: int) -> list[tuple[int, list[Share]]]:
        """(layer, shares with their groups of what is trained) for each unit of a rank."""
        holdings = self.holdings[rank]
        return [(unit.layer, holdings.shares(unit.learned)) for unit in holdings.own]

    def gather_weights(self, rank: int, after: Sequence[int] = ()) -> dict[int, list[int]]:
        """Write the gathers of updated weights, unit by unit. Returns their ops by unit."""
        return {
            number: [self._gather(rank, number, share, after) for share in shares if len(share.group) > 1]
            for number, shares in self.shares(rank)
        }

    def _gather(self, rank: int, number: int, share: Share, after: Sequence[int]) -> int:
        return self.assembly.op(
            "all_gather", [(other, share.lane) for other in self.holders(rank)], after, name="gather weights",
            size_bytes=self.holdings[rank].weight_bytes(number, share), group=self._ranks(rank, share.group),
        )  # fmt: skip

    def reduce_gradients(self, rank: int, share: Share, messages: int, after: Sequence[int]) -> None:
        """Write the reduction of a share's gradients, in `messages` consecutive messages."""
        for kind, lane, group, size in exchanges(share, self.plan.sharding.level, self.plan.types.reduced):
            lanes = [(other, lane) for other in self.holders(rank)]
            after = [self._reduce(kind, lanes, after, self._ranks(rank, group), size, messages)]

    def _reduce(
        self, kind: str, lanes: Sequence[tuple[int, str]], after: Iterable[int], group: tuple[int, ...], size: float,
        messages: int,
    ) -> int:  # fmt: skip
        """The last of these messages."""
        return [
            self.assembly.op(kind, lanes, after, name="reduce gradients", size_bytes=size / messages, group=group)
            for _ in range(messages)
        ][-1]

    def _ranks(self, rank: int, group: Sequence[int]) -> tuple[int, ...]:
        """The ranks of a group that is counted from the first rank of a pipeline rank."""
        return tuple([one + self.first[rank] for one in group])
