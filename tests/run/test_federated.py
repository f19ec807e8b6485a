from math import ceil, comb, gamma, log2
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from runcast.simulator.base.errors import UserError
from runcast.simulator.systems.run.federated.fluid import fair_rate, shared_ends_s, together_s
from runcast.simulator.systems.run.federated.rounds import ClientRounds, FederatedPlan, run_federated
from runcast.simulator.systems.run.federated.secure import Secure
from runcast.simulator.systems.run.federated.tables import Federated, Silo
from runcast.simulator.systems.run.spread import Spread

from ..examples import examples
from .test_links import fluid

MODEL = 1e7
FAST = 9e17


def keys(**others):
    """Equal clients that fetch 10 MB in 2.5 s, train for 20 s, and send 10 MB in 10 s."""
    usual = {"rounds": 3, "clients": 100, "sampled": 10, "epochs": 2, "epoch_time": 10, "up": 1e6, "down": 4e6}
    return Federated(**usual | others)


def run(seed=0, **others):
    return run_federated(FederatedPlan(keys(**others), MODEL, seed))


def only_compute(**others):
    """Rounds of clients whose epoch takes 1 s on average, and whose transfers take no time."""
    return {"epochs": 1, "epoch_time": 1, "up": FAST, "down": FAST} | others


def test_a_round_of_equal_clients_takes_download_epochs_and_upload():
    assert run().wall_s == pytest.approx(3 * (MODEL / 4e6 + 2 * 10 + MODEL / 1e6))


def test_the_history_of_equal_clients_is_all_compute_and_exchange():
    history = run(latency=0.5)
    assert (history.breakdown_s, history.steps, history.samples, history.staleness) == (
        {"compute": 60.0, "exchange": 3 * 13.5}, 3, 30, {0: 3}
    )  # fmt: skip


def test_time_to_choose_clients_is_setup():
    assert run(select=7).breakdown_s["setup"] == 21


def test_spans_show_the_path_of_the_slowest_client_round_after_round():
    spans = run(rounds=2).spans
    assert [(s.kind, s.start_s, s.end_s, s.name) for s in spans] == [
        ("exchange", 0, 12.5, "round 1"),
        ("compute", 12.5, 32.5, "round 1"),
        ("exchange", 32.5, 45, "round 2"),
        ("compute", 45, 65, "round 2"),
    ]


@pytest.mark.parametrize(
    "jitter", [Spread(spread=0.2), Spread(kind="lognormal", spread=0.5), Spread(kind="pareto", spread=0.3)]
)
def test_a_round_takes_the_expected_maximum_of_its_clients(jitter):
    rounds, n = 4000, 50
    history = run(**only_compute(rounds=rounds, sampled=n, jitter=jitter))
    share = (np.arange(200_000) + 0.5) / 200_000
    slowest = jitter.quantile(share ** (1 / n))
    assert history.wall_s / rounds == pytest.approx(slowest.mean(), abs=4 * slowest.std() / np.sqrt(rounds))


def pareto_order_statistic(k, n, alpha):
    """The mean of the k-th smallest of n numbers with a Pareto distribution of mean 1."""
    return (
        (alpha - 1)
        / alpha
        * gamma(n + 1)
        * gamma(n - k + 1 - 1 / alpha)
        / (gamma(n - k + 1) * gamma(n + 1 - 1 / alpha))
    )


def test_over_selection_waits_for_an_order_statistic():
    spread, rounds = 0.5, 4000
    alpha = 1 + np.sqrt(1 + 1 / spread**2)
    history = run(**only_compute(rounds=rounds, over=1.3, jitter=Spread(kind="pareto", spread=spread)))
    assert history.wall_s / rounds == pytest.approx(pareto_order_statistic(10, 13, alpha), rel=0.01)


def test_over_selected_clients_that_are_not_needed_are_late():
    history = run(over=1.3)
    assert (history.samples, history.counts["late"]) == (30, 9)


def test_a_slow_client_is_slow_in_all_rounds():
    history = run(**only_compute(sampled=100, compute=Spread(kind="lognormal", spread=1)))
    slowest_s = [span.end_s - span.start_s for span in history.spans if span.kind == "compute"]
    assert slowest_s == pytest.approx([slowest_s[0]] * 3)


def test_slow_links_make_both_transfers_slow():
    history = run(links=Spread(kind="trace", values=(3,)))
    assert history.breakdown_s["exchange"] == pytest.approx(3 * 3 * 12.5)


