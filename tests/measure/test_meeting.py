"""What ranks leave for each other on the board, and how they notice that one of them is silent."""

from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure import meeting as module
from runcast.calibrate.measure.job import Place
from runcast.calibrate.measure.meeting import Board, Pulse, _call_store


@pytest.fixture
def board():
    return Board(Place(), holds=True)


@pytest.fixture
def wait(monkeypatch):
    """Lets time pass."""
    clock = SimpleNamespace(now_s=100.0)

    def passes(seconds):
        clock.now_s += seconds

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    return passes


def test_the_first_of_several_is_kept(board):
    board.post_first("over", {"code": 1})
    board.post_first("over", {"code": 0})
    assert board.peek("over") == {"code": 1}


def test_nothing_is_there_until_somebody_leaves_it(board):
    assert board.peek("over") is None
    board.post("over", 0)
    assert board.peek("over") == 0
    board.forget("over")
    assert board.peek("over") is None


def test_ranks_that_were_started_anew_see_nothing_of_those_before(board):
    """torchrun's store outlives them."""
    again = Board(Place(port=board.port, epoch=1))
    board.post("over", {"code": 1})
    assert again.peek("over") is None
    assert Board(Place(port=board.port)).peek("over") == {"code": 1}


def test_a_store_that_is_gone_is_one_line():
    def gone():
        raise RuntimeError("Broken pipe\nException raised from sendBytes at ...")

    with pytest.raises(ConnectionError, match=r"^Broken pipe$"):
        _call_store(gone)


@pytest.mark.parametrize(("watcher", "silent"), [(0, 1), (1, 0)])
def test_a_rank_that_is_silent_for_too_long_is_lost(board, wait, watcher, silent):
    watching, watched = Pulse(board, watcher, 2, silence_s=5.0), Pulse(board, silent, 2, silence_s=5.0)
    for _ in range(10):
        wait(1.1)
        watched.beat()
        watching.beat()
    assert board.peek("over") is None
    for _ in range(4):
        wait(1.1)
        watching.beat()
    assert board.peek("over") is None
    wait(1.1)
    watching.beat()
    assert board.peek("over") == {"code": 1, "line": f"rank {silent} has been silent for 5 s and is lost"}


def test_a_rank_that_never_came_is_lost_too(board, wait):
    alone = Pulse(board, 0, 3, silence_s=5.0)
    for _ in range(6):
        alone.beat()
        wait(1.1)
    assert board.peek("over")["line"] == "rank 1 has been silent for 5 s and is lost"
