import pytest


@pytest.fixture(autouse=True, scope="module")
def _as_stated(unfitted):
    """Closed forms hold for numbers as they are stated."""
