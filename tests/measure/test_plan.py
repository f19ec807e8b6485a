import json
from dataclasses import asdict

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.case import Case, Facts
from runcast.calibrate.measure.job import Job, Place
from runcast.calibrate.measure.plan import CALL_S, WIRE_CALL_S, Options, call_s, plan

CPU = Facts("cpu", ((0, 1), (2, 3)), memory_bytes=1e9)


def case(name, **more):
    return Case("kernels", name, {}, lambda bench: None, **more)


def names(the_plan):
    return [visit.case.name for visit in the_plan.visits]


def test_every_case_once_a_round_each_round_in_its_own_order():
    cases = [case(f"c{i}") for i in range(20)]
    found = names(plan(CPU, Options(rounds=2), cases))
    first, second = found[:20], found[20:]
    assert sorted(first) == sorted(second) == sorted(c.name for c in cases)
    assert first != second != sorted(first) != first


def test_the_same_seed_gives_the_same_order():
    cases = [case(f"c{i}") for i in range(20)]
    assert names(plan(CPU, Options(seed=3), cases)) == names(plan(CPU, Options(seed=3), cases))
    assert names(plan(CPU, Options(seed=3), cases)) != names(plan(CPU, Options(seed=4), cases))


def test_the_order_is_the_same_in_every_process():
    """Ranks are processes of their own, each with hashes of its own."""
    cases = [case(f"c{i}") for i in range(8)]
    assert names(plan(CPU, Options(rounds=1, seed=3), cases)) == ["c3", "c7", "c2", "c5", "c1", "c0", "c4", "c6"]


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [("kernels", {"add", "mul"}), ("kernels/a*", {"add"}), ("*/mul", {"mul"}), ("kernels/[am]*", {"add", "mul"})],
)
def test_subsets_by_name(pattern, kept):
    assert set(names(plan(CPU, Options(only=(pattern,)), [case("add"), case("mul")]))) == kept


def test_a_pattern_that_names_nothing_is_one_line():
    with pytest.raises(ValueError, match="--only = 'gem': names no case; families here: kernels"):
        plan(CPU, Options(only=("gem",)), [case("add")])


def test_two_cases_of_one_name_are_one_line():
    with pytest.raises(ValueError, match="two cases are called 'kernels/add': expected another name or other params"):
        plan(CPU, Options(), [case("add"), case("add")])


def test_quick_keeps_the_quick_ones():
    cases = [case("add", quick=True), case("mul")]
    assert set(names(plan(CPU, Options(quick=True), cases))) == {"add"}


def test_what_does_not_fit_is_counted_with_its_reason():
    cases = [case("slow", flop=1e13), case("big", footprint_bytes=2e9), case("add")]
    the_plan = plan(CPU, Options(rounds=1), cases)
    assert names(the_plan) == ["add"]
    assert sorted(the_plan.left_out) == [
        "needs more than the 0.931 GiB of memory that a rank may use",
        "one call is expected to take more than 1 s",
    ]


@pytest.mark.parametrize(
    ("quick", "kept"), [(False, {"kernel_half", "wire_half", "wire_4", "sustained"}), (True, {"sustained"})]
)
def test_calls_may_take_longer_between_ranks_and_hardly_where_it_is_quick(quick, kept):
    """A second for kernels, five for messages, a tenth where it is quick; what takes its own time takes it."""
    wire = {"team": (0, 1), "over": "wire", "quick": True}
    cases = [
        *(case(f"kernel_{name}", flop=3e10 * call_s, quick=True) for name, call_s in (("half", 0.5), ("4", 4.0))),
        *(case(f"wire_{name}", bytes=3e8 * call_s, **wire) for name, call_s in (("half", 0.5), ("4", 4.0), ("6", 6.0))),
        case("sustained", flop=3e11, lasts_s=3.0, quick=True),
    ]
    assert set(names(plan(CPU, Options(quick=quick), cases))) == kept


def test_a_call_is_its_work_at_rough_rates():
    wire = case("all_reduce", team=(0, 1), bytes=3e8, over="wire")
    assert call_s(wire, CPU) == pytest.approx(1.0 + WIRE_CALL_S["cpu"])
    assert call_s(case("gemm", flop=3e10, bytes=2e9), CPU) == pytest.approx(2.0 + CALL_S["cpu"])


def test_a_visit_takes_its_budget_or_eight_calls():
    options = Options(rounds=1, budget_s=0.04)
    small, large = (plan(CPU, options, [case("x", flop=flop)]).expected_s for flop in (0.0, 1.5e10))
    assert small == pytest.approx(0.02 + 0.05)
    assert large == pytest.approx(0.02 + 8 * (0.5 + CALL_S["cpu"]))


def test_a_visit_takes_its_own_time_and_that_of_writing_its_memory():
    (visit,) = plan(CPU, Options(rounds=1), [case("x", flop=3e12, footprint_bytes=1e9, lasts_s=3.0)]).visits
    assert visit.expected_s == pytest.approx(0.5 + 0.02 + 3.0)


def test_facts_and_options_survive_the_way_to_other_ranks():
    options = Options(("gemm",), True, 0.01, 3, 7, 5.0, 60.0)
    assert Facts.from_json(json.loads(json.dumps(asdict(CPU)))) == CPU
    job = Job(Place(3, 4), "cpu", options, ("mine",), 2, 5.0)
    assert Job.from_text(job.to_text()) == job
