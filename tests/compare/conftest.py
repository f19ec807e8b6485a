"""What the tests of `runcast compare` share."""

from pathlib import Path

import pytest


@pytest.fixture
def repository():
    """The folder of the repository."""
    return Path(__file__).parents[2]
