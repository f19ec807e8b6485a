"""RL cycles explained: each lever is the cycle with its changes, compared by the time for as many tokens."""

import json
from pathlib import Path
from typing import Any

import pytest
from runcast.simulator import simulate
from runcast.simulator.answers.explain import cycle, explain
from runcast.simulator.figures import write_html
from runcast.simulator.scenario import WhatIf, change, check_question

from ..command import runcast

SCENARIOS = Path(__file__).parents[2] / "data/scenarios"
SPLIT: dict[str, Any] = {
    "kind": "rl_cycle", "cluster": "h100-hgx", "nodes": 3, "model": {"preset": "qwen3-0.6b"},
    "cycle": {
        "mode": "asynchronous", "placement": "disaggregated", "rollout_nodes": 1, "steps": 2, "update_time": 1,
        "train": {"level": "coarse"},
    },
    "rollout": {"requests": 128, "length": {"kind": "lognormal", "mean": 300, "p99": 900}, "engine": {"tp": 1}},
}  # fmt: skip


@pytest.fixture(scope="module")
def found():
    return explain(SPLIT)


@pytest.mark.slow
def test_a_lever_is_the_cycle_with_its_changes(found):
    lever = next(one for one in found.tried if one.name == "2 nodes roll out")
    other = simulate(check_question(change(SPLIT, lever.changes, "test"))).report

    assert lever.tokens_per_s == other.tokens_per_s
    assert lever.gain == pytest.approx(1 - found.report.tokens_per_s / other.tokens_per_s)


def test_levers_are_those_of_what_is_predicted(found):
    names = {one.name for one in found.tried} | {one.name for one in found.refused}

    assert {"staleness 0", "staleness 2", "interrupt: keep", "colocated", "engines of tp 2", "max batch x2",
            "KV cache in FP8", "training tp 2", "requests x2", "2 nodes roll out"} <= names  # fmt: skip
    assert not {"decoding twice as fast", "training twice as fast", "experts spread over the engine"} & names


def test_the_best_is_first_and_gains_lie_in_their_intervals(found):
    gains = [one.gain for one in found.tried]

    assert gains == sorted(gains, reverse=True)
    assert all(one.gain_interval[0] <= one.gain <= one.gain_interval[1] for one in found.tried)


@pytest.mark.slow
def test_half_of_a_given_time_is_worth_its_share_of_the_step():
    """Colocated and synchronous all parts add up: half the training is worth half its share."""
    found = explain(SCENARIOS / "rl-colocated-qwen3-30b-8xh100.toml", ["cycle.steps=2"])
    lever = next(one for one in found.tried if one.name == "training twice as fast")

    assert lever.gain == pytest.approx(found.report.train_s / found.report.step_time_s / 2)
    assert lever.helps > 0.99


def test_a_lever_that_does_not_fit_is_no_advice(monkeypatch):
    lever = WhatIf("longer sequences", "cycle", "in training", {"cycle.train.batch.seq_len": 131072})
    monkeypatch.setattr(cycle, "levers", lambda _: [lever])
    found = explain(SPLIT)

    assert found.best == []
    assert [(one.name, one.reason.partition(" needs ")[0]) for one in found.refused] == [
        ("longer sequences", "it does not fit: training: pipeline rank 0")
    ]


def test_it_is_written_as_json_and_a_page(found, tmp_path):
    write_html(tmp_path / "why.html", *found.page())
    said = json.loads(json.dumps(found.to_json()))

    assert (said["kind"], said["of"], len(said["what_ifs"])) == ("explanation", "rl_cycle", len(found.tried))
    assert "What to change first" in (tmp_path / "why.html").read_text()
    assert "what to change first, by the time for as many tokens:" in list(found.lines())


def test_quick_tries_nothing():
    found = runcast("explain", SCENARIOS / "rl-split-given-update-8xh100-nodes.toml", "--quick")

    assert found.returncode == 0
    assert "The critical path is rollout" in found.stdout
    assert "what if" not in found.stdout
