"""Which answers are kept: the last ones, as many as there is room for."""

import re
from pathlib import Path

import pytest
from runcast.dashboard import answers as answers_module
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


def test_of_two_files_of_one_content_each_has_its_name(tmp_path):
    for name in ("one", "two"):
        text = Path("data/scenarios/tiny-2ranks.toml").read_text()
        (tmp_path / f"{name}.toml").write_text(re.sub(r"(?m)^name = .*", f'name = "{name}"', text))
    answers = Answers(Library(tmp_path))

    names = [answers.predict(Question(name)).report.name for name in ("one", "two")]

    assert names == ["one", "two"]


def test_a_question_does_not_wait_for_a_heavy_one(monkeypatch):
    monkeypatch.setattr(answers_module, "PATIENCE_S", 0.01)
    answers = Answers(Library())

    with answers._turn(answers._predicting), answers._turn(answers._looking):
        small, looked = answers.predict(ASKED[0]), answers.look(ASKED[0])

    assert small.report.update_time_s == looked.explanation.total_s


def test_one_answer_serves_two_ways_of_asking():
    answers = Answers(Library())

    one, other = answers.predict(ASKED[0]), answers.predict(Question("tiny-2ranks", {"update.bucket": 2**20}))

    assert one is other


@pytest.mark.parametrize(
    ("changes", "name"), [({}, "llama3-8b, 8 x H100, FSDP"), ({"nodes": 2}, "changed"), ({"name": "mine"}, "mine")]
)
def test_what_was_changed_has_not_the_name_of_its_file(changes, name):
    prediction = Answers(Library()).predict(Question("train-llama3-8b-8xh100", changes))

    assert prediction.report.name.endswith(name)
