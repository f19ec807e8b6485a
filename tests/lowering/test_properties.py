"""What holds for every plan: nothing is lost, nothing is done twice, and time and memory are what actions need."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runcast.simulator.base.op_kinds import ATTENTION, EXPERTS, PRODUCT, kinds_of_form
from runcast.simulator.costs import kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.insight import split_by_place
from runcast.simulator.models.kernels import Kernel, flop
from runcast.simulator.models.states import recomputation
from runcast.simulator.program import validate
from runcast.simulator.schedules import SCHEDULES
from runcast.simulator.systems.train_step.flop import model_flop
from runcast.simulator.systems.train_step.lower.kept import activation_bytes
from runcast.simulator.timeline.memory import peaks

from ..examples import examples
from .steps import DENSE, LAYERS, MOE, labels, resolved

MODULES = ("core_attn", "layernorm", "activation")
FREEZES = (
    *[None] * 4, {"layers": 2}, {"layers": 2, "embedding": True}, {"layers": "1,3", "head": True},
    {"layers": "all", "embedding": True},
)  # fmt: skip
SECONDS = {"issue": 0.0, "send_recv": 0.1, "all_to_all": 0.3, "all_gather": 0.2, "reduce_scatter": 0.2}


@st.composite
def steps(draw):
    """A step of a small model under any plan that divides."""
    name = draw(st.sampled_from(sorted(SCHEDULES)))
    tp, cp, dp = draw(st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 1, 2), (2, 2, 1), (1, 2, 2)]))
    pp = draw(st.sampled_from([2] if name.startswith("dualpipe") else [1, 2]))
    if name == "interleaved-overlap" or name.startswith(("zb-v", "v-")):
        pp = 2
    micro = draw(st.integers(2, 4)) * 2
    moe = draw(st.booleans())
    parallel = {"tp": tp, "cp": cp, "pp": pp, "zero": draw(st.integers(0, 3))}
    parallel["sequence_parallel"] = moe or draw(st.booleans())
    if cp > 1:
        parallel["cp_type"] = draw(st.sampled_from(["ring", "all_gather", "ulysses"]))
    if moe:
        parallel["ep"] = ep = draw(st.sampled_from([ep for ep in (1, 2, 4) if tp * cp * dp % ep == 0]))
        parallel["etp"] = draw(st.sampled_from([1, None] if tp * cp * dp % (ep * tp) == 0 else [1]))
    schedule = {"name": name} | ({"vpp": 2} if name.startswith("interleaved") else {})
    mode = draw(st.sampled_from(["none", "selective", "full"]))
    recompute = {"mode": mode}
    if mode == "selective":
        modules = st.sampled_from((*MODULES, "moe" if moe else "mlp"))
        recompute["modules"] = draw(st.lists(modules, min_size=1, unique=True))
    overlap = {"wgrad": draw(st.booleans()), "dp": draw(st.booleans())}
    if parallel["zero"] in (1, 2):
        overlap["params"] = draw(st.booleans())
    overlap["tp"] = tp > 1 and parallel["sequence_parallel"] and draw(st.booleans())
    return resolved(
        tp * cp * dp * pp, micro, MOE if moe else DENSE, parallel=parallel, schedule=schedule, recompute=recompute,
        overlap=overlap, offload={"activations": draw(st.sampled_from([0.0, 0.5]))},
        freeze=draw(st.sampled_from(FREEZES)),
    )  # fmt: skip


def timed(step):
    return simulate(step.program, kind_costs(step.program, dict.fromkeys(step.program.kinds, 1.0) | SECONDS))


@examples(40)
@given(steps())
def test_time_lies_between_work_and_nothing_and_splits_without_remainder(step):
    program = validate(step.program)
    made = timed(step)
    for lane in range(len(program.lanes)):
        ops = program.order[lane]
        assert made.makespan_s >= (made.end_s[ops] - made.start_s[ops]).sum() - 1e-9
    split = split_by_place(made)
    assert np.allclose(split.sum(axis=1), made.makespan_s)
    assert split.min() >= -1e-9
    assert simulate(program, kind_costs(program, {})).makespan_s == 0


@examples(40)
@given(steps())
def test_every_layer_is_run_once_per_micro_batch_and_its_weights_are_learned_once(step):
    program, parts, plan = step.program, step.plan.again, step.plan
    names = labels(program)
    steps_of_ring = plan.dims.cp if plan.shard.cp_type == "ring" else 1
    micro = step.microbatches
    again = {layer: micro * (1 + plan.layer(layer).has_gradients) for layer in range(LAYERS)}
    once = dict.fromkeys(range(LAYERS), micro)
    of = {name: Counter(program.tags["layer"][names == name].tolist()) for name in ("attention", "qkv_wgrad", "qkv")}
    attends = again if parts.full or "core_attn" in parts.parts else once
    assert of["attention"] == {layer: count * steps_of_ring for layer, count in attends.items()}
    assert of["qkv_wgrad"] == {layer: micro for layer in range(LAYERS) if plan.spec.kind(layer).learns}
    assert of["qkv"] == (again if parts.full else once)


@examples(40)
@given(steps())
def test_all_ranks_together_do_what_the_model_and_recomputation_need(step):
    program, plan = step.program, step.plan
    place = np.array([lane.place for lane in program.lanes])
    done = 0.0
    for op in np.flatnonzero(program.is_kind(*kinds_of_form(PRODUCT, ATTENTION, EXPERTS))).tolist():
        kernel = Kernel(program.kind_of(op), "", "", tuple(program.shape[op].tolist()), "bf16")
        done += flop(kernel) * len(program.places[place[program.lanes_of[op][0]]].ranks)
    mode = "full" if plan.again.full else "selective"
    per_micro_batch = sum(
        flop(kernel) for n in range(LAYERS) for kernel in recomputation(plan.layer(n), mode, plan.again.parts)
    )
    again = per_micro_batch * step.microbatches * plan.dims.world_size / plan.dims.pp
    expected = model_flop(plan, step.scenario.batch.global_) + again
    assert done == pytest.approx(expected, rel=1e-9)


@examples(40)
@given(steps())
def test_activations_peak_where_the_schedule_says(step):
    frozen_beside = step.scenario.freeze and step.scenario.schedule.name == "interleaved-overlap"
    if step.scenario.offload.activations or frozen_beside:  # a backward may end before its forward keeps anything
        return
    found = peaks(timed(step))
    for rank, row in enumerate(step.grid.rows):
        held = most = 0
        for cell in row:
            held += sum(activation_bytes(step.plan, a.stage) for a in cell if a.kind == "F")
            most = max(most, held)
            held -= sum(activation_bytes(step.plan, a.stage) for a in cell if a.kind in "BW")
        assert found[step.plan.first_rank(rank)].bytes == most


@examples(20)
@given(steps())
def test_more_micro_batches_never_take_less_time(step):
    batch = step.scenario.batch
    more = step.scenario.model_copy(update={"batch": batch.model_copy(update={"global_": 2 * batch.global_})})
    assert timed(type(step)(more)).makespan_s >= timed(step).makespan_s


@examples(40)
@given(steps())
def test_offload_never_raises_what_the_device_holds(step):
    plain = step.scenario.model_copy(update={"offload": step.scenario.offload.model_copy(update={"activations": 0.0})})
    away, there = peaks(timed(step)), peaks(timed(type(step)(plain)))
    assert all(a.bytes <= b.bytes for a, b in zip(away, there, strict=True))
