"""What an explanation says is what a simulation says: parts sum, knobs move their share, what-ifs are ranked."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError, simulate
from runcast.simulator.answers.explain import Knob, explain
from runcast.simulator.answers.explain.case import read_case, same_costs
from runcast.simulator.answers.explain.explanation import best_of
from runcast.simulator.answers.explain.neighbours import neighbours
from runcast.simulator.answers.explain.sensitivity import (
    first_order_s,
    knobs,
    sensitivities,
    sensitivity,
    turn_knob,
)  # fmt: skip
from runcast.simulator.answers.explain.text import WHAT_IF_COLUMNS, headline, what_if_rows
from runcast.simulator.base.files import read_toml
from runcast.simulator.base.units import format_probability
from runcast.simulator.collectives import Layout
from runcast.simulator.costs import pricing
from runcast.simulator.figures import write_html
from runcast.simulator.scenario import what_ifs
from runcast.simulator.uncertainty import difference

SCENARIOS = Path(__file__).parents[2] / "data/scenarios"
ONE_GPU = {
    "name": "one GPU",
    "kind": "train_step",
    "cluster": {"base": "dgx-h100", "gpus_per_node": 1},
    "model": {"preset": "gpt2"},
    "batch": {"global": 4, "micro": 4, "seq_len": 1024},
}
TWO_RANKS = {  # a NIC so slow that broadcasts take nearly all of the update
    "name": "two ranks",
    "kind": "weight_update",
    "cluster": {"base": "h20-hgx", "gpus_per_node": 1, "nic": "0.1 Gb/s"},
    "nodes": 2,
    "profile": "h20",
    "model": {"preset": "qwen3-0.6b"},
    "update": {"method": "broadcast", "pipeline": "two_stage", "bucket": "1 GiB", "inference": {"tp": 2}},
}
KINDS = {
    "step": SCENARIOS / "train-llama3-8b-8xh100.toml",
    "update": SCENARIOS / "tiny-4ranks.toml",
    "reads": SCENARIOS / "tiny-p2p.toml",
}


@cache
def explanation(kind):
    return explain(KINDS[kind])


@pytest.fixture(params=KINDS)
def explained(request):
    """A file and its explanation."""
    return KINDS[request.param], explanation(request.param)


@pytest.fixture
def step():
    return explanation("step")


def worth(case, name):
    """What the total of a case owes to the knob of this name."""
    knob = next(knob for knob in knobs(case) if knob.name == name)
    return sensitivity(case, knob, turn_knob(case, knob, better=False))


@pytest.mark.parametrize("kind", [pytest.param("step", marks=pytest.mark.slow), "update", "reads"])
def test_what_is_called_better_makes_nothing_longer(kind):
    case = read_case(KINDS[kind], {})
    later = {knob.name: first_order_s(case, turn_knob(case, knob, True).costs) for knob in knobs(case)}
    assert {name: by for name, by in later.items() if by > 1e-6 * case.total_s} == {}


def test_twice_the_time_of_products_moves_a_step_on_one_gpu_by_their_share():
    case = read_case(ONE_GPU, {})
    slower = case.resolved.restate({"time_factor.gemm": 2 * case.resolved.profile.value_or("time_factor.gemm", 1.0)})
    share_s = case.report.exposed["gemm"]

    assert first_order_s(case, slower.costs) == pytest.approx(share_s, rel=1e-9)
    assert case.simulated_s(slower) - case.total_s == pytest.approx(share_s, rel=1e-9)


def test_a_faster_nic_moves_an_update_by_the_share_of_its_broadcasts():
    case = read_case(TWO_RANKS, {})
    found = worth(case, "cluster.nic")
    broadcast_s = case.report.exposed["broadcast"]

    assert broadcast_s > 0.8 * case.total_s
    assert found.better.simulated_s == pytest.approx(broadcast_s * (1 / 1.1 - 1), rel=1e-2)
    assert found.worse.simulated_s == pytest.approx(broadcast_s * (1 / 0.9 - 1), rel=1e-2)
    assert found.better.first_order_s == pytest.approx(found.better.simulated_s, rel=1e-6)


def test_disturbed_ops_lose_what_they_do_not_get_done():
    case = read_case(KINDS["step"], {})
    found = worth(case, "interference.gemm.reduce_scatter")

    assert found.worse.first_order_s == pytest.approx(-found.better.first_order_s)
    assert found.worse.first_order_s == pytest.approx(found.worse.simulated_s, rel=0.15)
    assert found.worse.simulated_s > 0.005 * case.total_s


def test_numbers_that_are_worth_a_percent_are_known_to_first_order(explained):
    _, found = explained
    strong = [one for one in found.sensitivities if one.size_s > 0.01 * found.total_s]
    apart = {one.knob.name: abs(side.first_order_s / side.simulated_s - 1)
             for one in strong for side in (one.better, one.worse)}  # fmt: skip

    assert len(strong) >= 3  # else nothing is shown here
    assert {name: error for name, error in apart.items() if error > 0.05} == {}
    assert [one.knob.name for one in strong if one.path_moves] == []


def test_a_path_that_moves_is_told():
    """Hidden exchanges of a sharded step come to light when they are slower, which its path cannot know."""
    case = read_case(KINDS["step"], {})
    found = worth(case, "link_fraction.nvlink")

    assert (found.better.first_order_s, found.path_moves) == (0.0, True)
    assert found.better.simulated_s < 0


@pytest.mark.parametrize("scenario", [pytest.param(ONE_GPU, marks=pytest.mark.slow), TWO_RANKS])
def test_every_number_that_moves_a_cost_is_found(scenario):
    case = read_case(scenario, {})
    found, without = sensitivities(case, True, lambda *_: None)
    moving = [knob for knob in knobs(case)
              if not same_costs(case.resolved.costs, turn_knob(case, knob, better=False).costs)]  # fmt: skip

    assert {one.knob for one in found} == set(moving)
    assert set(without) == set(knobs(case)) - set(moving)


def test_other_rates_leave_the_program_as_it_is():
    for path in KINDS.values():
        case = read_case(path, {})
        for knob in knobs(case):
            if knob.subject == "machine":
                faster = case.variant({knob.name: {"times": 1.1}})
                assert (knob.name, faster.resolved.program == case.resolved.program) == (knob.name, True)


def test_a_knob_of_the_machine_says_what_a_change_by_hand_says(step):
    nvlink = next(one for one in step.sensitivities if one.knob.name == "cluster.nvlink_bytes_per_s")
    by_hand = simulate(KINDS["step"], ["cluster.nvlink_bytes_per_s={ times = 1.1 }"]).report

    assert nvlink.better.simulated_s == pytest.approx(by_hand.step_time_s - step.total_s, abs=1e-9)


@given(
    now=st.floats(1e-9, 1e12), most=st.floats(1e-9, 1e12), more=st.booleans(), subject=st.sampled_from(["class"])
)  # fmt: skip
def test_better_is_a_tenth_at_most_and_never_beyond_what_is_allowed(now, most, more, subject):
    knob = Knob("n", subject, "about", now, "1", more, max(now, most))

    assert knob.value(True) <= knob.most
    assert abs(knob.value(True) / now - 1) <= 0.1 + 1e-9
    assert (knob.value(True) - knob.value(False) >= 0) is more


def test_parts_sum_to_the_total(explained):
    path, found = explained
    report = simulate(path).report
    total_s = report.step_time_s if found.what == "step" else report.update_time_s

    assert found.total_s == total_s
    for seconds in (found.parts.split_s, found.parts.path_s, found.parts.class_s):
        assert sum(seconds.values()) == pytest.approx(total_s, rel=1e-9)


def test_exposed_communication_of_a_step_is_that_of_its_axes(step):
    split, path = step.parts.split_s, step.parts.path_s

    assert step.parts.exposed_s == pytest.approx(split["dp"] + split["fsdp"])
    assert step.parts.exposed_path_s == pytest.approx(path["dp"] + path["fsdp"] + path.get("pipeline", 0.0))
    assert step.parts.bubble_s == 0.0


def test_what_ifs_are_ranked_by_what_they_save(explained):
    path, found = explained
    gains = [one.gain for one in found.tried]
    first = found.tried[0]
    by_hand = explain(path, [f"{key}={json.dumps(value)}" for key, value in first.changes.items()], quick=True)

    assert gains == sorted(gains, reverse=True)
    assert first.total_s == by_hand.total_s
    assert first.memory_bytes == by_hand.memory_bytes
    assert first.gain == pytest.approx(1 - by_hand.total_s / found.total_s)


def test_every_what_if_of_the_kind_is_tried_or_refused(explained):
    _, found = explained
    subjects = {"step": ("machine", "plan"), "update": ("machine", "update")}[found.what]
    told = [one.name for one in (*found.tried, *found.refused)]

    assert {one.name for one in what_ifs().values() if one.subject in subjects} <= set(told)
    assert sorted(set(told)) == sorted(told)
    assert [one for one in found.refused if not one.reason] == []


def test_a_step_of_twice_the_sequences_is_compared_per_token(step):
    twice = next(one for one in step.tried if one.name == "global batch x2")

    assert twice.total_s > 1.5 * step.total_s
    assert abs(twice.gain) < 0.05


def test_what_does_not_fit_is_not_recommended(step):
    first = step.best[0]
    large = replace(first, memory_bytes=first.device_memory_bytes + 1, fits=False)
    found = replace(step, tried=(large, *step.tried[1:]))

    assert large not in best_of(found.tried, "plan", "machine", most=99)
    assert found.too_large == [large]
    assert any(f"{large.name} would save {large.gain:.1%}, but needs" in line for line in found.lines())


def test_of_what_comes_to_the_same_the_first_is_recommended(step):
    first, *others = step.best
    twin = replace(first, name="twin")

    assert best_of([first, twin, *others], "plan", most=99) == step.best


def test_what_saves_most_is_recommended_of_each_side(step):
    assert [one.subject for one in step.best] == ["plan"] * len(step.best)
    assert 3 <= len(step.best) <= 8
    assert [one.subject for one in step.best_machines] == ["machine"] * len(step.best_machines) != []
    assert all(one.fits and one.gain > 0 for one in (*step.best, *step.best_machines))


def test_json_is_plain_and_has_no_nan(explained):
    _, found = explained
    text = json.dumps(found.to_json(), allow_nan=False)

    assert json.loads(text)["sensitivities"][0]["name"] == found.sensitivities[0].knob.name


def test_the_interval_is_that_of_the_report(explained):
    path, found = explained
    report = simulate(path).report

    assert (found.interval_low_s, found.interval_high_s) == (report.interval_low_s, report.interval_high_s)
    assert "(90 % interval " in next(line for line in found.lines() if line.startswith(f"  {found.what} time "))


def test_a_small_gain_shows_in_what_a_change_takes(step):
    small = replace(step.tried[0], total_s=0.999 * step.total_s, gain=0.001)
    found = replace(step, tried=(small,))
    (row,) = what_if_rows(found.tried, found)
    takes = dict(zip(WHAT_IF_COLUMNS, row, strict=True))["takes"]

    assert headline(found).split()[2] != takes.split()[0]


def test_a_gain_has_the_interval_of_the_difference(step):
    case = read_case(KINDS["step"], {})
    first = step.tried[0]
    other = case.variant(first.changes)
    by_hand = difference(case.report.per_unit_s, other.report.per_unit_s, case.report.budget, other.report.budget)

    assert (first.gain_interval, first.helps) == (by_hand.saving_interval, by_hand.faster_probability)


def test_memory_that_a_change_moves_has_the_probability_that_it_fits(step):
    moved = next(one for one in step.tried if one.fits and one.memory_bytes > 1.1 * step.memory_bytes)
    report = read_case(KINDS["step"], moved.changes).report
    (row,) = what_if_rows([moved], step)

    assert row[-2].endswith(f": fits with {format_probability(report.fits_probability)}")


def test_quick_is_first_order_alone():
    found = explain(TWO_RANKS, quick=True)

    assert {side.simulated_s for one in found.sensitivities for side in (one.better, one.worse)} == {None}
    assert (found.tried, found.refused) == ((), ())
    assert not any("what if" in line for line in found.lines())


@pytest.mark.slow
def test_whole_actions_are_explained_by_phase():
    found = explain(ONE_GPU, ['level="coarse"'], quick=True)
    fine = explain(ONE_GPU, quick=True)
    gemm, of_kernels = (next(one for one in which.sensitivities if one.knob.name == "time_factor.gemm")
                        for which in (found, fine))  # fmt: skip

    assert gemm.better.first_order_s == pytest.approx(of_kernels.better.first_order_s, rel=0.02)


def test_the_page_holds_both_figures_and_what_the_terminal_says(tmp_path, explained):
    _, found = explained
    page = tmp_path / "why.html"
    write_html(page, *found.page())
    text = page.read_text()

    assert ('<figure aria-label="Tornado">' in text, '<figure aria-label="Waterfall">' in text) == (True, True)
    assert f"The {found.what} is bound by {found.bound_by}" in text
    assert all(one.name in text for one in found.best)


def test_a_mix_of_nodes_has_no_knobs_of_the_machine():
    mixed = {**ONE_GPU, "cluster": {"mix": [{"base": "dgx-h100", "gpus_per_node": 1, "nodes": 1}]}}
    case = read_case(mixed, {})

    assert {knob.subject for knob in knobs(case)} == {"class"}


@pytest.mark.parametrize(
    ("scenario", "line"),
    [
        (SCENARIOS / "none.toml", "none.toml: no such file"),
        ({**ONE_GPU, "nodes": 0}, "scenario: nodes = 0: "),
    ],
)  # fmt: skip
def test_refusals_are_one_line(scenario, line):
    with pytest.raises(UserError) as refused:
        explain(scenario)

    assert (len(refused.value.faults), line in str(refused.value)) == (1, True)


@pytest.fixture(scope="module")
def gpt2():
    return explain(ONE_GPU)


def test_awkward_shapes_are_named_with_what_padding_saves(gpt2):
    """GPT-2's 50,257 tokens: the products of the head take 4.6 times as long as padded ones."""
    (padded,) = [one for one in gpt2.tried if one.name == "vocabulary per rank 50,257: pad to 50,304"]
    neat_s = read_case(ONE_GPU, {"parallel.pad_vocab": 64}).total_s
    assert (padded.changes, padded.total_s) == ({"parallel.pad_vocab": 64}, neat_s)
    assert gpt2.awkward_s == pytest.approx(gpt2.total_s - neat_s, rel=0.02)  # 47 columns more are little
    said = f"Awkward shapes take {gpt2.awkward_s / gpt2.total_s:.1%} of it: {padded.name} (saves {padded.gain:.1%})."
    assert said in gpt2.lines()
    assert gpt2.to_json()["awkward"] == [padded.name]


