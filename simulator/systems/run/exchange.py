"""What an exchange between workers takes: a ring over links whose rate is stated, or a collective of the cluster.

Which messages there are, and what a step hides of them, is in `sync/`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...base.errors import UserError
from ...collectives import Choice, Collective, Layout, Machines, Price, price_slowest, pricer
from ...costs import by_software
from .sync.compression import Message, exchange_s

Exchange = Callable[[Message, int], float]
"""Seconds of so many equal exchanges, one after the other, that carry a message together."""


@dataclass(frozen=True)
class Exposed:
    """Seconds that a step waits for an exchange that the cluster prices, and if it took a standard deviation more."""

    price: Price
    seconds: float
    longer_s: float


def over_links(workers: int, bytes_per_s: float, latency_s: float) -> Exchange:
    """Rings of workers over links of one rate."""
    return lambda message, parts: exchange_s(message, workers, bytes_per_s, parts * latency_s) if workers > 1 else 0.0


class OnCluster:
    """Exchanges between workers at the prices of a training step; worker w has GPUs `w*gpus` to `(w + 1)*gpus - 1`.

    Gradients are sharded over a worker's GPUs: GPU i of each worker exchanges 1/gpus of a message with GPU i of the
    others, and all of them at the same time, as the data-parallel groups of one step do. They share NICs and uplinks.
    `choice` names algorithms.
    """

    def __init__(self, machines: Machines, gpus: int, choice: Choice):
        self._machines, self._gpus, self._choice = machines, gpus, choice

    def among(self, workers: Sequence[int], busy: Sequence[int]) -> Exchange:
        """Exchanges among these workers, while all `busy` ones, themselves included, do the same in their groups."""
        return lambda message, parts: parts * message.rounds * self.price(message, parts, workers, busy).seconds

    def price(self, message: Message, parts: int, workers: Sequence[int], busy: Sequence[int]) -> Price:
        """The price of one of the collectives that `parts` exchanges are, on the slowest kind of node.

        Raises:
            UserError: the profile has no model for it, or the cluster has no route; the message says what helps.
        """
        try:
            return self._price(message, parts, workers, busy)
        except UserError as error:
            raise UserError(f"exchanges between workers: {error}; state sync.bandwidth") from None

    def _price(self, message: Message, parts: int, workers: Sequence[int], busy: Sequence[int]) -> Price:
        group = tuple(worker * self._gpus for worker in workers)
        alike = tuple(gpu for worker in busy for gpu in range(worker * self._gpus, (worker + 1) * self._gpus))
        firsts = self._machines.one_of_each(group)
        layout = Layout(self._machines.cluster, dict.fromkeys((group[0], *firsts), alike))
        exchanges = pricer(self._choice, self._machines, layout)
        gathered = len(workers) if message.exchange == "all_gather" else 1  # nccl-tests counts what is gathered
        one = Collective(message.exchange, group, gathered * message.wire_bytes / parts / message.rounds / self._gpus)
        return by_software(price_slowest(exchanges, self._machines, one), "dp", self._machines)