def test_silos_all_take_part_and_the_slowest_ends_the_round():
    near, far = Silo(epoch_time=100, up=1e6, down=1e6, count=3), Silo(epoch_time=60, up=2e5, down=1e6)
    history = run_federated(FederatedPlan(Federated(rounds=5, silos=(near, far)), MODEL))
    assert (history.wall_s, history.samples) == (5 * max(10 + 100 + 10, 10 + 60 + 50), 20)


HALF_ARE_SLOW = {"rounds": 20, "jitter": Spread(kind="trace", values=(1, 3))}


def test_a_deadline_ends_rounds_with_those_that_are_there():
    history = run(**HALF_ARE_SLOW, deadline=50)
    assert (history.wall_s, history.breakdown_s["wait"]) == pytest.approx((20 * 50, 20 * 17.5))


def test_those_that_miss_the_deadline_are_late():
    history = run(**HALF_ARE_SLOW, deadline=50)
    assert history.samples + history.counts["late"] == 20 * 10
    assert history.samples == pytest.approx(100, abs=4 * np.sqrt(200 / 4))


def test_rounds_with_fewer_than_the_minimum_are_lost_and_repeated():
    history = run(**HALF_ARE_SLOW, deadline=50, minimum=5)
    lost = history.counts["rounds_lost"]
    assert lost > 0
    assert (history.steps, history.breakdown_s["lost"], history.wall_s) == (20, lost * 50, (20 + lost) * 50)
    assert [event.what for event in history.events] == ["rounds_lost"] * int(lost)


def test_the_share_of_lost_rounds_is_binomial():
    history = run(**HALF_ARE_SLOW | {"rounds": 1000}, deadline=50, minimum=5)
    chance, tried = sum(comb(10, k) for k in range(5)) / 2**10, history.steps + history.counts["rounds_lost"]
    assert history.counts["rounds_lost"] / tried == pytest.approx(chance, abs=4 * np.sqrt(chance / tried))


def test_a_deadline_that_nobody_meets_is_refused_in_one_line():
    with pytest.raises(UserError, match=r"federated: minimum = 1: 1000 rounds in a row .* raise it, or lower dropout"):
        run(deadline=30)


def test_the_share_of_clients_that_drop_out_is_the_stated_one():
    rounds = 1000
    dropped = run(rounds=rounds, over=1.3, dropout=0.1).counts["dropped"]
    assert dropped / (13 * rounds) == pytest.approx(0.1, abs=4 * np.sqrt(0.1 * 0.9 / (13 * rounds)))


def test_those_that_stay_are_what_a_round_without_over_selection_has():
    history = run(rounds=500, dropout=0.2)
    assert history.samples == 5000 - history.counts["dropped"]


def test_over_selection_replaces_those_that_drop_out():
    assert run(rounds=200, over=2, dropout=0.1).samples == 2000


def test_a_round_waits_for_nobody_who_has_dropped_out():
    assert run(rounds=100, dropout=0.5).wall_s == pytest.approx(100 * 32.5)


# Secure aggregation


def test_the_bytes_of_a_client_are_those_of_the_paper():
    n, m, one = 100, 10**6, Secure(key=30, share=40, bits=16)
    masked = m * ceil(log2(n * (2**16 - 1) + 1)) / 8
    assert one.client_bytes(m * 2, n) == 2 * n * 30 + (5 * n - 4) * 40 + masked


@pytest.mark.parametrize(("users", "values", "expansion"), [(2**10, 2**20, 1.73), (2**14, 2**24, 1.98)])
def test_the_expansion_is_that_of_the_paper_s_abstract(users, values, expansion):
    sent = Secure().client_bytes(2 * values, users) / (2 * values)
    assert sent == pytest.approx(expansion, abs=0.005)


def test_messages_and_bytes_of_the_server_grow_with_the_square_of_clients():
    one = Secure()
    assert one.share_messages(2000) / one.share_messages(1000) == pytest.approx(4, rel=1e-3)
    assert one.server_bytes(0, 2000) / one.server_bytes(0, 1000) == pytest.approx(4, rel=1e-3)


def test_each_pair_of_clients_exchanges_one_message_in_each_direction():
    assert Secure().share_messages(5) == sum(i != j for i in range(5) for j in range(5))