def test_a_quick_look_estimates_what_awkward_shapes_cost_along_the_path(gpt2):
    assert explain(ONE_GPU, quick=True).awkward_s == pytest.approx(gpt2.awkward_s, rel=0.01)


def test_a_shape_that_kernels_are_made_for_has_nothing_awkward(explained):
    _, found = explained
    assert (found.awkward, found.awkward_s) == ((), 0.0)
    assert not any("wkward" in line for line in found.lines())


@pytest.mark.slow
def test_a_mix_of_nodes_has_no_numbers_of_one_machine():
    mix = [{"base": "dgx-h100", "nodes": 1, "gpus_per_node": 1}, {"base": "dgx-a100", "nodes": 1, "gpus_per_node": 1}]
    batch = {"global": 8, "micro": 4, "seq_len": 1024}
    found = explain(ONE_GPU | {"cluster": {"mix": mix}, "nodes": 2, "batch": batch}, quick=True)
    assert "numbers of the machine: none that counts" in list(found.lines())


SENDER = {  # one sender, from trainers, whose NIC decides
    "kind": "weight_update",
    "cluster": "dgx-h100",
    "nodes": 2,
    "model": {"preset": "qwen3-0.6b"},
    "update": {"method": "stage_heads", "bucket": "512 MiB", "trainer": {"gpus": 8, "pp": 2}, "inference": {"tp": 4}},
}
PLAN = {
    "kind": "train_step",
    "cluster": "dgx-h100",
    "model": {"preset": "llama3-8b", "overrides": {"num_hidden_layers": 8}},
    "parallel": {"tp": 2, "pp": 2},
    "schedule": {"name": "interleaved", "vpp": 2},
    "batch": {"global": 16, "seq_len": 2048},
    "recompute": {"mode": "selective", "modules": ["core_attn"]},
}


