"""What a step or an update is made of: seconds by phase and by kind of op, what is exposed, bubble, host."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Parts:
    """Seconds of a total by phase, in the order of its waterfall, and what else one asks of them.

    `split_s` sums to the total: of a training step the mean over pipeline ranks of what their compute lanes do or wait
    for, of an update its critical path. `path_s` is the critical path by phase, `class_s` by kind of op.
    `exposed_s` is communication in `split_s`: waits for exchanges of tp, cp, ep, dp and fsdp, or the copies, broadcasts
    and writes of an update; `exposed_path_s` is that on the critical path, sends between stages counted too.
    `bubble_s` is waiting for other stages (None: an update), `host_s` the work of host threads on the critical path,
    `slowed_s` how much longer ops on that of a step take because of what runs beside them.
    """

    split_s: Mapping[str, float]
    path_s: Mapping[str, float]
    class_s: Mapping[str, float]
    exposed_s: float
    exposed_path_s: float
    bubble_s: float | None
    host_s: float
    slowed_s: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return vars(self) | {name: dict(getattr(self, name)) for name in ("split_s", "path_s", "class_s", "slowed_s")}


def sum_of(seconds: Mapping[str, float], phases: Iterable[str]) -> float:
    """Seconds of some phases."""
    return sum(seconds.get(phase, 0.0) for phase in phases)
