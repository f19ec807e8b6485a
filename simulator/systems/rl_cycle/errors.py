"""What whole cycles were off beyond the errors of what they predict: `data/validation/cycle_errors.json`.

It stands for all that a cycle leaves out or is not told: how lengths are spread, host work, data between phases.
`runcast calibrate cycle-errors` writes the file, and leaves each source out in turn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from ...base.files import read_json

WHOLE = "step_time_s"
"""The metric of which whole cycles are off."""


@dataclass(frozen=True)
class CycleErrors:
    """The width, a standard deviation of ln(time); `without` has it from the cycles of all other sources, by source."""

    value: float = 0.0
    without: Mapping[str, float] = field(default_factory=dict)

    def width(self, source: str = "") -> float:
        """The width for a cycle of a source, which itself is left out."""
        return self.without.get(source, self.value)


@cache
def shipped_cycle_errors() -> CycleErrors:
    """The errors that ship with runcast; none if there is no file."""
    file = files("runcast.data") / "validation" / "cycle_errors.json"
    if not file.is_file():
        return CycleErrors()
    found = read_json(file)
    return CycleErrors(float(found["widths"]["cycle"]["value"]), found["without"])
