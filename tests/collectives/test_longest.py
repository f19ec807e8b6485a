"""Parts of an exchange that go on at the same time: the longest sets the time, and all set how sure it is."""

from dataclasses import replace
from math import exp

import pytest
from runcast.simulator.collectives import Collective, Layout, Machines, Measured, Price, longest
from runcast.simulator.hardware import cluster
from runcast.simulator.profile import PROVENANCE, Z90, load_profile, load_stack

FITTED, EXTRAPOLATED = PROVENANCE.index("fitted"), PROVENANCE.index("extrapolated")
SURE, UNSURE = Price(2.0, 0.05, FITTED), Price(1.0, 1.0, EXTRAPOLATED)
GROUP = tuple(range(16))


def test_the_interval_reaches_as_far_as_that_of_a_shorter_part():
    assert longest([SURE, UNSURE]).reach_s() == pytest.approx(exp(Z90))


def test_a_shorter_part_that_reaches_farther_lends_its_weaker_basis():
    assert longest([SURE, UNSURE]).provenance == EXTRAPOLATED


def test_the_longest_part_sets_the_seconds():
    assert longest([SURE, UNSURE]).seconds == 2


def test_a_shorter_part_that_reaches_less_far_changes_nothing():
    assert longest([SURE, replace(UNSURE, spread=0.3)]) == SURE


def price_between_nodes(wider):
    """An all-reduce of 64 MiB on two nodes of which the part inside a node is longer."""
    profile = load_profile("h100-sxm").join(load_stack("generic"))
    models = {library: model.carry_over(wider) for library, model in profile.models["all_reduce.network"].items()}
    there = replace(profile, models={**profile.models, "all_reduce.network": models})
    node = cluster({"base": "dgx-h100", "nic": "3200 Gb/s"}, 2)
    return Measured(Machines(node, there), Layout(node, {})).price(Collective("all_reduce", GROUP, 2.0**26), 0)


def test_an_unsure_part_between_nodes_widens_an_exchange_that_takes_longer_inside_them():
    assert price_between_nodes(3.0).reach_s() > 10 * price_between_nodes(0.0).reach_s()
