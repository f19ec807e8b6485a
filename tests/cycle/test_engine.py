"""Engines whose steps are predicted: what bounds a step, what fits, and what a KV cache does to a rollout."""

from dataclasses import replace
from math import floor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator import UserError, simulate
from runcast.simulator.models import preset, total_params
from runcast.simulator.scenario import check_question
from runcast.simulator.systems.lengths import Lengths
from runcast.simulator.systems.rl_cycle.engine import ISSUE, EngineShape
from runcast.simulator.systems.rl_cycle.notes import notes_of
from runcast.simulator.systems.rl_cycle.pace import Curve, Roofline
from runcast.simulator.systems.rl_cycle.plan import Rollouts
from runcast.simulator.systems.rl_cycle.pool import Pool
from runcast.simulator.systems.rl_cycle.resolve import ResolvedCycle

from ..examples import examples
from .batch import rollout_s

NEVER = 1e18


def cycle(model: str = "qwen3-8b", **engine: Any) -> dict[str, Any]:
    """A cycle of one engine of 8 GPUs with everything given but decoding."""
    return {
        "kind": "rl_cycle", "cluster": "h100-hgx", "model": {"preset": model},
        "cycle": {"train_time": 4, "update_time": 2, "steps": 2},
        "rollout": {
            "requests": 16, "samples": 4, "prompt": {"kind": "fixed", "tokens": 100},
            "length": {"kind": "fixed", "tokens": 400}, "engine": {"tp": 8, **engine},
        },
    }  # fmt: skip


def engine_of(model: str = "qwen3-8b", **engine: Any) -> Any:
    """The engine of such a cycle."""
    return ResolvedCycle(check_question(cycle(model, **engine))).engine


def roofline(**changes: Any) -> Roofline:
    """A pace of 1 s per step and 1 ms for each token in the cache, with room for all."""
    nothing = Curve((1,), (0.0,))
    return Roofline(**{  # type: ignore[arg-type]
        "layers": nothing, "head": Curve((1,), (1.0,)), "attention": nothing, "cached_s": 0.001, "capacity": NEVER,
        "admits": NEVER, **changes,
    })  # fmt: skip


# A step


@pytest.mark.parametrize("model", ["qwen3-8b", "llama3-70b", "gpt-oss-20b", "deepseek-v2-lite"])
@pytest.mark.parametrize("requests", [1, 64])
def test_a_step_takes_at_least_the_time_to_read_weights_and_cache(model, requests):
    """Of a mixture of experts only those of the requests' tokens are read, so cache and attention's weights are."""
    engine, context = engine_of(model, dtype="bf16"), 2048
    shape, rate = engine.shape, engine.costs.kernels.limits.memory_bytes_per_s
    cached = requests * shape.kv_bytes * sum(
        layers * min(context, window or context) for window, layers in shape.kv_layers.items()
    )  # fmt: skip
    read = cached + (
        0 if shape.spec.moe else engine.weight_bytes - 2 * shape.spec.vocab_size * shape.spec.hidden_size / 8
    )

    assert engine.costs.step(requests, context).seconds >= read / rate


def test_a_longer_context_adds_the_time_to_read_it():
    costs = engine_of(tp=1).costs
    fraction = costs.kernels.profile.value("link_fraction.hbm")
    more = 32 * 1000 * costs.shape.token_bytes / (costs.kernels.limits.memory_bytes_per_s * fraction)

    assert costs.step(32, 3000).seconds - costs.step(32, 2000).seconds == pytest.approx(more)


def test_a_longer_context_than_what_is_picked_adds_no_more_than_the_indexers_keys():
    """GLM-5.2 has an indexer in 21 of 78 layers; a key has 128 elements of 8 bits, and a scale of 32."""
    costs = ResolvedCycle(check_question(cycle("glm-5.2", dtype="fp8") | {"cluster": "b300-hgx"})).engine.costs
    fraction = costs.kernels.profile.value("link_fraction.hbm")
    more = 32 * 1000 * 21 * 132 / (costs.kernels.limits.memory_bytes_per_s * fraction)

    assert costs.step(32, 4000).seconds - costs.step(32, 3000).seconds == pytest.approx(more)


