"""Random training steps and weight updates that are small enough to predict by the dozen."""

from typing import Any

from hypothesis import strategies as st

CLUSTERS = ("dgx-h100", "dgx-a100", "h800-hgx", "dgx-b200", "h100-pcie", "l40s-pcie", "gb200-nvl72", "p5-h100-efa")
STACKS = ("generic", "nanotron", "megatron-lm", "llm-foundry", "nemo")
DENSE = ("llama3-8b", "qwen2.5-7b", "gpt3-6.7b")
SPARSE = ("qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v2-lite")
SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1", "v-half")
CHUNKS = {"interleaved": 2, "v-half": 2}


@st.composite
def steps(draw: st.DrawFn, clusters: tuple[str, ...] = CLUSTERS, nodes: tuple[int, ...] = (1, 2, 4)) -> dict[str, Any]:
    """A training step of 4 to 8 layers; every plan divides."""
    name, many = draw(st.sampled_from(clusters)), draw(st.sampled_from(nodes))
    gpus = many * (4 if name == "gb200-nvl72" else 8)
    sparse = draw(st.booleans())
    tp, pp = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 1, 2, 4]))
    if tp * pp > gpus:
        tp, pp = 1, 1
    dp = gpus // (tp * pp)
    schedule = draw(st.sampled_from(SCHEDULES)) if pp > 1 else "1f1b"
    layers = 8 if pp == 4 else draw(st.sampled_from([4, 8]))
    microbatches = pp * draw(st.sampled_from([1, 2, 4]))
    parallel: dict[str, Any] = {"tp": tp, "pp": pp, "zero": draw(st.sampled_from([0, 1, 1, 2] + [3] * (pp == 1)))}
    if sparse and dp > 1:
        parallel["ep"] = draw(st.sampled_from([size for size in (1, 2, 4, 8) if dp * tp % size == 0]))
    return {
        "kind": "train_step", "cluster": name, "nodes": many, "stack": draw(st.sampled_from(STACKS)),
        "model": {"preset": draw(st.sampled_from(SPARSE if sparse else DENSE)),
                  "overrides": {"num_hidden_layers": layers}},
        "parallel": parallel,
        "schedule": {"name": schedule, **({"vpp": CHUNKS[schedule]} if schedule in CHUNKS else {})},
        "batch": {"global": dp * microbatches, "seq_len": draw(st.sampled_from([1024, 2048, 4096]))},
        "recompute": {"mode": draw(st.sampled_from(["none", "selective", "full"]))},
        "overlap": {"dp": draw(st.booleans())},
    }  # fmt: skip
