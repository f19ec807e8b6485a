import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.cases.overheads import cases

from .families import CPU, CPUS, GPU, NODE, check, each, measures, one


@each
def test_cases_are_sound(facts):
    check(cases, facts)


def test_names_that_the_catalogue_of_costs_knows():
    named = {case.cost_class for case in cases(GPU)}
    assert {"host.launch", "host.linear_call", "host.synchronize", "host.graph_replay_issue"} <= named


def test_a_sample_says_how_many_calls_it_holds():
    case = one(cases, GPU, "linear_call")
    assert case.features == {"count": 100}
    assert case.calls == 100


def test_one_size_of_memory_is_a_sample():
    sampled = [case for case in cases(GPU) if "alloc" in case.name and case.cost_class]
    assert {(case.name, case.params["bytes"]) for case in sampled} == {
        ("empty_alloc_cached", 1 << 20),
        ("alloc_uncached", 1 << 26),
    }
    assert len([case for case in cases(GPU) if "alloc" in case.name]) == 6


def test_every_wait_counts():
    case = one(cases, GPU, "stream_wait_event")
    assert case.features == {"count": case.params["waits"]}


def test_no_graphs_and_events_on_a_cpu():
    assert not {"graph_node", "event_pair"} & {case.name for case in cases(CPU)}


def test_the_first_two_ranks_call_a_collective():
    assert one(cases, NODE, "collective_call").team == (0, 1)
    assert one(cases, CPUS, "collective_call").team == (0, 1)
    assert not [case for case in cases(GPU) if case.name == "collective_call"]


@pytest.mark.slow
def test_all_measure():
    for case in cases(CPU):
        measures(case)