def test_the_parts_of_a_step_add_up_by_provenance():
    step = engine_of().step(16)

    assert sum(step.by_label.values()) == pytest.approx(step.seconds)
    assert sum(step.shares.values()) == pytest.approx(1)
    assert 0 < step.spread < 1


def test_host_time_that_nothing_hides_is_added_to_each_step():
    sure, slow = (engine_of(**host).costs.step(16, 500) for host in ({}, {"step_time": 0.003, "request_time": 1e-4}))

    assert slow.seconds - sure.seconds == pytest.approx(0.003 + 16e-4)
    assert slow.by_label["given"] == pytest.approx(0.003 + 16e-4)


def test_a_step_that_is_no_cuda_graph_takes_at_least_the_issue_of_its_kernels():
    graphs, none = engine_of(tp=1).costs, engine_of(tp=1, graph_batch=0).costs
    issue_s = none.issue[1]

    assert issue_s == pytest.approx(36 * ISSUE.value)
    assert none.step(1, 100).seconds == issue_s > graphs.step(1, 100).seconds
    assert none.step(256, 8000).seconds == graphs.step(256, 8000).seconds > issue_s  # the device takes longer
    assert engine_of(tp=1, graph_batch=4).costs.step(4, 100).seconds == graphs.step(4, 100).seconds


def test_host_work_for_each_request_is_the_stacks_unless_given():
    engines = [
        ResolvedCycle(check_question(cycle(tp=8, **said) | {"stack": stack})).engine
        for stack, said in (("generic", {}), ("verl", {}), ("verl", {"request_time": 0}))
    ]
    generic, verl, given_ = (engine.costs.step(100, 200).seconds for engine in engines)

    assert verl == pytest.approx(generic + 100 * engines[1].costs.kernels.profile["engine.request_s"].value)
    assert verl > generic == given_
    assert [any("no host time" in note for note in engine.notes) for engine in engines] == [True, False, True]


def test_gemms_are_as_measured_without_the_factors_of_training():
    kernels = engine_of().costs.kernels
    measured = kernels.profile.estimate("gemm.bf16", {"m": 64, "n": 4096, "k": 4096}, limits=kernels.limits)
    served, trained = (
        replace(kernels, served=served).estimate("gemm", (64, 4096, 4096), 0, "bf16").seconds[0]
        for served in (True, False)
    )

    assert served == measured.seconds[0]
    assert trained == pytest.approx(served / kernels.profile.value("gemm.training_rate"))


def test_more_experts_are_read_as_more_requests_touch_them():
    """8 of 128 experts for a request; with many requests all of them, and no more."""
    costs = engine_of("qwen3-30b-a3b", tp=1).costs
    one, few, many, most = (
        sum(part[1] for part in costs.layers(tokens) if part[0] == "experts") for tokens in (1, 4, 64, 128)
    )

    assert one < few < many
    assert most - many < (few - one) / 3


# Where engines are

MIX = {"mix": [{"base": "dgx-h100", "nodes": 1}, {"base": "dgx-a100", "nodes": 1}]}


def cycle_on(cluster: Any, nodes: int, update: dict[str, Any], cycle: dict[str, Any], tp: int = 1) -> ResolvedCycle:
    """A cycle whose update is simulated, with trainers apart from the engines."""
    return ResolvedCycle(check_question({
        "kind": "rl_cycle", "cluster": cluster, "nodes": nodes, "model": {"preset": "qwen3-8b"}, "update": update,
        "cycle": {"placement": "disaggregated", "steps": 1, **cycle},
        "rollout": {"requests": 64, "length": {"kind": "fixed", "tokens": 400}, "engine": {"tp": tp}},
    }))  # fmt: skip


