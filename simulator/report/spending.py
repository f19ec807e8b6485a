"""What GPUs cost and draw over a time: the one place where money and energy are derived, with their definitions.

Money is a GPU's price per hour times the hours that it is held, whatever it does meanwhile. Energy is an upper bound:
every GPU's board draws what its data sheet allows for the whole time, and its share of the rest of the server does too.
Cooling and losses of the building (PUE), switches outside servers and storage are not in it. Where one GPU's price or
power is not known, the total is not known.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..base.units import format_energy, format_usd
from ..hardware import Cluster, Node

_J_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Spending:
    """Cost and energy; None if the price or the power of a GPU is unknown."""

    cost_usd: float | None
    energy_j: float | None

    @property
    def energy_kwh(self) -> float | None:
        """The energy in kilowatt-hours."""
        return _ratio(self.energy_j, _J_PER_KWH)

    def per(self, count: float) -> "Spending":
        """The share of one of so many, such as tokens."""
        return Spending(_ratio(self.cost_usd, count), _ratio(self.energy_j, count))


def _ratio(amount: float | None, count: float) -> float | None:
    """An amount over a count; None if the amount is unknown."""
    return None if amount is None else amount / count


def _product(rate: float | None, factor: float) -> float | None:
    """A rate times a factor; None if the rate is unknown."""
    return None if rate is None else rate * factor


@dataclass(frozen=True)
class Rates:
    """The price per hour and the maximum power of a set of GPUs, in total.

    `unpriced` names the devices without a price, `unpowered` those without a power, `boards_only` those in servers of
    which no more is known than the boards of their GPUs: energy then leaves out the rest.
    """

    gpus: float
    usd_per_hour: float | None
    power_w: float | None
    unpriced: tuple[str, ...] = ()
    unpowered: tuple[str, ...] = ()
    boards_only: tuple[str, ...] = ()

    def amount(self, seconds: float) -> Spending:
        """Cost and maximum energy of the GPUs in this time."""
        return Spending(_ratio(_product(self.usd_per_hour, seconds), 3600), _product(self.power_w, seconds))

    def scale(self, gpus: float) -> "Rates":
        """The rates of another number of GPUs of the same mix."""
        share = gpus / self.gpus
        usd, power_w = _product(self.usd_per_hour, share), _product(self.power_w, share)
        return replace(self, gpus=gpus, usd_per_hour=usd, power_w=power_w)

    @property
    def usd_per_gpu_hour(self) -> float | None:
        """The mean price of one of them."""
        return _ratio(self.usd_per_hour, self.gpus)

    @property
    def price(self) -> str:
        """The price per GPU-hour in words."""
        return "at an unknown price" if (usd := self.usd_per_gpu_hour) is None else f"at {format_usd(usd)} per GPU-hour"

    @property
    def scope(self) -> str:
        """What the energy includes, in words; empty if it is whole servers."""
        return " (GPU boards alone)" if self.boards_only and self.power_w is not None else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on missing prices and powers, with the keys that set them."""
        notes = []
        if self.unpriced:
            notes.append(f"no price known for {', '.join(self.unpriced)}; set cluster.device.price_usd_per_hour")
        if self.unpowered:
            notes.append(f"no power known for {', '.join(self.unpowered)}; set cluster.device.power")
        elif self.boards_only:
            notes.append(f"energy counts GPU boards alone for {', '.join(self.boards_only)}; set cluster.host_power")
        return tuple(notes)


def rates(cluster: Cluster, gpus: Iterable[int] | None = None) -> Rates:
    """Rates of all GPUs of a cluster, or of some: each has its own device's price and power, and its part of a node."""
    if gpus is None:
        nodes = Counter(cluster.nodes)
        return _summed([(node, count * len(node.gpus)) for node, count in nodes.items()])
    return _summed(list(Counter(cluster.nodes[cluster.node_of(gpu)] for gpu in gpus).items()))


def _summed(held: Sequence[tuple[Node, int]]) -> Rates:
    """Over kinds of node and how many GPUs of each are held."""
    names = {node: node.device.name for node, _ in held}
    unpriced = tuple(dict.fromkeys(names[node] for node in names if node.device.price_usd_per_hour is None))
    unpowered = tuple(dict.fromkeys(names[node] for node in names if node.device.power_w is None))
    boards_only = tuple(dict.fromkeys(names[node] for node in names if node.host_power_w is None))
    # a GPU's board and its part of the rest of the server
    drawn_w = ((node.device.power_w or 0.0) + (node.host_power_w or 0.0) / len(node.gpus) for node, _ in held)
    return Rates(
        gpus=sum(count for _, count in held),
        usd_per_hour=None if unpriced else sum((node.device.price_usd_per_hour or 0.0) * count for node, count in held),
        power_w=None if unpowered else sum(each * count for each, (_, count) in zip(drawn_w, held, strict=True)),
        unpriced=unpriced,
        unpowered=unpowered,
        boards_only=boards_only,
    )


def spending_rows(held: Rates, *amounts: tuple[Spending, str]) -> list[tuple[str, str]]:
    """Money and energy in words, each if it is known: amounts such as `(step, "per step")`."""
    energy = ", ".join(f"{format_energy(one.energy_j)} {words}" for one, words in amounts if one.energy_j is not None)
    cost = ", ".join(f"{format_usd(one.cost_usd)} {words}" for one, words in amounts if one.cost_usd is not None)
    rows = [("cost", f"{cost}, {held.price}")] if cost else []
    return [*rows, ("energy", f"at most {energy}{held.scope}")] if energy else rows
