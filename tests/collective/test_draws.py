"""Collisions of hashed flows, as a distribution over draws of hashes."""

import numpy as np
import pytest
from runcast.simulator import UserError, simulate
from runcast.simulator.scenario import check_question, resolve
from runcast.simulator.systems.collective.text import words

LEAVES = {"base": "dgx-h100", "fabric": "leaf_spine", "leaf_radix": 32, "cabling": "leaf"}


def ask(seeds=1, level="formula", algorithm="ring", cluster=LEAVES, nodes=16):
    keys = {"op": "all_reduce", "sizes": "1 GiB", "algorithm": algorithm, "level": level, "seeds": seeds}
    return check_question({"kind": "collective", "cluster": cluster, "nodes": nodes, "collective": keys})


def seconds(seed, level="formula"):
    return resolve(ask(cluster={**LEAVES, "hash_seed": seed}, level=level)).best.seconds


@pytest.mark.parametrize("level", ["formula", "measured"])
def test_times_are_quantiles_of_the_draws(level):
    each = [seconds(seed, level) for seed in range(3, 14)]

    algorithm = "measured" if level == "measured" else "ring"
    found = resolve(ask(11, level, algorithm, {**LEAVES, "hash_seed": 3})).best

    assert (found.draws_low_s, found.seconds, found.draws_high_s) == pytest.approx(np.quantile(each, (0.05, 0.5, 0.95)))
    assert found.algbw_bytes_per_s == pytest.approx((1 << 30) / found.seconds)


def test_an_interval_holds_the_draws_and_what_a_model_does_not_know():
    one, many = resolve(ask()).best, resolve(ask(11)).best

    model = np.log(one.high_s / one.seconds)
    drawn = np.log(many.draws_high_s / many.seconds)
    assert np.log(many.high_s / many.seconds) == pytest.approx(np.hypot(model, drawn))


def test_one_draw_is_what_it_was():
    said = ask().model_copy(update={"collective": ask().collective.model_copy(update={"seeds": 2})})
    assert len({resolve(question).hash for question in (ask(), ask(2), said)}) == 2
    assert resolve(ask()).best.draws_low_s is None


def test_where_no_flows_meet_it_is_said():
    even = resolve(ask(3, cluster="dgx-h100"))
    assert even.best.draws_low_s == even.best.draws_high_s == pytest.approx(even.best.seconds)
    assert "all draws of hashes take as long: no two flows meet on a link that they fill" in even.notes


def test_the_report_says_what_draws_take_and_the_timeline_ends_with_it():
    found = simulate(ask(11))
    assert dict(words(found.report).rows)["hashes"].startswith("nine of ten draws take ")
    assert found.timeline.end_s.max() == pytest.approx(found.report.best.seconds)


def test_what_is_sprayed_is_not_hashed():
    with pytest.raises(UserError, match=r"collective.seeds = 2: is for flows that are hashed \(routing: spray\)"):
        resolve(ask(2, cluster={**LEAVES, "routing": "spray"})).rows  # noqa: B018
