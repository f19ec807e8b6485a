"""The ends of the model in the making: the host issues them, and they wait for their weights, by hand."""

from collections import Counter

import pytest

from .steps import LAYERS, makespan, ops, program

V3 = {"preset": "deepseek-v3", "overrides": {}}
SMALL = {"num_hidden_layers": 4, "first_k_dense_replace": 1, "n_routed_experts": 8}


def test_embedding_head_and_multi_token_prediction_are_issued_once_each_way():
    made = program(1, 3, V3, overrides=SMALL)
    layers = Counter(int(made.tags["layer"][op]) for op in ops(made, kind="issue"))
    assert layers == {-1: 2 * 2 * 3} | dict.fromkeys(range(4 + 1), 2 * 3)


def test_the_host_issues_every_kernel_once():
    made = program(1, 3, V3, overrides=SMALL)
    issued = sum(int(made.shape[op].sum()) for op in ops(made, kind="issue"))
    kernels = [op for op in ops(made, lane="compute") if made.tags["action"][op] >= 0]
    assert issued == len(kernels)


@pytest.mark.parametrize("layers", [[LAYERS, 0], [LAYERS - 1, 1]])
def test_a_head_waits_for_its_weights_without_a_layer(layers):
    made = program(4, 1, parallel={"pp": 2, "layers": layers, "zero": 1})
    times = {"attention": 1.0, "logits": 2.0, "gather weights": 0.0}
    (head,) = [op for op in ops(made, label="gather weights") if made.groups[made.group[op]] == (2, 3)]
    assert makespan(made, times) == LAYERS + 2
    at = ops(made, label="final_norm" if layers[1] == 0 else "input_norm")[-1]
    assert head in made.deps[at]
