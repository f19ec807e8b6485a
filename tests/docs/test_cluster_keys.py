"""The pages of a cluster have a row for every key."""

from pathlib import Path

import pytest
from runcast.simulator.hardware.catalogue import _ClusterKeys
from runcast.simulator.hardware.network_keys import NetworkKeys

DOCS = Path(__file__).parents[2] / "docs"
NETWORK, CLUSTER = set(NetworkKeys.model_fields), set(_ClusterKeys.model_fields)
KEYS = {"cluster-keys": CLUSTER - NETWORK | {"base", "mix"}, "fabrics": NETWORK - {"fabric"}}


@pytest.mark.parametrize("page", KEYS)
def test_the_page_has_a_row_for_every_key(page):
    rows = [line.split("|")[1] for line in (DOCS / f"{page}.md").read_text().splitlines() if line.startswith("| `")]

    assert KEYS[page] <= {word.strip("` ") for row in rows for word in row.split(",")}