@pytest.mark.parametrize(
    ("method", "rolls", "trains"), [("single_sender", "a100", "h100"), ("broadcast", "h100", "a100")]
)
def test_engines_and_training_are_priced_on_the_nodes_that_they_are_on(method, rolls, trains):
    """Trainers that send are the first node of the two; beside parameter servers they are the last one."""
    cycle = {"rollout_nodes": 1, "train": {"parallel": {"tp": 2}}}
    mixed = cycle_on(MIX, 2, {"method": method}, cycle)
    alone, step = (cycle_on(f"dgx-{kind}", 2, {"method": method}, cycle) for kind in (rolls, trains))

    assert mixed.engine.pace == alone.engine.pace
    assert mixed.training.seconds == step.training.seconds


def test_an_engine_over_two_nodes_exchanges_between_them():
    update = {"method": "single_sender", "inference": {"gpus": 8}}
    inside, across = (
        cycle_on("h100-hgx", 2, {**update, "trainer": {"gpus": gpus}}, {"train_time": 1}, tp=8) for gpus in (8, 4)
    )
    halves = cycle_on(
        {"base": "h100-hgx", "gpus_per_node": 4}, 4, {**update, "trainer": {"gpus": 8}}, {"train_time": 1}, 8
    )

    assert inside.engine.costs.step(64, 200).seconds < across.engine.costs.step(64, 200).seconds
    assert across.engine.costs.step(64, 200).seconds == pytest.approx(
        halves.engine.costs.step(64, 200).seconds, rel=0.1
    )


def test_gpus_of_several_kinds_in_an_engine_are_one_line():
    update = {"method": "single_sender", "trainer": {"gpus": 4}, "inference": {"gpus": 8}}
    with pytest.raises(UserError) as error:
        _ = cycle_on(MIX, 2, update, {"train_time": 1}, tp=8).engine

    assert error.value.faults == (
        "scenario: rollout.engine.tp = 8: an engine has GPUs of one kind, not H100 SXM and A100 SXM 80GB",
    )


def test_training_beside_a_mix_of_nodes_is_one_line():
    with pytest.raises(UserError) as error:
        _ = cycle_on(MIX, 2, {}, {"train": {}, "trainer_gpus": 8}).training

    assert error.value.faults == (
        "scenario: cycle.trainer_gpus = 8: are beside a cluster of several kinds of nodes, so theirs is not known: "
        "see cycle.rollout_nodes",
    )


@pytest.mark.parametrize(("cluster", "engine", "line"), [
    ("gh200", {}, "cluster.device = 'GH200 96GB': no profile has an engine's kernels on it: say what it is `like`, or "
     "give rollout.token_time"),
    ("dgx-a100", {"dtype": "fp8"},
     "rollout.engine.dtype = 'fp8': A100 SXM 80GB computes in fp32, tf32, bf16, fp16, int8"),
    ("dgx-v100", {}, "rollout.engine.dtype = 'bf16': V100 SXM2 32GB computes in fp32, fp16, int8"),
])  # fmt: skip
def test_a_device_that_has_no_kernels_or_no_such_type_is_one_line(cluster, engine, line):
    with pytest.raises(UserError) as error:
        simulate(check_question(cycle(tp=1, **engine) | {"cluster": cluster}))

    assert error.value.faults == (f"scenario: {line}",)


def test_engines_on_several_kinds_of_gpus_decode_as_the_slowest():
    table = cycle(tp=1) | {"cluster": MIX, "nodes": 2}
    mixed = ResolvedCycle(check_question(table))
    slow = ResolvedCycle(check_question({**table, "cluster": "dgx-a100"}))

    assert mixed.engine.pace.seconds(16) == slow.engine.pace.seconds(16)
    assert any("engines are not alike" in note for note in notes_of(mixed))


# Memory


@pytest.mark.parametrize("model", ["qwen3-8b", "qwen3-30b-a3b", "llama3-70b", "qwen3-0.6b", "gpt-oss-20b"])
def test_one_rank_holds_all_parameters(model):
    spec = preset(model, "test", None)

    assert EngineShape(spec).weight_bytes == 2 * total_params(spec)


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallel_ranks_hold_equal_parts_and_copies_of_norms(tp):
    spec = preset("qwen3-30b-a3b", "test", None)
    whole, part = EngineShape(spec).weight_bytes, EngineShape(spec, tp=tp).weight_bytes

    assert whole / tp < part < 1.01 * whole / tp
    assert EngineShape(spec, tp=tp, ep=tp).weight_bytes == part  # experts spread instead of cut


