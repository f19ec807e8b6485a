"""Which answers are kept: the last ones, as many as there is room for."""

import pytest
from runcast.dashboard.answers import Answers
from runcast.dashboard.library import Library
from runcast.dashboard.question import Question

ASKED = [Question("tiny-2ranks", {"update.bucket": f"{size} MiB"}) for size in (1, 2, 3)]


@pytest.mark.parametrize(
    ("limits", "kept"),
    [({}, [True, True, True]), ({"most": 2}, [False, True, True]), ({"most_ops": 1}, [False, False, True])],
)
def test_the_last_answers_are_kept(limits, kept):
    answers = Answers(Library(), **limits)

    first = [answers.predict(one) for one in ASKED]

    again = [answers.predict(one) for one in reversed(ASKED)]
    assert [one is other for one, other in zip(first, reversed(again), strict=True)] == kept


def test_one_answer_serves_two_ways_of_asking():
    answers = Answers(Library())

    one, other = answers.predict(ASKED[0]), answers.predict(Question("tiny-2ranks", {"update.bucket": 2**20}))

    assert one is other
