"""The search of an RL cycle: the split of nodes, and tp and batch of engines."""

from typing import Any

import pytest
from runcast.simulator import UserError, simulate
from runcast.simulator.answers.search import read_wanted, search
from runcast.simulator.answers.search.outputs import lines
from runcast.simulator.scenario import change, check_question

SPLIT: dict[str, Any] = {
    "kind": "rl_cycle", "cluster": "h100-hgx", "nodes": 3, "model": {"preset": "qwen3-0.6b"},
    "cycle": {
        "mode": "asynchronous", "placement": "disaggregated", "rollout_nodes": 1, "steps": 2, "update_time": 1,
        "train_time": 2,
    },
    "rollout": {"requests": 64, "length": {"kind": "fixed", "tokens": 300}, "engine": {"tp": 1}},
}  # fmt: skip
GIVEN = {"engines": 8, "slots": 8, "token_time": 0.01, "requests": 64, "length": {"kind": "fixed", "tokens": 300}}


@pytest.fixture(scope="module")
def found():
    return search(SPLIT, wanted=read_wanted(None, (), ["rollout.engine.max_batch=64"]), workers=1)


def test_every_split_and_every_tp_is_a_plan(found):
    assert {axis.key: axis.values for axis in found.space.axes} == {
        "cycle.rollout_nodes": (1, 2), "rollout.engine.tp": (1, 2, 4, 8), "rollout.engine.max_batch": (64,),
    }  # fmt: skip
    assert found.proved


def test_the_winner_has_most_tokens_per_second(found):
    rates = {
        number: simulate(check_question(change(SPLIT, row.changes, "test"))).report.tokens_per_s
        for number, row in enumerate(found.rows)
    }

    assert found.winner == max(rates, key=lambda number: rates[number])
    assert found.rows[found.winner].measured.tokens_per_s == pytest.approx(max(rates.values()), rel=1e-3)


def test_it_says_which_plan_wins(found):
    assert any(line.startswith("winner by tokens_per_s: cycle.rollout_nodes ") for line in lines(found))


def test_other_axes_are_given_by_name():
    wanted = read_wanted(None, ["cycle.staleness=[1, 2]"], ["cycle.rollout_nodes=2"])
    found = search({**SPLIT, "model": None, "rollout": GIVEN}, wanted=wanted, workers=1)

    assert [row.changes["cycle.staleness"] for row in found.rows] == [1, 2]


@pytest.mark.parametrize(
    ("cycle", "wanted", "line"),
    [
        ({"rollout_nodes": None, "trainer_gpus": 8}, {}, "a search varies cycle.rollout_nodes and rollout.engine"),
        ({}, {"schedules": "1f1b"}, "--schedules: is of pipelines, and an RL cycle has none"),
    ],
)
def test_what_cannot_be_searched_is_one_line(cycle, wanted, line):
    table = {**SPLIT, "cycle": {**SPLIT["cycle"], **cycle}, "rollout": {**GIVEN, "engines": 3 * 8}, "model": None}
    with pytest.raises(UserError, match=line):
        search(table, wanted=read_wanted(wanted.get("schedules"), (), ()), workers=1)