@pytest.mark.parametrize(
    ("model", "tp", "expected"),
    [
        ("qwen3-8b", 1, 36 * 2 * 8 * 128 * 2),
        ("qwen3-8b", 4, 36 * 2 * 2 * 128 * 2),
        ("qwen3-8b", 16, 36 * 2 * 1 * 128 * 2),  # 8 heads of keys: two ranks have the same one
        ("deepseek-v3", 1, 61 * (512 + 64) * 2),
        ("deepseek-v3", 16, 61 * (512 + 64) * 2),  # each rank has the latents
    ],
)
def test_bytes_of_a_token_in_the_cache(model, tp, expected):
    assert EngineShape(preset(model, "test", None), tp=tp).token_bytes == expected


def test_the_batch_limit_is_the_free_memory_over_the_bytes_of_a_request():
    engine = engine_of(tp=1)
    free = 0.9 * engine.device_bytes - engine.context_bytes - engine.weight_bytes - engine.working_bytes

    assert engine.room == floor(free / (engine.shape.token_bytes * (100 + 400)))


def test_a_cache_in_8_bits_holds_twice_as_much():
    assert engine_of(kv_dtype="fp8").capacity == pytest.approx(2 * engine_of().capacity)


@pytest.mark.parametrize(
    ("model", "engine", "line"),
    [
        ("llama3-70b", {"tp": 1}, "rollout.engine.tp = 1: 131 GiB of weights leave"),
        ("qwen3-8b", {"ep": 8}, "rollout.engine.ep = 8: the model has no experts"),
        ("qwen3-30b-a3b", {"ep": 4}, "rollout.engine.ep = 4: expected 1 or tp x dp = 8"),
        ("qwen3-30b-a3b", {"tp": 4, "dp": 2}, "rollout.engine.dp = 2: is for experts that are spread"),
        (
            "qwen3-30b-a3b",
            {"tp": 16},
            "rollout.engine.tp = 16: an engine has 16 GPUs, which must divide the 8 that roll out",
        ),
        ("mamba2-2.7b", {}, "its decoding is not modelled: layers that replace attention"),
    ],
)
def test_an_engine_that_cannot_be_is_one_line(model, engine, line):
    with pytest.raises(UserError) as error:
        simulate(check_question(cycle(model, **engine)))

    assert line in str(error.value)
    assert len(error.value.faults) == 1


@pytest.mark.parametrize("update_time", [None, 2])
def test_models_of_equal_tensors_that_decode_otherwise_have_hashes_of_their_own(update_time):
    table = cycle("qwen3-30b-a3b")
    table["cycle"] = {"train_time": 4, "steps": 2, "update_time": update_time}
    models = [{"preset": "qwen3-30b-a3b", "overrides": {"num_experts_per_tok": each}} for each in (1, 8, 32)]
    hashes = {ResolvedCycle(check_question({**table, "model": model})).hash for model in models}

    assert len(hashes) == 3


# A rollout


def test_a_rollout_is_the_sum_of_its_steps():
    """Step k reads the prompt and k tokens of both requests; the continuous sum counts half a token more of each."""
    steps = [1 + 0.001 * 2 * (50 + token) for token in range(200)]
    pool, pace = Pool(1, 4, roofline()), roofline()
    pool.add(0, [200, 200], [50, 50])
    pool.deal(0.0)

    assert pool.next_end_s() == pytest.approx(sum(steps) + 200 * 0.001 * 2 / 2)
    assert pace.span_s(2, 100, 200) == pool.next_end_s()


@examples(60)
@given(st.integers(1, 300), st.floats(0, 1e5), st.floats(0.01, 5000))
def test_tokens_in_a_span_are_its_inverse(running, cached, tokens):
    pace = roofline(replicas=3, window=100, windowed_s=0.002)

    assert pace.tokens(running, cached, pace.span_s(running, cached, tokens)) == pytest.approx(tokens)


