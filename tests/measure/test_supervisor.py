"""A supervisor by itself: its workers follow a script, other ranks are what is on the board, and time is counted."""

import signal
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure import supervisor as module
from runcast.calibrate.measure.job import RESTART, Job, Place
from runcast.calibrate.measure.meeting import Board
from runcast.calibrate.measure.plan import Options
from runcast.calibrate.measure.supervisor import Supervisor


class Ranks:
    """Rank 0 or 1 of two, on a board of its own; `scripts` are what its workers tell, one after the other.

    A step is a list of messages, an exit code, or a function to call.
    """

    def __init__(self, monkeypatch):
        self.board = Board(Place(), holds=True)
        self.now_s, self.children, self.scripts = 0.0, [], []
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._pass)
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(module, "Child", lambda job: Scripted(self, job.attempt))

    def _pass(self, seconds):
        self.now_s += seconds
        assert self.now_s < 1000, "it waits for ever"

    def run(self, rank, *scripts, leader=None):
        """The exit code. After the last script the run is over."""
        end = [lambda: self.board.post_first("over", {"code": 0, "line": ""})]
        self.scripts = [*scripts, end]
        job = Job(Place(rank=rank, ranks=2, port=self.board.port), "cpu", Options())
        self.board.post("bye/1", True)
        return Supervisor(job, self.board, leader, silence_s=1e6).run()


class Scripted:
    def __init__(self, ranks, attempt):
        self.ranks, self.steps = ranks, iter(ranks.scripts[attempt])
        self.exit_code, self.killed = None, False
        ranks.children.append(self)

    def messages(self, patience_s):
        self.ranks._pass(patience_s)
        step = next(self.steps, [])
        if callable(step):
            step()
        elif isinstance(step, int):
            self.exit_code = step
        return step if isinstance(step, list) else []

    def kill(self):
        self.killed = True


class FakeLeader:
    """Rank 0's leader, with five visits."""

    def __init__(self):
        self.told = []

    def handle(self, message):
        self.told.append(message)

    def give_up(self, position, reason):
        self.told.append((position, reason))

    def todo(self, after):
        return list(range(after + 1, 5))


@pytest.fixture
def ranks(monkeypatch):
    return Ranks(monkeypatch)


BEGIN = [{"begin": 3, "limit_s": 50.0}]
FACTS = [{"facts": {}}]


def test_a_case_that_takes_too_long_is_given_up_in_time(ranks):
    assert ranks.run(1, [BEGIN]) == 0
    assert ranks.board.peek("broken/0") == {"position": 3, "reason": "rank 1: timed out after 50 s"}
    assert 50 < ranks.now_s < 52
    assert [child.killed for child in ranks.children] == [True, True]


def test_a_case_that_begins_has_its_time_anew(ranks):
    wait = [[]] * 200  # 40 s
    ranks.run(1, [BEGIN, *wait, [{"begin": 4, "limit_s": 50.0}]])
    assert ranks.board.peek("broken/0")["position"] == 4
    assert 90 < ranks.now_s < 92


def test_a_rank_that_waits_for_another_blames_it_last(ranks):
    ranks.run(1, [BEGIN, [{"waiting": 3}]])
    assert 55 < ranks.now_s < 57


def test_where_another_rank_has_failed_nobody_waits_long(ranks):
    def other():
        ranks.board.post_first("alarm/0/3", "rank 0: RuntimeError: no")

    ranks.run(1, [BEGIN, other])
    assert ranks.board.peek("broken/0") == {"position": 3, "reason": "rank 0: RuntimeError: no"}
    assert 5 < ranks.now_s < 7


def test_an_alarm_for_another_case_is_none(ranks):
    ranks.board.post("alarm/0/2", "rank 0: RuntimeError: no")
    ranks.run(1, [BEGIN])
    assert ranks.board.peek("broken/0")["reason"] == "rank 1: timed out after 50 s"


def test_a_failure_of_ones_own_is_an_alarm_for_all(ranks):
    ranks.run(1, [BEGIN, [{"failed": 3, "reason": "RuntimeError: no"}]])
    assert ranks.board.peek("alarm/0/3") == "rank 1: RuntimeError: no"


@pytest.mark.parametrize(
    ("code", "told"),
    [(-signal.SIGSEGV, "was killed by SIGSEGV"), (1, "ended with exit code 1")],
    ids=["killed", "ended"],
)
def test_a_worker_that_is_gone_is_replaced_on_all_ranks(ranks, code, told):
    assert ranks.run(1, [BEGIN, code]) == 0
    assert ranks.board.peek("broken/0") == {"position": 3, "reason": f"rank 1: its worker {told}"}
    assert len(ranks.children) == 2


def test_who_sees_it_first_says_why(ranks):
    ranks.board.post("broken/0", {"position": 2, "reason": "rank 0: timed out after 5 s"})
    ranks.run(1, [BEGIN, -signal.SIGABRT])
    assert ranks.board.peek("broken/0")["position"] == 2


@pytest.mark.parametrize("ending", [-signal.SIGABRT, RESTART])
def test_the_next_worker_goes_on_after_that_case(ranks, ending):
    ranks.run(0, [FACTS, BEGIN, ending], leader=FakeLeader())
    assert ranks.board.peek("todo/0") == [0, 1, 2, 3, 4]
    assert ranks.board.peek("todo/1") == [4]


def test_where_nothing_is_left_the_run_is_over(ranks):
    last = [{"begin": 4, "limit_s": 50.0}]
    assert ranks.run(0, [FACTS, last, RESTART], leader=FakeLeader()) == 0
    assert len(ranks.children) == 1
    assert ranks.board.peek("over") == {"code": 0, "line": ""}


def test_what_a_worker_told_before_another_broke_is_heard_first(ranks):
    """Its record may be among that, and then the visit is not given up."""
    leader = FakeLeader()

    def broken():
        ranks.board.post("broken/0", {"position": 3, "reason": "rank 1: its worker was killed by SIGABRT"})

    ranks.run(0, [FACTS, BEGIN, broken, [{"record": {}, "position": 3}]], leader=leader)
    assert leader.told[2:] == [{"record": {}, "position": 3}, (3, "rank 1: its worker was killed by SIGABRT")]


def test_a_worker_that_never_starts_ends_the_run(ranks, capsys):
    assert ranks.run(1, [1]) == 1
    assert "rank 1: its worker did not start: ended with exit code 1; the same" in capsys.readouterr().err


def test_neither_does_one_that_starts_for_ever(ranks):
    assert ranks.run(1, []) == 1
    assert ranks.board.peek("over") == {"code": 1, "line": "rank 1: its worker did not start within 300 s"}


@pytest.mark.parametrize(("rank", "said"), [(0, "error: another plan\n"), (1, "")])
def test_a_mistake_shows_in_rank_0_alone(ranks, capsys, rank, said):
    assert ranks.run(rank, [[{"mistake": "another plan"}]]) == 2
    assert ranks.board.peek("over") == {"code": 2, "line": "another plan"}
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_all_ranks_in_order(ranks, capsys, number, code):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        assert ranks.run(1, [BEGIN, lambda: signal.raise_signal(number)]) == code
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)
    assert ranks.board.peek("over")["code"] == code
    assert ranks.children[0].killed
    assert "the same command goes on where it stopped" in capsys.readouterr().err


def test_how_it_ended_elsewhere_is_how_it_ends_here(ranks, capsys):
    ranks.board.post("over", {"code": 130, "line": "interrupted"})
    assert ranks.run(1, [BEGIN]) == 130
    assert "interrupted; the same command" in capsys.readouterr().err