def neighbours_of(table):
    return {one.name: dict(one.changes) for one in neighbours(read_case(table, {}).resolved)}


def test_plans_beside_a_plan_keep_the_gpus_and_the_batch():
    case = read_case(PLAN, {})
    gpus, tokens = case.resolved.dims.world_size, case.report.tokens
    found = {name: changes for name, changes in neighbours_of(PLAN).items() if "parallel." in str(changes)}
    others = [read_case(PLAN, changes) for changes in found.values()]

    moves = ("tp 2 to 4, pp 2 to 1", "tp 2 to 4, dp 2 to 1", "pp 2 to 4, tp 2 to 1", "pp 2 to 4, dp 2 to 1",
             "dp 2 to 4, tp 2 to 1", "dp 2 to 4, pp 2 to 1")  # fmt: skip
    assert set(found) == set(moves)
    assert {(one.resolved.dims.world_size, one.report.tokens) for one in others} == {(gpus, tokens)}


def test_chunks_and_modules_beside_a_plan_are_one_step_away():
    found = neighbours_of(PLAN)

    assert found["vpp 2 to 4"] == {"schedule.vpp": 4}
    assert "core_attn is kept" not in found  # which is what "no recomputation" is
    assert found["activation is recomputed"] == {
        "recompute": {"mode": "selective", "modules": ["core_attn", "activation"]}
    }


