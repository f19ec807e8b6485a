"""Steps with attention that has no flash kernel: what a layer takes by hand, what runs again, what is refused."""

from collections import Counter

import numpy as np
import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.costs import UNALIGNED, cost
from runcast.simulator.profile import Estimate, Profile
from runcast.simulator.systems.train_step.flop import model_flop
from runcast.simulator.systems.train_step.lower import activation_parts

from .steps import DIM, HEADS, HIDDEN, INTER, KV_HEADS, SEQ, labels, ops, program, resolved

FLOP_PER_S, BYTES_PER_S = 1e12, 1e9


class Plain(Profile):
    """Products at one rate, all that is bound by memory at another."""

    def estimate(self, kind, features, library=None, *, limits=None):
        if kind.startswith("gemm"):
            seconds = 2 * features["m"] * features["n"] * features["k"] / FLOP_PER_S
        else:
            seconds = features["bytes"] / BYTES_PER_S if kind.startswith("memory") else 0.0
        return Estimate(np.array([seconds]), np.zeros(1), np.zeros(1, np.int64))


def seconds_of(step):
    """What each op of layer 2 takes, by name, forward."""
    aligned = step.profile.set_values(dict.fromkeys(UNALIGNED, 1.0), "heads this small are read by all kernels alike")
    profile = Plain(**{name: getattr(aligned, name) for name in aligned.__dataclass_fields__})
    made = step.program
    work = cost(made, step.cluster, profile, "measured").work_s
    found = Counter()
    for op, label in enumerate(labels(made)):
        if made.tags["layer"][op] == 2 and label != "issue":
            found[label] += work[op]
    return found


@pytest.mark.parametrize(("dropout", "passes"), [(True, 13), (False, 8)])
def test_a_layer_takes_its_products_and_passes(dropout, passes):
    found = seconds_of(resolved(attention="unfused", attention_dropout=dropout))
    square = HEADS * SEQ * SEQ
    product, moved = 2 * square * DIM / FLOP_PER_S, 2 / BYTES_PER_S
    forward = {
        "input_norm": 2 * SEQ * HIDDEN * moved,
        "qkv": 2 * SEQ * HIDDEN * (HEADS + 2 * KV_HEADS) * DIM / FLOP_PER_S,
        "rope": 2 * SEQ * (HEADS + KV_HEADS) * DIM * moved,
        "scores": product,
        "softmax": passes * square / BYTES_PER_S,
        "context": product,
        "proj": 2 * SEQ * HIDDEN * HEADS * DIM / FLOP_PER_S,
        "residual": 2 * 3 * SEQ * HIDDEN * moved,
        "mlp_norm": 2 * SEQ * HIDDEN * moved,
        "up": 2 * SEQ * HIDDEN * 2 * INTER / FLOP_PER_S,
        "activation": 3 * SEQ * INTER * moved,
        "down": 2 * SEQ * HIDDEN * INTER / FLOP_PER_S,
    }
    backward = {"scores_dgrad": 2 * product, "softmax_dgrad": 1.2 * forward["softmax"], "context_dgrad": 2 * product}
    assert {name: found[name] for name in forward} == pytest.approx(forward)
    assert {name: found[name] for name in backward} == pytest.approx(backward, rel=1e-5)
    assert sum(second for name, second in found.items() if not name.endswith("grad")) == pytest.approx(
        sum(forward.values())
    )


def test_model_work_stays_what_the_mask_leaves():
    flash, unfused = (resolved(attention=kind).plan for kind in ("flash", "unfused"))
    for causal in (True, False):
        assert model_flop(unfused, 3, causal) == model_flop(flash, 3, causal)


def test_selective_recomputation_drops_scores_and_runs_them_again():
    again = {"mode": "selective", "modules": ["core_attn"]}
    plain, dropped = (resolved(2, parallel={"tp": 2}, attention="unfused", recompute=r) for r in ({}, again))
    assert activation_parts(plain.plan, 0)["core_attn"] == 4 * 5 * HEADS // 2 * SEQ * SEQ
    assert "core_attn" not in activation_parts(dropped.plan, 0)
    for name in ("scores", "softmax", "context"):
        once, twice = (len(ops(step.program, label=name)) for step in (plain, dropped))
        assert twice == 2 * once > 0
    once, twice = (len(ops(step.program, label="tp all_gather")) for step in (plain, dropped))
    assert once == twice  # queries and keys are kept: nothing is gathered for these products


def test_flash_is_the_default_and_has_no_scores():
    assert ops(program(), label="scores") == []


@pytest.mark.parametrize(("tables", "said"), [
    ({"parallel": {"cp": 2}, "attention": "unfused"}, "attention = 'unfused': scores are not split over ranks by cp"),
    ({"attention_dropout": False}, "attention_dropout = False: goes with attention = 'unfused'"),
    ({"attention": "eager"}, "attention = 'eager': expected 'flash', 'flash-2', 'flash-1' or 'unfused'"),
])  # fmt: skip
def test_what_does_not_fit_is_one_line(tables, said):
    with pytest.raises(UserError) as caught:
        _ = resolved(2, **tables).plan
    assert [said in line for line in caught.value.faults] == [True]
