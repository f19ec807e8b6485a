"""A worker by itself: what the other ranks would leave on the board is there already."""

import time
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure import worker as module
from runcast.calibrate.measure.case import Case
from runcast.calibrate.measure.device import CpuDevice
from runcast.calibrate.measure.job import RESTART, Job, Place
from runcast.calibrate.measure.meeting import Board
from runcast.calibrate.measure.plan import Options
from runcast.calibrate.measure.timing import Measurement, cold
from runcast.calibrate.measure.worker import Worker, join_parts

from . import fake_cuda


class Rank0:
    """Of as many ranks as have left where they are, and one more."""

    def __init__(self, *others, kind="cpu", options=Options(rounds=1), todo=(), **job):  # noqa: B008
        self.board = Board(Place(), holds=True)
        for rank, where in enumerate(others, 1):
            self.board.post(f"at/{rank}", where)
        self.board.post("todo/0", todo)
        self.told = []
        place = Place(ranks=1 + len(others), port=self.board.port)
        self.worker = Worker(Job(place, kind, options, **job), self.told.append)

    def all_told(self, what):
        return [message[what] for message in self.told if what in message]


@pytest.fixture
def cases(monkeypatch):
    """What there is to measure, in place of the suite's."""
    found = []
    monkeypatch.setattr(module, "all_cases", lambda facts, modules: found)
    return found


def case(name, samples=(1.0,) * 5, **more):
    return Case("mine", name, {}, lambda bench: Measurement(samples), **more)


def failing(name):
    def fails(bench):
        raise RuntimeError("no")

    return Case("mine", name, {}, fails)


def part(*samples_s, wrong=None, more=None):
    return {"samples_s": list(samples_s), "wrong": wrong, "more": more or {}}


def test_ranks_are_told_apart_by_their_nodes():
    assert Rank0([1, "", "cpu"], [0, "", "cpu"], [1, "", "cpu"]).worker.facts.nodes == ((0, 2), (1, 3))


@pytest.mark.parametrize("other", [[0, "another GPU", "cpu"], [1, "a GPU", "cpu"]])
def test_each_rank_has_a_gpu_hash_its_own(monkeypatch, other):
    monkeypatch.setattr(module, "gpu_hash", lambda device: "a GPU")
    assert Rank0(other).worker.facts.ranks == 2


def test_ranks_that_share_a_gpu_are_refused(monkeypatch):
    monkeypatch.setattr(module, "gpu_hash", lambda device: "a GPU")
    with pytest.raises(ValueError, match="ranks 0 and 2 share a GPU: start one rank per GPU"):
        Rank0([0, "another GPU", "cpu"], [0, "a GPU", "cpu"])


def test_ranks_of_which_some_see_no_gpu_are_refused():
    with pytest.raises(ValueError, match="rank 0 measures cpu, but rank 1 cuda: no GPU there"):
        Rank0([0, "", "cuda"])


@pytest.mark.slow
def test_ranks_that_would_measure_other_cases_are_refused(cases):
    cases += [case("first"), case("second")]
    rank_0 = Rank0([0, "", "cpu"], [0, "", "cpu"])
    plans = [of_rank([0, "", "cpu"], [0, "", "cpu"]) for of_rank in (Rank0, Rank0)]
    for rank, other in enumerate(plans, 1):
        post(other, rank_0.board, rank, cases[: 3 - rank])
    with pytest.raises(ValueError, match="rank 2 would measure other cases than rank 0: the same flags"):
        rank_0.worker.run()


def post(other, board, rank, cases):
    """That rank's plan, on another's board."""
    gather = lambda name, value: board.post(f"{name}/{rank}", value)  # noqa: E731
    other.worker.board = SimpleNamespace(gather=gather, read=lambda name: True)
    other.worker._check_same(module.plan(other.worker.facts, other.worker.job.options, cases))


def test_the_time_of_a_collective_is_the_mean_over_ranks():
    found = join_parts({1: part(3.0, 5.0, more={"of": 1}), 0: part(1.0, 2.0, more={"of": 0})})
    assert found == Measurement((2.0, 3.5), None, {"of": 0})


def test_wrong_elements_are_those_of_all_ranks():
    assert join_parts({0: part(1.0), 1: part(1.0, wrong=2), 2: part(1.0, wrong=3)}).wrong == 5
    assert join_parts({0: part(1.0, wrong=0), 1: part(1.0, wrong=0)}).wrong == 0


