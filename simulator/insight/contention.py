"""How much longer ops of the critical path take because of what runs beside them.

An op alone takes `uncontended_s`. Kernels slow down beside exchanges on their GPU; exchanges and copies beside kernels,
and where they share a link with others. What overlaps is not free: this is its price.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from ..base.op_kinds import COPY, kinds_of_form
from ..costs import EXCHANGES, Costs
from ..program import Program
from .critical_path import CriticalPath

_LEAST, _SHOWN = 0.01, 0.0005
"""Shares of a total from which on the report says so, and names a part."""

SLOWED: Mapping[str, str] = {
    "kernels": "kernels beside exchanges and copies",
    "exchanges": "exchanges beside kernels, or beside others on the same link",
    "copies": "copies beside kernels, or beside others on the same link",
}
"""What takes longer, and beside what."""


def slowed_s(path: CriticalPath, program: Program, costs: Costs) -> dict[str, float]:
    """Seconds that ops of a whole critical path take longer than alone, by what they are (SLOWED)."""
    longer = np.maximum(path.seconds - costs.uncontended_s[path.ops], 0.0)
    exchange, copy = program.is_kind(*EXCHANGES)[path.ops], program.is_kind(*kinds_of_form(COPY))[path.ops]
    parts = {"kernels": ~exchange & ~copy, "exchanges": exchange, "copies": copy}
    return {name: float(longer[of].sum()) for name, of in parts.items()}


def slowed_lines(slowed: Mapping[str, float], total_s: float) -> Iterator[str]:
    """A note on the slowdowns as shares of the total; none if they are below 1 % together."""
    share = sum(slowed.values()) / max(total_s, 1e-30)
    if share < _LEAST:
        return
    parts = (f"{SLOWED[name]} ({seconds / total_s:.1%})" for name, seconds in slowed.items()
             if seconds >= _SHOWN * total_s)  # fmt: skip
    yield (
        f"ops on the critical path take {share:.1%} of the step longer because of what runs beside them: "
        f"{', '.join(parts)}"
    )
