"""Gossip: each worker exchanges with its neighbours."""

from typing import TYPE_CHECKING

from ....base.errors import UserError, fault
from ..history import History
from ..sync.gossip import run_gossip
from .mode import OF_ROUNDS, Mode, updates

if TYPE_CHECKING:
    from ..resolve import ResolvedRun


def _simulate(resolved: "ResolvedRun", seed: int) -> History:
    keys, team, steps = resolved.scenario.sync.gossip, resolved.team(seed), updates(resolved)
    message = None if resolved.scenario.compress is None else resolved.message
    try:
        return run_gossip(team, keys, steps, message)
    except ValueError as error:
        raise UserError(fault(resolved.where, "sync.gossip.topology", keys.topology, str(error))) from None


GOSSIP = Mode(
    "gossip", _simulate, own=("sync.gossip",), refuses=(*OF_ROUNDS, "target.batch", "failures"),
    staleness=lambda resolved: float(resolved.scenario.sync.gossip.overlap),
)  # fmt: skip
