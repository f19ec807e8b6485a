"""Federated rounds: clients stand instead of workers."""

from typing import TYPE_CHECKING

from ....base.errors import UserError, fault
from ..federated.rounds import FederatedPlan, run_federated
from ..history import History
from .mode import OF_ROUNDS, OF_STEP, OF_WORKERS, Mode

if TYPE_CHECKING:
    from ..resolve import ResolvedRun


def _simulate(resolved: "ResolvedRun", seed: int) -> History:
    keys = resolved.scenario.federated
    assert keys is not None
    size_bytes = keys.bytes or resolved.parameter_bytes
    if not size_bytes:
        raise UserError(fault(resolved.where, "federated.bytes", None, "say how large the model is, or name a [model]"))
    return run_federated(FederatedPlan(keys, size_bytes, seed))


def _question(resolved: "ResolvedRun") -> str:
    keys = resolved.scenario.federated
    assert keys is not None
    return f"federated: {keys.rounds:,} rounds of {keys.wanted:,} of {keys.population:,} clients"


FEDERATED = Mode(
    "federated", _simulate, _question, unit="updates", steps="rounds",
    refuses=(*OF_WORKERS, *OF_STEP, *OF_ROUNDS, "failures"),
)  # fmt: skip
