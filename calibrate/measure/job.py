"""What a supervisor starts its worker with."""

import json
from dataclasses import asdict, dataclass

from .place import Place
from .plan import Options

RESTART = 3
"""Exit code of a worker after a case that left the ranks out of step."""


@dataclass(frozen=True)
class Job:
    """What a worker is started with. `attempt` counts the workers of a rank; `stop_at` is a wall clock, 0 for never."""

    place: Place
    kind: str
    options: Options
    modules: tuple[str, ...] = ()
    attempt: int = 0
    stop_at: float = 0.0

    def to_text(self) -> str:
        """As `from_text` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Job":
        """From what `to_text` gave."""
        values = json.loads(text)
        place, options = Place(**values["place"]), Options.from_json(values["options"])
        return cls(**values | {"place": place, "options": options, "modules": tuple(values["modules"])})
