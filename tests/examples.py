"""How many examples a property is shown: a fifth in `make test`, all of them in `make slow`."""

import os
from typing import Any

from hypothesis import settings

EVERY = "RUNCAST_EVERY_EXAMPLE" in os.environ


def examples(many: int, **more: Any) -> settings:
    """Settings of a test whose property holds for so many examples."""
    return settings(max_examples=many if EVERY else max(many // 5, 4), **more)