def test_a_window_is_charged_until_requests_fill_it():
    """2 requests of 50 tokens get 200 more, and read 50, 51, ... 100, 100, ... tokens each in layers with a window."""
    pace = roofline(cached_s=0.0, window=100, windowed_s=0.001)
    read = (50 + 100) / 2 * 50 + 100 * 150

    assert pace.span_s(2, 2 * 50, 200) == pytest.approx(200 + 0.001 * 2 * read)


SHARED = {"replicas": 8, "layers": Curve((1, 1001), (0.0, 10.0)), "attention": Curve((1, 1001), (0.001, 1.001))}


@pytest.mark.parametrize(("running", "busiest"), [(1, 1), (8, 1), (9, 2), (16, 2)])
def test_replicas_step_together_as_the_one_with_most_requests(running, busiest):
    """A replica that is alone reads all of its cache, and each has a scheduler of its own."""
    alone, shared = (roofline(request_s=0.1, window=50, windowed_s=0.01, replicas=each) for each in (1, 8))

    assert shared.span_s(running, running * 20, 100) == pytest.approx(alone.span_s(busiest, busiest * 20, 100))


@pytest.mark.parametrize("running", [1, 4, 12, 64])
def test_the_step_that_is_told_is_the_step_that_is_simulated(running):
    served = engine_of("qwen3-30b-a3b", tp=2, dp=4, ep=8, request_time=1e-4, step_time=0.001)
    step_s = served.costs.step(running, 3000).seconds

    assert served.pace.span_s(running, 3000 * running, 1e-3) / 1e-3 == pytest.approx(step_s, rel=0.01)


@pytest.mark.parametrize(("model", "tp"), [("qwen3-8b", 1), ("qwen3-8b", 8), ("qwen3-30b-a3b", 2)])
def test_steps_between_sizes_that_are_priced_take_what_they_are_priced_at(model, tp):
    """GEMMs become longer at once where a tile more is needed: at 129 rows, at 257, and so on."""
    served = engine_of(model, tp=tp)
    sizes = (1, 3, 11, 100, 129, 200, 257, 320, 385, 500, 513, 700, 1025, 1300, 3000)
    priced = [sum(part[1] for part in served.costs.layers(size)) for size in sizes]

    assert [served.pace.layers.at(size) for size in sizes] == pytest.approx(priced, rel=0.02)


@pytest.mark.parametrize("prompts", [1, 8])
def test_a_prompt_is_prefilled_by_one_replica(prompts):
    assert roofline(**SHARED).prefill_s(prompts, [500.0] * prompts) == pytest.approx(499 * 0.01 + 0.001 * 500**2)


def test_each_replica_prefills_a_prompt_by_itself():
    """16 answers to one prompt are 2 on each of 8 replicas, of which one is shared."""
    ends = []
    for samples, answers in ((1, 8), (8, 8), (16, 16)):
        pool = Pool(1, 64, roofline(cached_s=0.0, **SHARED), samples)
        pool.add(0, [10] * answers, [500] * answers)
        pool.deal(0.0)
        ends.append(pool.engines[0].since_s)

    assert ends == [pytest.approx(499 * 0.01 + 0.001 * 500**2)] * 3


def test_a_prompt_that_all_replicas_know_needs_no_prefill():
    pool = Pool(1, 64, roofline(cached_s=0.0, **SHARED), samples=16)
    pool.add(0, [10] * 8 + [20] * 8, [500] * 16)
    pool.slots = 8
    pool.deal(0.0)
    pool.finish(now_s := pool.next_end_s())
    pool.deal(now_s)

    assert pool.next_end_s() == pytest.approx(now_s + 20)


def test_steps_without_graphs_take_the_issue_of_their_kernels_until_the_device_takes_longer():
    """A request reads 1 ms for each of its tokens: from the 500th on that takes longer than the host's 1.5 s."""
    pace = roofline(issue_s=1.5, graph_batch=0)

    assert pace.span_s(1, 0, 1000) == pytest.approx(500 * 1.5 + 500 * 1.75)
    assert pace.span_s(1, 0, 200) == pytest.approx(200 * 1.5)
    assert pace.tokens(1, 0, 500 * 1.5 + 500 * 1.75) == pytest.approx(1000)
    assert replace(pace, graph_batch=1).span_s(1, 0, 1000) == pytest.approx(1500)


