"""Tensor-parallel exchanges beside their products: a share of each stays before or behind them. All by hand."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.engine import simulate
from runcast.simulator.profile import TP_EXPOSED, load_stack
from runcast.simulator.systems.train_step.terms import terms_of

from .steps import HIDDEN, LAYERS, MOE, SEQ, costs, labels, ops, program, resolved

STATES = SEQ * HIDDEN * 2  # bytes of hidden states of a micro-batch


def overlapped(share, **tables):
    return program(2, parallel={"tp": 2}, overlap={"tp": True, "tp_exposed": share}, **tables)


def layer_seconds(made, exchange, products):
    """From the start of layer 1 to that of layer 2, forward; an exchange of hidden states takes `exchange` seconds."""
    found = costs(made, products)
    work = found.work_s.copy()
    tp = ops(made, lane="tp")
    work[tp] = made.bytes[tp] / STATES * exchange
    start = simulate(made, replace(found, work_s=work)).start_s
    norms = np.flatnonzero(labels(made) == "input_norm")
    first, second = (start[norms[made.tags["layer"][norms] == layer]].min() for layer in (1, 2))
    return second - first


@pytest.mark.parametrize("model", [{}, {"model": MOE, "overrides": {"mlp_only_layers": [0]}}])
@pytest.mark.parametrize("recompute", [{}, {"mode": "selective", "modules": ["layernorm", "activation", "mlp"]}])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 1.0])
def test_bytes_of_each_kind_stay_the_same(share, model, recompute):
    def sent(made):
        found = Counter()
        for op in ops(made, lane="tp"):
            found[made.kind_of(op)] += int(made.bytes[op])
        return found

    assert sent(overlapped(share, recompute=recompute, **model)) == sent(
        program(2, parallel={"tp": 2}, recompute=recompute, **model)
    )


def test_each_exchange_around_products_is_two():
    """Forward and backward, attention and network: four of each kind per layer; others stay whole."""
    sizes = Counter(
        (made.kind_of(op), int(made.bytes[op])) for made in [overlapped(0.75)] for op in ops(made, lane="tp")
    )
    assert sizes == {
        ("all_gather", STATES * 3 // 4): 4 * LAYERS,
        ("all_gather", STATES // 4): 4 * LAYERS,
        ("reduce_scatter", STATES * 3 // 4): 4 * LAYERS,
        ("reduce_scatter", STATES // 4): 4 * LAYERS,
        ("all_gather", STATES): 2 * LAYERS + 3,  # again for weight gradients; logits, and the loss and embedding back
        ("reduce_scatter", STATES): 2,
        ("all_reduce", 3 * 4 * SEQ): 1,
        ("all_reduce", 4 * (2 * LAYERS + 1) * HIDDEN): 1,  # gradients of norms
    }


@pytest.mark.parametrize(("share", "expected"), [
    (0.0, max(2.0, 0.5 + 0.5) + max(0.25, 0.5 + 0.5)),
    (0.5, 0.25 + 2.0 + 0.25 + 0.25 + max(0.25, 0.25 + 0.25) + 0.25),
    (1.0, 0.5 + 2.0 + 0.5 + 0.5 + 0.25 + 0.5),
])  # fmt: skip
def test_the_exposed_share_stands_before_and_behind_and_the_rest_beside(share, expected):
    """Attention's products take 2 s, the network's 0.25 s, a whole exchange 0.5 s."""
    assert layer_seconds(overlapped(share), 0.5, {"attention": 2.0, "up": 0.25}) == pytest.approx(expected)


def test_by_default_six_tenths_are_exposed():
    made = program(2, parallel={"tp": 2}, overlap={"tp": True})
    expected = 4 * 0.6 * 0.5 + max(2.0, 0.4) + max(0.25, 0.4)
    assert layer_seconds(made, 0.5, {"attention": 2.0, "up": 0.25}) == pytest.approx(expected, rel=1e-3)
    assert layer_seconds(program(2, parallel={"tp": 2}), 0.5, {"attention": 2.0, "up": 0.25}) == 2.0 + 0.25 + 4 * 0.5


def test_a_share_without_overlap_is_refused():
    with pytest.raises(UserError, match=r"overlap.tp_exposed = 0.5: goes with overlap.tp = true"):
        resolved(2, parallel={"tp": 2}, overlap={"tp_exposed": 0.5})


def test_a_stack_says_how_much_is_exposed_where_the_scenario_does_not():
    stack = load_stack("generic")[TP_EXPOSED]
    silent = resolved(2, parallel={"tp": 2}, overlap={"tp": True})
    assert silent.plan.tp_exposed == stack.value
    assert [term.stated for term in terms_of(silent) if term.name == TP_EXPOSED] == [stack.spread]


def test_a_share_that_the_scenario_states_is_exact():
    stating = resolved(2, parallel={"tp": 2}, overlap={"tp": True, "tp_exposed": 0.4})
    assert stating.plan.tp_exposed == 0.4
    assert [term for term in terms_of(stating) if term.name == TP_EXPOSED] == []
