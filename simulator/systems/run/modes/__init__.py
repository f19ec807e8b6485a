"""The modes of a run, by name. A new one is a file here, and a line; of sync.mode, also a word in `scenario.Sync`."""

from collections.abc import Mapping

from .federated import FEDERATED
from .gossip import GOSSIP
from .in_step import ALL_REDUCE, LOCAL
from .jobs import JOBS
from .mode import OF_STEP, Mode
from .servers import PARAMETER_SERVER

MODES: Mapping[str, Mode] = {
    one.name: one for one in (ALL_REDUCE, LOCAL, PARAMETER_SERVER, GOSSIP, FEDERATED, JOBS)
}  # fmt: skip

__all__ = ["MODES", "OF_STEP", "Mode"]