def test_the_threshold_is_that_of_the_paper():
    assert [Secure().needed(n) for n in (3, 10, 100)] == [2 * n // 3 + 1 for n in (3, 10, 100)]


def test_a_secure_run_moves_the_model_and_the_bytes_of_the_protocol():
    counts, one = run(secure=True).counts, Secure()
    assert counts["client_bytes"] == pytest.approx(MODEL + one.client_bytes(MODEL, 10))
    assert counts["server_bytes"] == pytest.approx(3 * (10 * MODEL + one.server_bytes(MODEL, 10)))


def test_a_secure_round_of_equal_clients_takes_its_messages_one_after_the_other():
    one = Secure(key=10**6, share=10**5, mask=1e8, unmask=1e9)
    history = run(rounds=1, secure=one, latency=0.1)
    keys_s, shares_s = 2e6 / 1e6 + 18e6 / 4e6 + 0.2, 18e5 / 1e6 + 18e5 / 4e6 + 0.2
    masked = MODEL * 20 / 16  # sums of ten values of 16 bits have 20
    assert history.breakdown_s == pytest.approx({
        "setup": keys_s + shares_s + 10 * 1e5 / 1e6 + 0.2,
        "exchange": 2.5 + masked / 1e6 + 0.2,
        "compute": 20,
        "encode": 10 * masked / 1e8 + 10 * masked / 1e9,
    })  # fmt: skip


def test_removing_masks_takes_one_for_each_update_and_one_for_each_pair_with_a_missing_one():
    one = Secure(unmask=1e6)
    assert one.unmask_s(2e6, 10, delivered=7, missing=3) == pytest.approx((7 + 7 * 3) * one.masked_bytes(2e6, 10) / 1e6)


def test_drop_outs_cost_the_server_time():
    one = Secure(unmask=1e9)
    few, many = (run(rounds=100, secure=one, dropout=share) for share in (0.0, 0.1))
    assert many.breakdown_s["encode"] > 1.5 * few.breakdown_s["encode"]


def test_rounds_below_the_threshold_of_secure_aggregation_are_lost():
    history = run(rounds=500, secure=True, dropout=0.2)
    chance = sum(comb(10, k) * 0.8**k * 0.2 ** (10 - k) for k in range(7))  # 7 of 10 must deliver
    tried = 500 + history.counts["rounds_lost"]
    assert history.counts["rounds_lost"] / tried == pytest.approx(chance, abs=4 * np.sqrt(chance / tried))


def test_groups_of_aggregators_save_bytes_of_secure_aggregation():
    counts = run(sampled=100, secure=True, aggregators=10).counts
    assert counts["client_bytes"] == pytest.approx(MODEL + Secure().client_bytes(MODEL, 10))


# The server's link


def test_a_server_link_that_binds_takes_n_models_each_way():
    assert run(server=2e6).breakdown_s["exchange"] == pytest.approx(3 * 2 * 10 * MODEL / 2e6)


def test_a_server_link_that_does_not_bind_changes_nothing():
    jitter = Spread(kind="lognormal", spread=0.5)
    assert run(server=4e7, jitter=jitter) == run(jitter=jitter)


def test_uploads_at_different_times_share_less():
    spread = run(server=2e6, jitter=Spread(kind="trace", values=(1, 20)))
    together = run(server=2e6)
    assert spread.wall_s - spread.breakdown_s["compute"] < together.wall_s - together.breakdown_s["compute"]


def test_aggregators_share_the_work_and_load_the_root():
    n, servers, link = 64, 8, 2e6
    history = run(sampled=n, up=FAST, down=FAST, server=link, aggregators=servers)
    assert history.breakdown_s["exchange"] == pytest.approx(3 * 2 * (n / servers + servers) * MODEL / link)


def test_a_slow_link_to_the_root_adds_one_model_each_way():
    history = run(aggregators=5, aggregator_link=5e5)
    assert history.breakdown_s["exchange"] == pytest.approx(3 * (12.5 + 2 * MODEL / 5e5))


def test_fluid_sharing_gives_the_hand_case_of_the_style_guide():
    ends_s = shared_ends_s(np.array([0, 0, 5.0]), np.array([100.0, 100, 25]), np.full(3, 1e9), 10)
    assert ends_s.tolist() == pytest.approx([22.5, 22.5, 12.5])


def test_the_fair_rate_fills_what_slower_ones_leave():
    assert fair_rate(np.array([1.0, 2, 9, 9]), 10) == pytest.approx(3.5)


TRANSFERS = st.lists(
    st.tuples(st.floats(0, 10), st.floats(0.1, 10), st.sampled_from([0.3, 1, 1.7, 5])), min_size=1, max_size=12
)


@examples(100)
@given(TRANSFERS, st.floats(0.5, 10))
def test_each_transfer_of_a_round_has_its_fair_rate(transfers, capacity):
    assert shared_ends_s(*np.array(transfers).T, capacity) == pytest.approx(fluid(transfers, capacity)[0])


@examples(50)
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=12), st.floats(0.5, 10))
def test_transfers_that_start_at_once_have_a_closed_form(limits, capacity):
    n = len(limits)
    ends_s = shared_ends_s(np.zeros(n), np.ones(n), np.array(limits), capacity)
    assert together_s(1.0, np.array(limits), capacity) == pytest.approx(ends_s)


