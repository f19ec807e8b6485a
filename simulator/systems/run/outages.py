"""Workers and nodes that fail by themselves while others go on: what each is away for, and how long."""

from math import inf
from typing import NamedTuple


class Outage(NamedTuple):
    """A worker or a node, by its number, fails: nobody notices, then it is repaired, then it starts again."""

    at_s: float
    place: int
    repair_s: float = 0.0
    detect_s: float = 0.0
    restart_s: float = 0.0

    @property
    def ends_s(self) -> dict[str, float]:
        """When each of its parts ends, by cause, in order."""
        noticed_s = self.at_s + self.detect_s
        repaired_s = noticed_s + self.repair_s
        return {"detect": noticed_s, "repair": repaired_s, "restart": repaired_s + self.restart_s}


class Away:
    """A place with all of its outages. Where some overlap, each takes its own time, and the earlier part is shown."""

    def __init__(self) -> None:
        self._ends_s = {"detect": -inf, "repair": -inf, "restart": -inf}

    def add(self, outage: Outage) -> None:
        """Another outage."""
        for cause, end_s in outage.ends_s.items():
            self._ends_s[cause] = max(self._ends_s[cause], end_s)

    @property
    def end_s(self) -> float:
        """When it is there again."""
        return max(self._ends_s.values())

    def part(self, now_s: float) -> tuple[str, float] | None:
        """The cause for which it is away now, and when that ends; None: it is there."""
        return next(((cause, end_s) for cause, end_s in self._ends_s.items() if end_s > now_s), None)
