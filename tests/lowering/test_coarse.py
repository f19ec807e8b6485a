"""The coarser level against the finer one: the same step time, the same messages, few ops."""

import json
import tracemalloc
from collections import Counter
from functools import cache

import pytest
from runcast.simulator import engine
from runcast.simulator.base.memo import Memo
from runcast.simulator.hardware import Cluster
from runcast.simulator.insight import critical_path, path_by_phase, split_by_place
from runcast.simulator.predict import simulate
from runcast.simulator.profile import load_profile
from runcast.simulator.program import validate
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

LLAMA, LLAMA_70B = {"preset": "llama3-8b"}, {"preset": "llama3-70b", "overrides": {"num_hidden_layers": 16}}
QWEN = {"preset": "qwen3-30b-a3b", "overrides": {"num_hidden_layers": 16}}
DEEPSEEK = {"preset": "deepseek-v3", "overrides": {"num_hidden_layers": 8}}
QWEN_TIED, DEEP = {"preset": "qwen3-1.7b"}, {"preset": "llama3-405b"}
SPLIT = "slow hosts, split backwards"
PARTS = {"mode": "selective", "modules": ["layernorm", "activation"]}
NO_GRAPHS = {"stack": "megatron-bridge-no-graphs"}
CHUNKS, PAIRS = {"name": "interleaved", "vpp": 4}, {"name": "interleaved-overlap", "vpp": 2}

# (GPUs, micro-batches, tokens of a sequence, model, tables)
PLANS = {
    "8 GPUs": (8, 1, 4096, LLAMA, {}),
    "large batch": (64, 8, 4096, LLAMA, {}),
    "small batch": (64, 1, 2048, LLAMA, {}),
    "smaller batch": (64, 1, 1024, LLAMA, {}),
    "zero 0": (64, 1, 1024, LLAMA, {"parallel": {"zero": 0}}),
    "zero 0, large batch": (64, 2, 4096, LLAMA, {"parallel": {"zero": 0}}),
    "zero 0, large buckets": (64, 1, 2048, LLAMA, {"parallel": {"zero": 0}, "bucket": 1_000_000_000}),
    "zero 2": (64, 2, 4096, LLAMA, {"parallel": {"zero": 2}}),
    "zero 2, once a step": (64, 2, 4096, LLAMA, {"parallel": {"zero": 2, "sync_each_microbatch": False}}),
    "nothing beside": (64, 2, 2048, LLAMA, {"overlap": {"dp": False, "params": False}}),
    "gradients beside": (64, 2, 2048, LLAMA, {"overlap": {"params": False}}),
    "weights beside": (64, 2, 2048, LLAMA, {"overlap": {"dp": False}}),
    "LoRA": (64, 2, 2048, LLAMA, {"lora": {"rank": 16}}),
    "recomputed": (64, 2, 2048, LLAMA, {"recompute": {"mode": "full"}}),
    "frozen": (64, 2, 4096, LLAMA, {"freeze": {"layers": -2, "embedding": True}}),
    "frozen, offloaded": (64, 2, 4096, LLAMA, {"freeze": {"layers": 8, "embedding": True},
                                               "offload": {"activations": 0.5}}),
    "frozen stages": (64, 8, 4096, LLAMA_70B, {"parallel": {"tp": 4, "pp": 4}, "freeze": {"layers": 6}}),
    "stages without a backward": (64, 8, 4096, LLAMA_70B, {"parallel": {"tp": 4, "pp": 4},
                                  "freeze": {"layers": 11, "embedding": True}}),
    "126 layers": (64, 1, 1024, DEEP, {"parallel": {"tp": 8}}),
    "126 layers, longer": (64, 1, 4096, DEEP, {"parallel": {"tp": 8}}),
    "tp": (64, 2, 4096, LLAMA_70B, {"parallel": {"tp": 8}, "recompute": PARTS}),
    "tp beside": (64, 1, 4096, LLAMA_70B, {"parallel": {"tp": 8}, "overlap": {"tp": True}}),
    "1f1b": (64, 8, 4096, LLAMA_70B, {"parallel": {"tp": 4, "pp": 4}}),
    "interleaved": (64, 2, 2048, LLAMA_70B, {"parallel": {"tp": 4, "pp": 2}, "schedule": CHUNKS}),
    "passes": (64, 8, 4096, LLAMA_70B, {"parallel": {"tp": 4, "pp": 4, "zero": 2, "sync_each_microbatch": False},
                                        "schedule": {"passes": 2}}),
    "zb-h1": (64, 4, 4096, LLAMA_70B, {"parallel": {"tp": 4, "pp": 4}, "schedule": {"name": "zb-h1"}}),
    "zb-h1, frozen": (64, 4, 4096, LLAMA_70B, {"parallel": {"tp": 4, "pp": 4, "zero": 2}, "schedule": {"name": "zb-h1"},
                      "freeze": {"layers": "all", "head": True}}),
    "v-half": (64, 4, 4096, LLAMA_70B, {"parallel": {"tp": 4, "pp": 4}, "schedule": {"name": "v-half"}}),
    "ep": (64, 2, 4096, QWEN, {"parallel": {"ep": 8}}),
    "pairs": (64, 8, 4096, QWEN, {"parallel": {"pp": 2, "ep": 8}, "schedule": PAIRS}),
    "dualpipe": (64, 8, 4096, QWEN, {"parallel": {"pp": 4, "ep": 8}, "schedule": {"name": "dualpipe"}}),
    "tied": (16, 4, 4096, QWEN_TIED, {"parallel": {"pp": 2}}),
    "MTP": (64, 4, 4096, DEEPSEEK, {"parallel": {"pp": 2, "ep": 8}}),
    "a slow node": (64, 8, 4096, LLAMA_70B, {"parallel": {"tp": 8, "pp": 4}, "slow": [{"node": 0, "factor": 2.0}]}),
    "slow nodes": (64, 2, 4096, QWEN, {"parallel": {"pp": 2, "ep": 8}, "slow": [{"node": 0, "factor": 1.2},
                                       {"node": 5, "factor": 1.5}]}),
    "slow hosts": (64, 4, 512, LLAMA, {"stack": "nanotron", "parallel": {"zero": 0}}),
    "slow hosts, pipeline": (64, 8, 2048, LLAMA_70B, {"stack": "nanotron", "parallel": {"tp": 4, "pp": 4}}),
    "slow hosts, chunks": (64, 8, 4096, QWEN, {**NO_GRAPHS, "parallel": {"pp": 2, "ep": 8}, "schedule": CHUNKS}),
    "slow hosts, pairs": (64, 8, 4096, QWEN, {**NO_GRAPHS, "parallel": {"pp": 2, "ep": 8}, "schedule": PAIRS}),
    SPLIT: (64, 16, 2048, LLAMA_70B, {"stack": "nanotron", "parallel": {"tp": 4, "pp": 4},
            "schedule": {"name": "zb-h1"}}),
    "hosts as slow as kernels": (64, 16, 4096, QWEN, {**NO_GRAPHS, "parallel": {"pp": 4, "ep": 4}}),
}  # fmt: skip