def test_ranks_with_other_numbers_of_samples_stand_side_by_side():
    assert join_parts({0: part(1.0, 2.0), 1: part(3.0)}).samples_s == (1.0, 2.0, 3.0)


def test_one_rank_that_failed_is_named():
    assert join_parts({0: part(1.0), 3: {"error": "no", "broken": False}}) == "rank 3: no"


def test_the_error_of_a_rank_that_was_left_is_told_only_if_there_is_no_other():
    left = {"error": "RuntimeError: Connection closed by peer [127.0.0.1]:34177", "broken": True}
    assert join_parts({0: left, 1: {"error": "no", "broken": False}}) == "rank 1: no"
    assert join_parts({0: left, 1: left}).startswith("rank 0: RuntimeError: Connection closed")


def test_a_case_that_fails_is_told_and_the_next_is_measured(cases):
    cases += [failing("fails"), case("good")]
    rank_0 = Rank0(todo=[0, 1])
    assert rank_0.worker.run() == 0
    told = {record["case"]: record.get("error") for record in rank_0.all_told("record")}
    assert told == {"fails": "RuntimeError: no", "good": None}
    assert rank_0.all_told("position") == [0, 1]


def test_a_case_that_is_too_slow_is_left_out_and_others_of_its_name_are_not_tried(cases):
    tried = []

    def prepare(bench, n):
        tried.append(n)
        return lambda: time.sleep(0.25)

    expected = {"flop": 3e8, "quick": True}  # 10 ms at the plan's rate
    cases += [Case("mine", "slow", {"n": n}, cold(prepare, n), **expected) for n in range(3)]
    cases += [case("fast", **expected)]
    rank_0 = Rank0(todo=[0, 1, 2, 3], options=Options(rounds=1, quick=True))
    assert rank_0.worker.run() == 0
    told = sorted((record["case"], "left_out" in record) for record in rank_0.all_told("record"))
    assert told == [("fast", False), *[("slow", True)] * 3]
    assert len(tried) == 1


def test_only_what_is_to_be_done_is(cases):
    cases += [case(f"c{i}") for i in range(4)]
    rank_0 = Rank0(todo=[1, 3])
    rank_0.worker.run()
    assert rank_0.all_told("begin") == rank_0.all_told("position") == [1, 3]


def test_inputs_are_those_of_the_seed(cases):
    drawn = []
    for seed in (7, 7, 8):
        cases[:] = [Case("mine", "draws", {}, lambda bench: Measurement(tuple(bench.rand(5).abs().tolist())))]
        rank_0 = Rank0(todo=[0], options=Options(rounds=1, seed=seed))
        rank_0.worker.run()
        drawn += [record["samples"] for record in rank_0.all_told("record")]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_device_that_no_longer_works_needs_a_fresh_worker(cases, monkeypatch):
    def lost(_device):
        raise RuntimeError("an illegal memory access was encountered")

    cases += [failing("fails"), failing("fails_too")]
    rank_0 = Rank0(todo=[0, 1])
    monkeypatch.setattr(CpuDevice, "synchronize", lost)
    assert rank_0.worker.run() == RESTART
    assert rank_0.all_told("position") == [0]


@pytest.mark.parametrize(("stop_at", "done"), [(0.0, [0, 1]), (1.0, [0]), (1e12, [0, 1])])
def test_after_the_limit_no_case_begins(cases, stop_at, done):
    cases += [case("one"), case("two")]
    rank_0 = Rank0(todo=[0, 1], stop_at=stop_at)
    assert rank_0.worker.run() == 0
    assert rank_0.all_told("position") == done


def test_a_gpu_gives_memory_back_and_loads_libraries_the_first_time(cases, monkeypatch):
    fake = fake_cuda.install(monkeypatch)
    cases += [case("one"), case("two"), case("long", lasts_s=30.0)]
    rank_0 = Rank0(kind="cuda", options=Options(rounds=1, timeout_s=7.0), todo=[0, 1, 2])
    assert rank_0.worker.run() == 0
    assert fake.called.count("empty_cache") == 3
    expected = [150.1 if record["case"] == "long" else 7.0 for record in rank_0.all_told("record")]
    more = [limit_s - first for limit_s, first in zip(rank_0.all_told("limit_s"), expected, strict=True)]
    assert more == pytest.approx([100.0, 0.0, 0.0])
