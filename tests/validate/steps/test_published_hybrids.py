"""Published steps of hybrid models, which are no rows of the ledger: no number was fitted to them."""

import pytest
from runcast.simulator.predict import predict
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.resolve import ResolvedTrain

# model, GPUs, sequences of a micro-batch, seconds: NVIDIA-NeMo/Automodel, docs/performance-summary.mdx (2026-06-12);
# `activation_checkpointing: true` in examples/llm_benchmark/nemotron/
STEPS = [("nemotron-3-nano", 8, 4, 15.614), ("nemotron-3-super", 64, 2, 7.286)]


@pytest.mark.parametrize(("model", "gpus", "micro", "measured_s"), STEPS)
def test_a_published_step_lies_in_its_interval(model, gpus, micro, measured_s):
    """Predicted are 17.2 and 9.1 s."""
    given = {
        "kind": "train_step", "cluster": "dgx-h100", "nodes": gpus // 8, "stack": "nemo-automodel",
        "model": {"preset": model}, "parallel": {"zero": 3, "ep": gpus}, "recompute": {"mode": "full"},
        "batch": {"global": 512, "micro": micro, "seq_len": 4096}, "experts": {"dispatcher": "deepep"},
    }  # fmt: skip
    report = predict(ResolvedTrain(check_train(given))).report
    assert report.interval_low_s <= measured_s <= report.interval_high_s
    assert measured_s == pytest.approx(report.step_time_s, rel=0.25)
