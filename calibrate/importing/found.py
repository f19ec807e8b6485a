"""What has been found in one log so far: rows of samples, and the places of what was left out, by reason."""

from dataclasses import dataclass, field

import pandas as pd

from ...simulator.base.errors import UserError
from ...simulator.formats.samples import Samples, checked

Place = int | str
"""A line of a text, or the path of a value in a JSON file."""


@dataclass
class Found:
    """Samples of one file, and why the other rows are none."""

    file: str
    rows: list[dict[str, object]] = field(default_factory=list)
    left: dict[str, list[Place]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, place: Place, cost_class: str, seconds: float, device: str, library: str, group: str,
            features: dict[str, float]) -> None:  # fmt: skip
        """One sample; `seconds` of one call."""
        keys = {"cost_class": cost_class, "device": device, "library": library, "group": group, "seconds": seconds}
        self.rows.append({**keys, "source": f"{self.file}:{place}", **features})

    def leave(self, place: Place, reason: str) -> None:
        """One row that is no sample."""
        self.left.setdefault(reason, []).append(place)

    def note(self, text: str) -> None:
        """A line about the whole file, once."""
        if text not in self.notes:
            self.notes.append(text)

    def samples(self) -> Samples:
        """The samples, with one line for each reason of what was left out.

        Raises:
            UserError: there are none; one line, with the first place and its reason.
        """
        if not self.rows:
            raise UserError(self._nothing())
        dropped = [f"{self.file}: {len(places)} left out: {reason} ({_places(places)})"
                   for reason, places in self.left.items()]  # fmt: skip
        return checked(pd.DataFrame(self.rows), self.file, [*dropped, *(f"{self.file}: {n}" for n in self.notes)])

    def _nothing(self) -> str:
        if not self.left:
            return f"{self.file}: holds no results"
        reason, places = next(iter(self.left.items()))
        count = sum(map(len, self.left.values()))
        return f"{self.file}:{places[0]}: {reason}" + (f"; none of {count} rows can be used" if count > 1 else "")


def _places(places: list[Place]) -> str:
    word = "line" if isinstance(places[0], int) else "at"
    return f"{word} {', '.join(map(str, places[:5]))}{', ...' if len(places) > 5 else ''}"
