"""Sequence parallelism in the backward: what weight gradients read travels under input gradients, sums too."""

from dataclasses import replace

from .steps import costs, ops, program, simulate

TP2 = {"parallel": {"tp": 2}, "overrides": {"num_hidden_layers": 1}}


def one_layer(**tables):
    return program(2, 1, **TP2, **tables)


def before(step, op):
    """Labels of what an op waits for beside its lane."""
    return sorted(step.names[dep].split()[0] for dep in step.deps[op])


def test_only_products_of_gathered_tokens_wait_for_their_input():
    step = one_layer()
    waits = {name: before(step, ops(step, label=f"{name}_wgrad")[0]) for name in ("down", "up", "proj", "qkv")}

    assert waits == {"down": [], "up": ["tp"], "proj": [], "qkv": ["tp"]}


def test_inputs_are_gathered_beside_the_input_gradients_of_their_products():
    """Everything takes no time but the products of the network, their input's gather and their sum: 3, 3 and 2."""
    step = one_layer()
    up = ops(step, label="up_dgrad")[0]
    gather = step.deps[ops(step, label="up_wgrad")[0]][0]
    scatter = next(op for op in ops(step, label="tp reduce_scatter") if up in step.deps[op])
    free = costs(step, {})
    work = free.work_s.copy()
    work[[up, gather, scatter, ops(step, label="up_wgrad")[0]]] = 3.0, 3.0, 2.0, 2.0
    timeline = simulate(step, replace(free, work_s=work))

    assert timeline.start_s[gather] == timeline.start_s[up]
    assert timeline.start_s[scatter] == timeline.start_s[ops(step, label="up_wgrad")[0]] == 3.0
    assert timeline.makespan_s == 5.0


def test_held_back_weight_gradients_gather_for_themselves():
    """With the backward split there are as many gathers: six per layer and micro-batch, three of embedding and head."""
    whole = one_layer()
    split = program(4, 4, parallel={"tp": 2, "pp": 2}, schedule={"name": "zb-h1"}, overrides={"num_hidden_layers": 2})
    gathers = [len(ops(step, label="tp all_gather")) for step in (whole, split)]

    assert gathers == [6 + 3, 4 * (2 * 6 + 3)]