def test_without_reading_a_cache_it_is_a_constant_pace():
    assert rollout_s([3, 9, 4, 1], engines=1, slots=4, pace=roofline(cached_s=0.0)) == 9.0


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("halted_s", [0, 5, 9])
def test_a_halt_amid_a_prefill_leaves_the_rest_of_it_to_do(halted_s, recompute):
    """1,000 tokens take 10 s, of which some are done; with new weights they are done again."""
    pool = Pool(1, 4, roofline(cached_s=0.0, layers=Curve((1, 1001), (0.01, 10.01)), redoes=True))
    pool.add(0, [7], [1000])
    pool.deal(0.0)
    pool.halt(halted_s)
    pool.go_on(20.0, recompute)

    assert pool.next_end_s() == pytest.approx(20 + (10 if recompute else 9.99 - halted_s) + 7 * 1.01)


@pytest.mark.parametrize("answer", [1, 2, 100])
@pytest.mark.parametrize("prompt", [1, 500, 1000, 2500])
def test_the_step_that_ends_a_prompt_makes_the_first_token(prompt, answer):
    """A request alone: 10 ms for each token of its prompt, then a step for each token but the first."""
    pool = Pool(
        1, 4, roofline(cached_s=0.0, head=Curve((1,), (0.0,)), layers=Curve((0, 1000), (0.0, 10.0)), chunk=1000)
    )
    pool.add(0, [answer], [prompt])
    pool.deal(0.0)

    assert pool.next_end_s() == pytest.approx(0.01 * prompt + 0.01 * (answer - 1))


def test_prompts_are_prefilled_once_for_all_their_answers():
    prefill = roofline(cached_s=0.0, layers=Curve((1, 1001), (0.5, 10.5)))
    ends = []
    for samples in (1, 4):
        pool = Pool(1, 8, prefill, samples)
        pool.add(0, [10] * 4, [100] * 4)
        pool.deal(0.0)
        ends.append(pool.next_end_s())

    assert ends[0] - ends[1] == pytest.approx(297 * 0.01)  # 10 ms for each token, and of 3 prompts the last one alone


@pytest.mark.parametrize(("samples", "prompts"), [(1, 4), (4, 1)])
def test_a_cache_that_is_computed_again_is_that_of_each_request_by_itself(samples, prompts):
    """4 requests of 100 + 20 tokens: 10 ms for each that is not shared, and 1 ms for its attention to each."""
    by_size = {"layers": Curve((1, 1001), (0.01, 10.01)), "attention": Curve((1, 1001), (0.001, 1.001))}
    pace = roofline(cached_s=0.0, redoes=True, **by_size)
    cached = [120] * prompts + [20] * (4 - prompts)
    pool = Pool(1, 4, replace(pace, layers=Curve((1,), (0.0,)), attention=Curve((1,), (0.0,))), samples)
    pool.add(0, [50] * 4, [100] * 4)
    pool.deal(0.0)
    pool.halt(20.0)
    pool.pace = pace
    pool.go_on(20.0, recompute=True)

    assert pool.engines[0].since_s == pytest.approx(20 + 0.01 * sum(cached) + 0.001 * sum(n**2 for n in cached))


def test_the_attention_of_a_prompt_grows_with_its_square_however_long_it_is():
    """Beyond 8,192 tokens, a step's most."""
    attention = engine_of("qwen3-8b", max_tokens=8192).pace.attention

    assert attention.at(131072) / attention.at(65536) == pytest.approx(2, rel=0.05)


def test_the_attention_of_a_prompt_between_two_sizes_is_what_it_is_priced_at():
    served = engine_of("qwen3-8b", max_tokens=8192)
    whole_s = sum(part[1] for part in served.costs.attention(12288))

    assert 12288 * served.pace.attention.at(12288) == pytest.approx(whole_s, rel=0.03)


