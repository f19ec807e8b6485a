"""The algorithm that docs/collectives.md writes as an example: it delivers, and its two forms take equally long."""

import re
from pathlib import Path

import pytest
from runcast.simulator.collectives.algorithms import ring
from runcast.simulator.collectives.algorithms.clock import Ideal, end_s
from runcast.simulator.collectives.algorithms.messages import Group

from .content import deliver, wanted

PAGE = Path(__file__).parents[2] / "docs/collectives.md"


@pytest.fixture(scope="module")
def neighbour():
    """What the file on the page defines."""
    (text,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names = {"__package__": ring.__package__, "__name__": "neighbour"}
    exec(text, names)
    return names["NEIGHBOUR"]


@pytest.mark.parametrize("shape", [(1, 2), (1, 6), (1, 8), (4, 8), (2, 3), (6, 1)])
def test_the_example_of_the_page_is_a_correct_algorithm(neighbour, shape):
    group = Group(*shape)
    has, net = deliver(neighbour, group), Ideal(group.ranks, 1e-3, 1e3)
    assert neighbour.refuses(group) == ""
    assert all(has[rank].get(block) == content for rank, block, content in wanted(neighbour, group))
    assert end_s(neighbour.chunks(group), group, 1e3, net) == pytest.approx(
        net.seconds(neighbour.terms(group, 1e3)), rel=1e-9
    )


def test_the_example_refuses_an_odd_number_of_ranks(neighbour):
    assert neighbour.refuses(Group(1, 5)) == "expected an even number of ranks (given: 5)"