def test_experts_are_spread_over_more_or_fewer_ranks():
    found = neighbours_of(read_toml(SCENARIOS / "train-qwen3-30b-a3b-16xh100.toml"))
    sizes = [changes["parallel.ep"] for name, changes in found.items() if name.startswith("ep ")]

    assert sizes == [16, 4]


def test_an_update_tries_other_methods_and_messages_by_bucket():
    found = neighbours_of(SENDER)

    assert found["messages by bucket"] == {"update.method": "stage_heads", "update.messages": "bucket"}
    assert {"method relays", "method reshard, messages by bucket", "method static_writes"} < set(found)
    assert [name for name in found if "p2p" in name or "colocated" in name] == []


def test_what_another_method_saves_is_what_its_simulation_takes():
    found = explain(SENDER)
    relays = next(one for one in found.tried if one.name == "method relays")

    assert relays.total_s == read_case(SENDER, {"update.method": "relays"}).report.update_time_s
    assert found.best == sorted(found.best, key=lambda one: -one.gain)


@pytest.mark.slow
def test_what_changes_nothing_is_not_tried():
    refused = {one.name: one.reason for one in explain(PLAN).refused}

    assert refused["ZeRO 1"] == "it changes nothing here"


def test_pricing_reads_only_what_it_rests_on():
    resolved = read_case(ONE_GPU, {}).resolved
    read = resolved.parameters_read()
    moved = resolved.scale({name: 1.1 for name in resolved.profile.parameters if name not in read})

    assert "gemm.training_rate" in read
    assert "reload.tensor_s" not in read
    assert same_costs(resolved.costs, moved.costs)


