"""Work ends when it is told to: what waits for it hears of that, and is free for the next question."""

from threading import Event, Thread

import pytest
from runcast.dashboard import answers as answers_module
from runcast.dashboard.answers import Answers
from runcast.dashboard.library import Library
from runcast.dashboard.question import Question
from runcast.dashboard.stopping import StoppedError, Work
from runcast.simulator.base.errors import UserError

TINY = Question("tiny-2ranks")


def endless(begun: Event, left: Event) -> None:
    try:
        begun.set()
        while True:
            pass
    finally:
        left.set()


def when(begun: Event, do) -> Thread:
    """A thread that does something once work has begun."""

    def wait() -> None:
        begun.wait()
        do()

    thread = Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.timeout(30)
def test_work_that_is_stopped_ends_in_the_midst():
    work, begun, left = Work(), Event(), Event()
    when(begun, work.stop)

    with pytest.raises(StoppedError, match=r"Stopped before the end\."):
        work.run(lambda: endless(begun, left))

    assert left.is_set()


def test_work_that_is_stopped_before_it_begins_does_not_begin():
    work, begun = Work(), Event()
    work.stop()

    with pytest.raises(StoppedError):
        work.run(begun.set)

    assert not begun.is_set()


def test_work_that_has_ended_is_not_stopped():
    work = Work()

    assert work.run(lambda: 3) == 3
    work.stop()


def test_what_work_raises_is_raised():
    def refuse() -> None:
        raise UserError("nodes = 0: expected more")

    with pytest.raises(UserError, match="nodes = 0"):
        Work().run(refuse)


@pytest.mark.timeout(60)
def test_a_question_that_was_stopped_is_answered_when_it_is_asked_again(monkeypatch):
    answers, begun = Answers(Library()), Event()
    with monkeypatch.context() as patched:
        patched.setattr(answers_module, "predict", lambda _: endless(begun, Event()))
        when(begun, lambda: answers.stop("mine"))
        with pytest.raises(StoppedError):
            answers.predict(TINY, "mine")

    assert answers.predict(TINY, "mine").report.update_time_s > 0


@pytest.mark.timeout(60)
def test_the_next_question_of_a_job_ends_the_one_before_and_that_of_another_does_not(monkeypatch):
    answers, begun, predict = Answers(Library()), Event(), answers_module.predict
    heavy = Question("tiny-2ranks", {"update.bucket": "1 MiB"})
    first = iter([lambda _: endless(begun, Event())])
    monkeypatch.setattr(answers_module, "predict", lambda resolved: next(first, predict)(resolved))
    monkeypatch.setattr(answers_module, "PATIENCE_S", 0.01)
    found = []
    asking = when(begun, lambda: found.extend(answers.predict(TINY, job) for job in ("other", "mine")))

    with pytest.raises(StoppedError):
        answers.predict(heavy, "mine")

    asking.join()
    assert [one.report.kind for one in found] == ["weight_update"] * 2
