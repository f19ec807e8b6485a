"""What the report of a training step notes beside its numbers."""

import re
from functools import partial

import pytest
import runcast
from runcast.simulator.predict import simulate

LLAMA = {
    "kind": "train_step", "cluster": "dgx-h100",
    "model": {"preset": "llama3-8b", "overrides": {"num_hidden_layers": 2, "vocab_size": 8192}},
    "parallel": {"zero": 1}, "batch": {"global": 8, "seq_len": 512}, "level": "coarse",
}  # fmt: skip
SPARSE = {"model": {"preset": "glm-5", "overrides": {"num_hidden_layers": 4}}, "nodes": 2, "parallel": {"ep": 16}}


def notes(**tables):
    return "\n".join(simulate(LLAMA | tables).report.notes)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"stack": "deepspeed-zero3"}, True),
        ({"stack": "deepspeed-zero3", "attention": "flash"}, False),
        ({"attention": "unfused"}, False),
    ],
)
def test_attention_that_an_old_stack_leaves_unfused_is_noted(tables, said):
    assert ("attention = unfused, as deepspeed-zero3 had it" in notes(**tables)) is said


@pytest.mark.parametrize(
    ("attention", "said"),
    [
        ("flash", "each token attends to at most 2,048 latents that an indexer picks"),
        ("unfused", "keys are made and all scores computed"),
    ],
)
def test_attention_to_what_an_indexer_picks_is_noted(attention, said):
    assert said in notes(**SPARSE, attention=attention, batch={"global": 16, "seq_len": 512})


HELD_UP = re.compile("not in the interval: a micro-batch takes .* without CUDA graphs hosts may take longer")
MIXTURE = {"model": {"preset": "qwen3-30b-a3b", "overrides": {"num_hidden_layers": 16}}, "parallel": {"ep": 8}}


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({}, True),
        ({"stack": "megatron-bridge-26.06"}, True),
        ({"stack": "megatron-bridge-eager"}, False),
        ({"stack": "megatron-bridge-no-graphs"}, False),
        ({"stack": "maxtext"}, False),
        ({"batch": {"global": 256, "micro": 8, "seq_len": 4096}}, False),
    ],
)
def test_a_step_that_hosts_may_hold_up_says_so_beside_its_interval(tables, said):
    assert any(map(HELD_UP.search, simulate(LLAMA | MIXTURE | tables).report.interval_notes)) is said


SEARCH = partial(runcast.search, fix={"parallel.tp": 1, "parallel.pp": 1, "batch.micro": 1, "parallel.zero": 1})


@pytest.mark.parametrize(
    "ask",
    [runcast.simulate, partial(runcast.compare, LLAMA), partial(runcast.explain, quick=True), SEARCH],
    ids=["simulate", "compare", "explain", "search"],
)
def test_every_answer_says_so(ask):
    assert any(map(HELD_UP.search, ask(LLAMA | MIXTURE).lines()))


def test_a_stack_counts_what_hosts_do_for_layers_with_experts():
    """Forward and backward of 15 layers, and what the ends of the model have of it; the first layer has no experts."""
    tables = MIXTURE | {
        "model": {"preset": "qwen3-30b-a3b", "overrides": {"num_hidden_layers": 16, "mlp_only_layers": [0]}}
    }
    eager, plain = (
        simulate(LLAMA | tables | {"stack": stack}).report.step_time_s
        for stack in ("megatron-bridge-eager", "megatron-bridge-26.02")
    )
    assert plain < 2 * 15 * 8e-3 < eager < 1.25 * 2 * 15 * 8e-3


@pytest.mark.parametrize(("micro", "said"), [(1, ["lower", "upper"]), (4, ["upper"]), (8, [])])
def test_an_end_of_the_interval_that_is_not_the_critical_path_s_is_said(micro, said):
    """Hosts hold up a step with one sequence to a micro-batch, and work for half of one with four."""
    batch = {"global": 8 * micro, "micro": micro, "seq_len": 4096}
    step = LLAMA | MIXTURE | {"stack": "megatron-bridge-eager", "level": "kernels", "batch": batch}
    ends = [line.split()[1] for line in simulate(step).report.notes if "end of the interval is that of" in line]

    assert ends == said


@pytest.mark.parametrize(("gpus_per_node", "nodes", "said"), [(6, 4, ["2 of 6"]), (8, 3, []), (2, 12, [])])
def test_groups_that_lie_on_more_nodes_than_the_first_are_noted(gpus_per_node, nodes, said):
    cluster = {"base": "dgx-h100", "gpus_per_node": gpus_per_node}
    found = notes(cluster=cluster, nodes=nodes, parallel={"tp": 4}, batch={"global": 6, "seq_len": 512})
    assert re.findall(r"tp: groups of 4 cross borders of nodes.*; (\d of \d) groups lie on more", found) == said