def test_a_bucket_that_a_scenario_leaves_out_is_doubled_as_it_is_derived():
    said = {**SENDER["update"]}
    del said["bucket"]
    (found,) = (one for one in explain({**SENDER, "update": said}).tried if one.name == "bucket x2")

    assert found.total_s == read_case(SENDER, {"update.bucket": "1 GiB"}).report.update_time_s


def test_prices_of_one_program_share_where_its_ranks_are(monkeypatch):
    made = []
    monkeypatch.setattr(pricing, "Layout", lambda *given: made.append(given) or Layout(*given))
    resolved = read_case(PLAN, {}).resolved
    prices = [of.costs for of in (resolved, resolved.scale({"time_factor.gemm": 2.0}))]

    assert (len(made), same_costs(*prices)) == (1, False)


def test_a_step_whose_hosts_are_too_small_for_what_is_offloaded_does_not_fit():
    cluster = {"base": "dgx-h100", "gpus_per_node": 1, "host_memory": "1 kB"}
    step = {"kind": "train_step", "cluster": cluster, "model": {"preset": "qwen3-0.6b"}, "level": "coarse",
            "batch": {"global": 1, "seq_len": 1024}, "offload": {"activations": 1.0}}  # fmt: skip
    found = explain(step, quick=True)

    assert (found.fits, found.memory_bytes < found.device_memory_bytes) == (False, True)
    assert "It does not fit: it needs more memory of hosts than there is." in list(found.lines())