@pytest.mark.parametrize("said", [{"values": [100, 100_000], "weights": [99, 1]}, {"mean": 3000, "p99": 40_000}])
def test_a_request_that_is_longer_than_a_whole_kv_cache_is_one_line(said):
    """On average they fit, but of 512 requests of each of two steps at least one does not."""
    table = cycle(tp=1, memory_fraction=0.35)
    table["rollout"] |= {"requests": 512, "length": {"kind": "histogram" if "values" in said else "lognormal", **said}}
    with pytest.raises(UserError) as error:
        simulate(check_question(table))

    assert "rollout.max_tokens = None: a request has" in str(error.value)
    assert "and an engine's KV cache room for" in str(error.value)


@pytest.mark.parametrize("slots", [8, 64])
def test_a_full_cache_sends_the_youngest_request_back_and_all_are_decoded(slots):
    pace = roofline(capacity=1000.0, admits=990.0)
    pool, now_s, done = Pool(1, slots, pace), 0.0, []
    pool.add(0, [200] * 16, [20] * 16)
    pool.deal(now_s)
    while pool.running:
        now_s = pool.next_end_s()
        done += [number for number, _ in pool.finish(now_s)]
        pool.deal(now_s)
        assert pool.engines[0].cached <= 1000 + 1e-6

    assert sorted(done) == list(range(16))
    assert pool.preempted > 0
    assert pool.engines[0].cached == pytest.approx(0, abs=1e-6)


def test_an_engine_without_room_holds_up_none_that_has_some():
    pool = Pool(2, 8, roofline(cached_s=0.0, capacity=100.0, admits=99.0))
    pool.add(0, [5] * 4, [90, 10, 20, 80])

    assert pool.deal(0.0) == [(0, 0), (1, 1), (2, 1)]
    assert pool.deal(4.0) == []  # 80 tokens have room nowhere
    assert pool.finish(pool.next_end_s()) == [(0, 0), (1, 1), (2, 1)]
    assert pool.deal(5.0) == [(3, 0)]


def test_a_request_with_room_starts_on_an_engine_that_had_none_for_the_one_before():
    """80 tokens have room on the second engine alone; the next ones go to the first again."""
    pool = Pool(2, 8, roofline(cached_s=0.0, capacity=100.0, admits=99.0))
    pool.add(0, [5] * 5, [60, 5, 5, 80, 10])

    assert pool.deal(0.0) == [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0)]


def test_a_request_that_is_sent_back_waits_for_room_on_its_engine():
    """2 requests of 40 + 10 tokens fill a cache; the other engine has been idle since 5 s."""
    pool, now_s, dealt = Pool(2, 8, roofline(cached_s=0.0, capacity=100.0, admits=99.0)), 0.0, {}
    pool.add(0, [30, 5, 30], [40, 10, 40])
    for _ in range(6):
        dealt |= {number: (engine, now_s) for number, engine in pool.deal(now_s)}
        if pool.running:
            pool.finish(now_s := pool.next_end_s())

    assert pool.preempted == 1
    assert dealt == {0: (0, 0.0), 1: (1, 0.0), 2: (0, 30.0)}
    assert now_s == 30 + 20


@examples(40)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(100, 400))
def test_any_cache_ends_all_requests_and_a_smaller_one_is_never_faster(lengths, capacity):
    small = rollout_s(lengths, 1, 16, roofline(cached_s=0.0, capacity=float(capacity), admits=0.99 * capacity))

    assert small >= rollout_s(lengths, 1, 16, roofline(cached_s=0.0)) - 1e-6


def test_the_room_of_a_cache_bounds_the_slots_that_a_batch_can_fill():
    rollouts = Rollouts(100, 2, 64, roofline(), Lengths.constant(10), room=20)

    assert rollouts.usable == 40


def test_equal_prompts_have_equal_lengths():
    rollouts = Rollouts(6, 1, 8, roofline(), Lengths.constant(5), prompts=Lengths.lognormal(100, 900), samples=3)
    drawn = rollouts.draw_prompts(0)

    assert drawn[:3] == [drawn[0]] * 3
    assert drawn[3:] == [drawn[3]] * 3
    assert drawn != rollouts.draw_prompts(1)
