"""Money and energy: arithmetic by hand, prices that are changed or missing, mixed clusters, numbers per token."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError
from runcast.simulator.base.units import format_energy, format_usd
from runcast.simulator.hardware import Cluster, Fabric, Node, cluster, device
from runcast.simulator.predict import simulate
from runcast.simulator.report.spending import Rates, Spending, rates, spending_rows

from ..lowering.steps import resolved

ROOT = Path(__file__).parents[2]
STEP = ROOT / "data/scenarios/train-llama3-8b-8xh100.toml"
UPDATE = ROOT / "data/scenarios/tiny-stage-heads.toml"
H20_UPDATE = ROOT / "data/scenarios/kimi-k2-16xh20.toml"
CYCLE = ROOT / "data/scenarios/rl-split-given-update-8xh100-nodes.toml"
PRICE = "cluster.device.price_usd_per_hour"
H100_W = 700 + 4600 / 8  # its board and an eighth of the rest of a DGX H100
H100_USD = 49.24 / 8


def test_a_node_is_its_gpus_and_the_rest_of_the_server():
    held = rates(cluster("dgx-h100", 2))

    assert (held.gpus, held.usd_per_hour, held.power_w) == (16, pytest.approx(16 * H100_USD), 2 * 10_200)


def test_an_hour_costs_the_price_and_draws_the_power():
    spent = rates(cluster("dgx-h100", 1)).amount(3600)

    assert (spent.cost_usd, spent.energy_j, spent.energy_kwh) == (pytest.approx(49.24), 10_200 * 3600, 10.2)


def test_some_gpus_have_their_part_of_each_node():
    held = rates(cluster("dgx-h100", 2), [0, 1, 8])

    assert (held.usd_per_hour, held.power_w) == (pytest.approx(3 * H100_USD), pytest.approx(3 * H100_W))


def test_several_kinds_of_gpu_are_summed_each_with_its_own_numbers():
    mix = {"mix": [{"base": "dgx-h100", "nodes": 1}, {"base": "dgx-a100", "nodes": 2}]}
    held = rates(cluster(mix, 3))

    assert (held.usd_per_hour, held.power_w) == (pytest.approx(49.24 + 2 * 21.60), 10_200 + 2 * 6_500)


def test_one_kind_without_a_price_leaves_all_without():
    mix = {"mix": [{"base": "dgx-h100", "nodes": 1}, {"base": "h20-hgx", "nodes": 1}]}
    held = rates(cluster(mix, 2))

    assert (held.amount(1).cost_usd, held.unpriced, held.usd_per_gpu_hour) == (None, ("H20",), None)


def test_a_server_that_is_not_known_counts_its_boards_and_says_so():
    held = rates(cluster("h20-hgx", 1))

    assert (held.power_w, held.scope, held.notes) == (
        8 * 400,
        " (GPU boards alone)",
        (
            "no price known for H20; set cluster.device.price_usd_per_hour",
            "energy counts GPU boards alone for H20; set cluster.host_power",
        ),
    )


def test_one_kind_without_a_power_leaves_all_without():
    sheet = {"base": "h100-sxm", "name": "Mine", "memory": "141 GB", "price_usd_per_hour": 2.0}
    mix = {"mix": [{"base": "dgx-h100", "nodes": 1}, {"base": "dgx-h100", "device": sheet, "nodes": 1}]}
    held = rates(cluster(mix, 2))

    assert (held.amount(3600), held.scale(8).power_w, held.scope, held.notes) == (
        Spending(pytest.approx(49.24 + 16), None),
        None,
        "",
        ("no power known for Mine; set cluster.device.power",),
    )


def test_a_node_by_hand_has_no_rest():
    held = rates(Cluster([Node(device("h100"), cluster("dgx-h100", 1).nodes[0].graph.wires)], Fabric("single")))

    assert held.power_w == 8 * 700


@given(gpus=st.integers(1, 10_000), more=st.integers(1, 10_000), seconds=st.floats(1e-6, 1e7), price=st.floats(0, 100))
def test_spending_is_proportional_to_gpus_and_time(gpus, more, seconds, price):
    few = Rates(gpus, gpus * price, gpus * 700.0)
    many = few.scale(more).amount(seconds)

    assert (many.cost_usd, many.energy_j) == (
        pytest.approx(more * price * seconds / 3600),
        pytest.approx(more * 700.0 * seconds),
    )


@pytest.fixture(scope="module")
def step():
    return simulate(STEP).report


def test_a_step_costs_its_gpus_for_its_time(step):
    found = step.to_json()
    hours = step.step_time_s / 3600

    assert (found["cost"], found["cost_usd"], found["energy_kwh"], found["price_usd_per_gpu_hour"]) == (
        pytest.approx(49.24 * hours),
        found["cost"],
        pytest.approx(10.2 * hours),
        pytest.approx(H100_USD),
    )


def test_per_million_tokens_is_what_the_tokens_of_a_step_share(step):
    found = step.to_json()
    millions = step.tokens_per_s * step.step_time_s / 1e6

    assert (found["cost_usd_per_million_tokens"], found["energy_kwh_per_million_tokens"]) == (
        pytest.approx(found["cost_usd"] / millions),
        pytest.approx(found["energy_kwh"] / millions),
    )


def test_price_and_power_are_changed_like_any_key(step):
    changed = simulate(STEP, [f"{PRICE}=2.1", "cluster.device.power='500 W'", "cluster.host_power='1 kW'"]).report
    hours = step.step_time_s / 3600

    assert (changed.step_time_s, changed.cost_usd, changed.spending.energy_kwh) == (
        step.step_time_s,
        pytest.approx(8 * 2.1 * hours),
        pytest.approx(5.0 * hours),
    )


def test_another_price_is_another_result(step):
    same, other = (simulate(STEP, changes).report for changes in ([], [f"{PRICE}=2.1"]))

    assert (same.scenario_hash == step.scenario_hash, other.scenario_hash == step.scenario_hash) == (True, False)


@pytest.mark.parametrize("change", ["=-1", "='cheap'", "=true", "=nan"])
def test_a_price_that_is_none_is_refused_in_one_line(change):
    with pytest.raises(UserError) as refused:
        simulate(STEP, [PRICE + change])

    (line,) = refused.value.faults
    assert "price_usd_per_hour" in line


def test_a_free_gpu_is_a_price_too():
    assert simulate(STEP, [f"{PRICE}=0"]).report.cost_usd == 0


def test_an_update_costs_the_cluster_and_its_pause_the_engines():
    report = simulate(UPDATE).report
    each = report.rates.power_w / report.rates.gpus
    found = report.to_json()

    assert (found["energy_j"], found["energy_j_of_pause"]) == (
        pytest.approx(report.rates.power_w * report.update_time_s),
        pytest.approx(report.gpus * each * report.pause_s),
    )


def test_a_report_without_a_price_says_which_key_states_it():
    report = simulate(H20_UPDATE).report
    found = json.loads(json.dumps(report.to_json()))

    assert (found["cost_usd"], found["cost_usd_of_pause"], [line for line in found["notes"] if "price" in line]) == (
        None,
        None,
        ["no price known for H20; set cluster.device.price_usd_per_hour"],
    )


def test_a_cycle_pays_for_all_gpus_idle_or_not():
    report = simulate(CYCLE).report
    hours, tokens = report.step_time_s / 3600, report.tokens_per_s * report.step_time_s
    found = report.to_json()

    assert (found["cost_usd"], found["energy_kwh"], found["cost_usd_per_million_tokens"]) == (
        pytest.approx(64 * H100_USD * hours),
        pytest.approx(64 * H100_W / 1000 * hours),
        pytest.approx(found["cost_usd"] / tokens * 1e6),
    )


def test_words_have_a_cost_only_where_a_price_is_known():
    held = Rates(8, 80.0, 8000.0)
    free = replace(held, usd_per_hour=None, unpriced=("H20",))
    nothing = replace(free, power_w=None, unpowered=("H20",))

    assert (
        spending_rows(nothing, (nothing.amount(3600), "per step")),
        spending_rows(held, (held.amount(3600), "per step"), (held.amount(36), "per million tokens")),
        spending_rows(free, (free.amount(3600), "per step"), (free.amount(36), "per million tokens")),
        spending_rows(held, (held.amount(3600), "of all GPUs"), (held.amount(36), "of paused engines")),
    ) == (
        [],
        [
            ("cost", "$80.00 per step, $0.80 per million tokens, at $10.00 per GPU-hour"),
            ("energy", "at most 8 kWh per step, 80 Wh per million tokens"),
        ],
        [("energy", "at most 8 kWh per step, 80 Wh per million tokens")],
        [
            ("cost", "$80.00 of all GPUs, $0.80 of paused engines, at $10.00 per GPU-hour"),
            ("energy", "at most 8 kWh of all GPUs, 80 Wh of paused engines"),
        ],
    )


def test_amounts_have_units_that_fit():
    energies = [format_energy(joules) for joules in (0, 36, 3600, 4.4e7, 3.6e9, 7.2e12)]

    assert (energies, [format_usd(usd) for usd in (0, 0.0123, 1.5, 1234567.891)]) == (
        ["0 J", "36 J", "1 Wh", "12.2 kWh", "1 MWh", "2,000 MWh"],
        ["$0.00", "$0.0123", "$1.50", "$1,234,568"],
    )


def test_a_step_on_two_kinds_of_gpu_pays_for_both():
    other = {"base": "h100-sxm", "price_usd_per_hour": 2.0, "power": "600 W"}
    mix = {"mix": [{"base": "dgx-h100", "nodes": 1}, {"base": "dgx-h100", "device": other, "nodes": 1}]}
    report = simulate(resolved(16, 2, cluster=mix, nodes=2).scenario).report
    hours = report.step_time_s / 3600

    assert (report.cost_usd, report.spending.energy_kwh) == (
        pytest.approx((49.24 + 8 * 2.0) * hours),
        pytest.approx((10.2 + 9.4) * hours),
    )
