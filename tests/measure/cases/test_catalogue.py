"""Which cases there are: pure functions of the facts, told apart by name, and samples of classes that exist."""

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from dataclasses import replace

from runcast.calibrate.measure.case import Facts
from runcast.calibrate.measure.cases import collectives, copies, handles, reload, send_recv
from runcast.simulator.profile.forms import cost_class

FAMILIES = (collectives, send_recv, copies, reload, handles)


def machine(nodes, ranks, **more):
    return Facts("cpu", tuple(tuple(range(node * ranks, (node + 1) * ranks)) for node in range(nodes)), **more)


def every(facts):
    return [case for family in FAMILIES for case in family.cases(facts)]


def told(case):
    """All of a case but the function that measures it."""
    return replace(case, measure=None)


MACHINES = [machine(1, 1), machine(1, 4, numa_nodes=2), machine(2, 4), machine(3, 8, near_numa=1, numa_nodes=2)]
NAMES = ["1x1", "1x4", "2x4", "3x8"]


@pytest.mark.parametrize("facts", MACHINES, ids=NAMES)
def test_the_same_facts_give_the_same_cases_each_by_its_own_name(facts):
    assert [told(case) for case in every(facts)] == [told(case) for case in every(facts)]
    keys = [case.key for case in every(facts)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("facts", MACHINES, ids=NAMES)
def test_a_sample_has_the_features_of_its_class_and_no_others(facts):
    for case in every(facts):
        known = cost_class(case.cost_class) if case.cost_class else None
        assert bool(known) == bool(case.cost_class), case.key
        assert set(case.features) == set(known.features if known else ()), case.key
        assert all(value > 0 for value in case.features.values()), case.key


@pytest.mark.parametrize("facts", MACHINES, ids=NAMES)
def test_a_team_is_of_ranks_that_exist_and_an_act_has_a_size(facts):
    for case in every(facts):
        assert len(set(case.team)) == len(case.team) <= facts.ranks
        assert max(case.team) < facts.ranks
        assert case.footprint_bytes > 0
        assert case.bytes > 0 or case.lasts_s > 0


def test_a_cpu_and_a_gpu_have_the_same_cases_but_for_copies_between_gpus():
    gpu = replace(MACHINES[3], kind="cuda", collectives="nccl 2.27.5")
    one, other = ({case.key.partition(" through=")[0] for case in every(facts)} for facts in (MACHINES[3], gpu))
    assert one == {key for key in other if not key.startswith("copies/p2p ")}
    assert {case.library for case in collectives.cases(gpu)} == {"nccl 2.27.5"}


def test_quick_cases_are_few_of_every_family():
    cases = every(MACHINES[2])
    quick = [case for case in cases if case.quick]
    assert {case.family for case in quick} == {"collectives", "send_recv", "copies", "reload", "handles"}
    assert len(quick) < len(cases) / 4


def test_a_rank_alone_has_no_collectives_messages_or_handles():
    assert {case.family for case in every(machine(1, 1))} == {"copies", "reload"}


def test_nodes_of_one_rank_have_messages_across_but_no_handles():
    alone = machine(3, 1)
    assert {case.cost_class for case in send_recv.cases(alone)} == {"send_recv.network", ""}
    assert list(handles.cases(alone)) == []


def test_copies_name_the_near_and_the_far_node():
    facts = machine(1, 1, numa_nodes=2, near_numa=1)
    named = {(case.params["numa_node"], case.params["numa"]) for case in copies.cases(facts) if "numa" in case.params}
    assert named == {(0, "far"), (1, "near")}