SLOW_HOSTS = tuple(name for name in PLANS if "hosts" in name)
"""Plans whose actions have an op of the host and one more of the device. What a rank waits for inside an action and
before it is one wait.
"""

MEMO = Memo()
"""What plans of one model have in common is made once."""

CONTENDED = ("ep", "pairs", "dualpipe", "MTP", "slow nodes")
"""Plans whose gradients meet tokens on NVLink and NICs: an action's own exchanges have their links to themselves."""


@cache
def step(name, level, profile=None):
    gpus, micro_batches, seq, model, tables = PLANS[name]
    parallel = tables.get("parallel", {})
    dp = gpus // (parallel.get("tp", 1) * parallel.get("pp", 1))
    batch = {"global": dp * micro_batches, "seq_len": seq}
    given = {"kind": "train_step", "cluster": "dgx-h100", "nodes": gpus // 8, "model": model, "batch": batch}
    said = given | tables | {"level": level} | ({"profile": profile} if profile else {})
    return ResolvedTrain(check_train(said), memo=MEMO)


@cache
def run(name, level, profile=None):
    one = step(name, level, profile)
    return engine.simulate(one.program, one.costs)


def error(name, profile=None):
    fine, few = (run(name, level, profile).makespan_s for level in ("kernels", "coarse"))
    return few / fine - 1


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A profile of the H100 where nothing that runs on a GPU slows anything else."""
    file = tmp_path_factory.mktemp("profile") / "undisturbed.json"
    names = [name for name in load_profile("h100-sxm").parameters if name.startswith("interference.")]
    one = {"value": 1.0, "spread": 0.0, "provenance": "assumed", "source": "a test"}
    table = {"schema": 2, "name": "undisturbed", "base": "h100-sxm", "devices": ["H100 SXM"]}
    file.write_text(json.dumps(table | {"parameters": dict.fromkeys(names, one)}))
    return str(file)


@pytest.mark.parametrize("name", PLANS)
def test_a_step_of_few_ops_takes_what_its_kernels_take(name, undisturbed):
    assert error(name, undisturbed) == pytest.approx(0, abs=0.005 if name in (*CONTENDED, SPLIT) else 0.003)


@pytest.mark.parametrize("name", PLANS)
def test_kernels_and_messages_slow_each_other_at_both_levels(name):
    assert error(name) == pytest.approx(0, abs=0.005)


def shares(name, level, profile=None):
    """Of a step, by phase: in the time of each rank, and on the critical path."""
    one, found = step(name, level, profile), run(name, level, profile)
    path = path_by_phase(critical_path(found), one.program, one.mix)
    return split_by_place(found, mix=one.mix) / found.makespan_s, path / found.makespan_s


@pytest.mark.parametrize("name", PLANS)
def test_ranks_of_few_ops_spend_their_time_on_what_kernels_do(name, undisturbed):
    (fine, _), (few, _) = (shares(name, level, undisturbed) for level in ("kernels", "coarse"))
    assert few == pytest.approx(fine, abs=0.06 if name in SLOW_HOSTS else 0.01 if name in CONTENDED else 0.005)


@pytest.mark.parametrize("name", PLANS)
def test_what_bounds_a_step_is_the_same_at_both_levels(name):
    (_, fine), (_, few) = (shares(name, level) for level in ("kernels", "coarse"))
    assert few == pytest.approx(fine, abs=0.03 if name in CONTENDED else 0.02)


@pytest.mark.parametrize("name", PLANS)
def test_an_action_costs_what_the_one_costs_that_it_is_like(name, monkeypatch):
    folded = step(name, "coarse").costs
    monkeypatch.setattr(Cluster, "period", 0)
    apart = ResolvedTrain(step(name, "coarse").scenario).costs

    for column in ("work_s", "latency_s", "spread", "provenance", "interference", "link_bytes"):
        assert getattr(folded, column) == pytest.approx(getattr(apart, column), rel=1e-12)
    for op in range(len(folded.work_s)):
        assert asked(folded, op) == pytest.approx(asked(apart, op), rel=1e-12)


def asked(costs, op):
    """Bytes per second of an op by link."""
    return dict(zip(*(column.tolist() for column in costs.demand_of(op)), strict=True))


def test_stages_of_equal_layers_are_priced_once():
    found = step("1f1b", "coarse").coarse

    # Of four stages those in the middle are alike.
    assert (len(found.actions.place), len(found.alone.places)) == (12, 9)


def sent(program):
    """Bytes of gradients and weights by kind and group."""
    found = Counter()
    for lane, at in enumerate(program.lanes):
        for op in program.order[lane].tolist() if at.name in ("dp", "edp") else ():
            if program.kind_of(op) != "grad_norm":
                found[program.kind_of(op), program.groups[program.group[op]]] += int(program.bytes[op])
    return found


@pytest.mark.parametrize("name", PLANS)
def test_messages_carry_the_same_bytes(name):
    fine, few = (step(name, level) for level in ("kernels", "coarse"))
    assert sent(few.program) == sent(fine.program)
    assert few.costs.link_bytes.sum() <= fine.costs.link_bytes.sum() * (1 + 1e-9)  # actions have links of their own


@pytest.mark.parametrize("name", PLANS)
def test_a_large_step_stays_small(name):
    assert len(validate(step(name, "coarse").program)) < 500 * (3 if name in SLOW_HOSTS else 1)


def test_only_actions_beside_messages_are_cut():
    """Of 8 forwards and 8 backwards of 16 layers on 4 ranks: the first forward and the last backward."""
    program = step("1f1b", "coarse").program
    found = Counter(
        (program.kind_of(op), int(program.tags["microbatch"][op]), int(program.tags["action"][op]))
        for op in range(len(program))
        if program.tags["stage"][op] == 1 and program.kind_of(op) == "actions"
    )
    parts = {key[1:]: count for key, count in found.items() if count > 1}
    assert parts == {(0, 0): 4, (7, 1): 4}  # forwards are 0, backwards 1; a layer each


def test_many_buckets_are_one_op_of_their_own_price():
    """A layer of the 8B model is many buckets of DDP, which take longer than one message of their bytes."""
    few = step("zero 0", "coarse")
    layer = few.coarse.times.argmax()
    assert few.coarse.times[layer] > 20
    assert few.costs.link_bytes.sum() == pytest.approx(step("zero 0", "kernels").costs.link_bytes.sum())
    seconds, times = few.costs.work_s[layer], int(few.coarse.times[layer])
    fine = step("zero 0", "kernels")
    one = int(few.program.bytes[layer]) // times
    alike = (fine.program.bytes == one) & fine.program.is_kind("all_reduce")
    assert seconds == pytest.approx(times * fine.costs.work_s[alike][0])


def test_an_action_of_a_long_pipeline_takes_less_than_a_kilobyte():
    """Four kilobytes once: a ledger of two long steps took 2 GB."""
    changes = {"parallel.pp": 16, "nodes": 16, "level": "coarse", "batch.global": 256}
    simulate("train-llama3-405b-16384xh100", changes)  # what is imported and read once
    tracemalloc.start()
    simulate("train-llama3-405b-16384xh100", changes)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most_bytes / (16 * 8 * 256 * 2) < 1000
