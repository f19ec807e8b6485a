"""docs/fabrics.md explains every key of a network."""

from pathlib import Path

from runcast.simulator.hardware.network_keys import NetworkKeys

PAGE = Path(__file__).parents[2] / "docs/fabrics.md"


def test_the_page_has_a_row_for_every_key():
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    keys = {word.strip("` ") for row in rows for word in row.split(",")}
    assert set(NetworkKeys.model_fields) - {"fabric"} <= keys