# What holds for every run


PLANS = st.builds(
    keys,
    over=st.sampled_from([1, 1.3]),
    compute=st.builds(Spread, kind=st.just("lognormal"), spread=st.floats(0, 1)),
    jitter=st.builds(Spread, spread=st.floats(0, 0.3)),
    links=st.builds(Spread, kind=st.just("lognormal"), spread=st.floats(0, 1)),
    dropout=st.floats(0, 0.1),
    deadline=st.sampled_from([None, 150, 300]),
    server=st.sampled_from([None, 3e6]),
    aggregators=st.sampled_from([1, 3]),
    secure=st.sampled_from([False, Secure(mask=1e8, unmask=1e9, threshold=0.1)]),
    latency=st.floats(0, 1),
)


@examples(100)
@given(PLANS, st.integers(0, 9))
def test_seconds_by_cause_add_up_and_are_not_negative(plan, seed):
    history = run_federated(FederatedPlan(plan, MODEL, seed))
    assert sum(history.breakdown_s.values()) == pytest.approx(history.wall_s, rel=1e-9)
    assert min(history.breakdown_s.values()) >= 0


@examples(30)
@given(PLANS, st.integers(0, 9))
def test_equal_seeds_give_equal_runs(plan, seed):
    assert run_federated(FederatedPlan(plan, MODEL, seed)) == run_federated(FederatedPlan(plan, MODEL, seed))


def test_another_seed_gives_another_run():
    jitter = Spread(spread=0.1)
    assert run(seed=1, jitter=jitter).wall_s != run(seed=2, jitter=jitter).wall_s


@examples(100)
@given(PLANS, st.integers(0, 9), st.floats(30, 200), st.floats(0, 100))
def test_a_later_deadline_never_counts_fewer_clients(plan, seed, deadline, later):
    early, late = (
        ClientRounds(FederatedPlan(plan.model_copy(update={"deadline": at, "minimum": 1}), MODEL, seed))
        for at in (deadline, deadline + later)
    )
    assert all(early.play().updates <= late.play().updates for _ in range(3))


def test_drop_outs_do_not_move_the_choice_of_clients():
    spread = Spread(kind="lognormal", spread=1)
    some = run(**only_compute(compute=spread, over=2, dropout=1e-9))
    assert some.wall_s == run(**only_compute(compute=spread, over=2)).wall_s


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sampled": None}, r"give clients, sampled, epoch_time, up, down, or silos \(missing: sampled\)"),
        ({"silos": (Silo(epoch_time=1, up=1, down=1),)}, "leave clients, sampled, epoch_time, up, down out"),
        ({"over": 2, "clients": 19}, "over x sampled = 20 is more than clients = 19"),
        ({"minimum": 11}, "minimum is at most the clients of a round, 10"),
        ({"aggregators": 11}, "aggregators are at most the clients of a round, 10"),
        ({"aggregator_link": 1e6}, "aggregator_link goes with aggregators above 1"),
        ({"secure": True, "over": 1.6}, "secure.threshold needs 11 updates of 16 clients, but a round takes 10"),
        ({"dropout": 1}, "less than 1"),
        ({"up": 0}, "expected a rate above zero"),
        ({"epoch_time": 0}, "greater than 0"),
    ],
)  # fmt: skip
def test_keys_that_do_not_go_together_are_refused(wrong, message):
    with pytest.raises(ValidationError, match=message):
        keys(**wrong)


def test_a_thousand_rounds_of_a_thousand_clients_take_less_than_a_second():
    varied = Spread(kind="lognormal", spread=0.5)
    plan = FederatedPlan(
        keys(rounds=1000, clients=100_000, sampled=1000, over=1.3, dropout=0.1, compute=varied, jitter=varied), MODEL
    )

    def seconds():
        start_s = process_time()
        run_federated(plan)
        return process_time() - start_s

    assert min(seconds() for _ in range(2)) < 1
