"""Collectives by algorithms that a scenario names, priced by their closed forms; all others by fitted curves."""

from collections.abc import Mapping
from typing import Final

from ..base.errors import UserError
from .algorithms import algorithms
from .algorithms.hops import ClusterNet
from .algorithms.messages import Algorithm, Term
from .collective import Collective, Price
from .layout import Layout
from .machines import Machines
from .measured import Measured, price_forwarded
from .wires import Sent, Wires

Choice = tuple[tuple[str, str], ...]
"""(op, algorithm) of each op whose algorithm is named."""

CURVES: Choice = ()
"""No algorithm is named: all exchanges take what a profile's fitted curves say."""

MEASURED: Final = "measured"
"""The name, in place of an algorithm's, of a profile's fitted curve: what the library chose where it was measured."""


class Chosen:
    """Prices exchanges whose op has a named algorithm by its closed form; as `collective.Pricer`."""

    def __init__(self, machines: Machines, layout: Layout, choice: Choice):
        self._machines, self._layout = machines, layout
        self._algorithms = {op: algorithms(op)[name] for op, name in choice}
        self._measured = Measured(machines, layout)
        self._nets: dict[tuple[str, tuple[int, ...]], ClusterNet] = {}

    def price(self, collective: Collective, rank: int) -> Price:
        """As `Pricer.price`.

        Raises:
            UserError: also where the ranks cannot do the algorithm.
        """
        algorithm = self._algorithms.get(collective.op)
        if algorithm is None or len(collective.group) == 1 or not collective.size:
            return self._measured.price(collective, rank)
        net = self._net(collective)
        stage = self._layout.stages.get(rank, collective.group)
        wires = self._layout.crossings.collective(collective.op, collective.group, rank, stage, net.islands)
        if collective.is_forwarded and net.islands > 1:
            left = self._layout.share_left(collective.op, collective.group, self._layout.reach(collective.group, rank))
            return price_forwarded(self, self._machines, collective, rank, wires, left)
        return self._price(algorithm, net, collective, rank, wires)

    def _price(self, algorithm: Algorithm, net: ClusterNet, collective: Collective, rank: int, wires: Wires) -> Price:
        if reason := algorithm.refuses(net.group()):
            raise UserError(f"collectives.{algorithm.op} = {algorithm.name!r}: {reason}")
        _, terms, seconds, latency_s = net.formula(algorithm, collective.size)
        spread, provenance = net.run_by(algorithm).basis(seconds, latency_s, self._measured.price(collective, rank))
        alone = Price(seconds, spread, provenance, by_formula=True)
        return self._machines.on_links(alone, wires, _sent(terms, net.near))

    def _net(self, collective: Collective) -> ClusterNet:
        key = collective.op, collective.group
        if key not in self._nets:
            self._nets[key] = ClusterNet(self._machines, collective.group, collective.op, self._layout.stages).crowded()
        return self._nets[key]


def _sent(terms: list[Term], near: int) -> Sent:
    """The bytes that a rank sends inside its island and beyond it; what is striped leaves through all of its NICs."""
    inside = sum(term.steps * term.size for term in terms if "inside" in term.hops)
    beyond = sum(term.steps * term.size for term in terms if "rail" in term.hops)
    striped = sum(term.steps * term.size for term in terms if "striped" in term.hops)
    return Sent(inside, beyond + striped / near, inside)


def choice_of(named: Mapping[str, str]) -> Choice:
    """The ops whose algorithm is named, of all ops."""
    return tuple((op, name) for op, name in sorted(named.items()) if name != MEASURED)
