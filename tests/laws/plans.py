"""Random training steps and weight updates that are small enough to predict by the dozen."""

from typing import Any

from hypothesis import strategies as st

CLUSTERS = ("dgx-h100", "dgx-a100", "h800-hgx", "dgx-b200", "h100-pcie", "l40s-pcie", "gb200-nvl72", "p5-h100-efa")
STACKS = ("generic", "nanotron", "megatron-lm", "torchtitan", "nemo")
DENSE = ("llama3-8b", "qwen2.5-7b", "gpt3-6.7b")
SPARSE = ("qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v2-lite")
SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1", "v-half")
CHUNKS = {"interleaved": 2, "v-half": 2}


@st.composite
def steps(
    draw: st.DrawFn,
    clusters: tuple[str, ...] = CLUSTERS,
    nodes: tuple[int, ...] = (1, 2, 4),
    stacks: tuple[str, ...] = STACKS,
    models: tuple[str, ...] = DENSE + SPARSE,
    pp: tuple[int, ...] = (1, 1, 2, 4),
    zero: tuple[int, ...] = (0, 1, 1, 2, 3),
    seq: tuple[int, ...] = (1024, 2048, 4096),
) -> dict[str, Any]:
    """A training step of 4 to 8 layers; every plan divides."""
    name, many = draw(st.sampled_from(clusters)), draw(st.sampled_from(nodes))
    gpus = many * (4 if name == "gb200-nvl72" else 8)
    model = draw(st.sampled_from(models))
    tp, stages = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from(pp))
    if tp * stages > gpus:
        tp, stages = 1, 1
    dp = gpus // (tp * stages)
    schedule = draw(st.sampled_from(SCHEDULES)) if stages > 1 else "1f1b"
    layers = 8 if stages == 4 else draw(st.sampled_from([4, 8]))
    microbatches = stages * draw(st.sampled_from([1, 2, 4]))
    levels = [level for level in zero if level < 3 or stages == 1]
    parallel: dict[str, Any] = {"tp": tp, "pp": stages, "zero": draw(st.sampled_from(levels))}
    ep = 1
    if model in SPARSE and dp > 1:
        most = 8 if model == "mixtral-8x7b" else 16  # which has no more experts
        ep = draw(st.sampled_from([size for size in (1, 2, 4, 8, 16) if dp % size == 0 and size <= most]))
        parallel["ep"] = ep
    routed = {"experts": {"dispatcher": draw(st.sampled_from(["alltoall", "deepep"]))}} if ep > 1 else {}
    return {
        "kind": "train_step", "cluster": name, "nodes": many, "stack": draw(st.sampled_from(stacks)),
        "model": {"preset": model, "overrides": {"num_hidden_layers": layers}},
        "parallel": parallel, **routed,
        "schedule": {"name": schedule, **({"vpp": CHUNKS[schedule]} if schedule in CHUNKS else {})},
        "batch": {"global": dp * microbatches, "seq_len": draw(st.sampled_from(seq))},
        "recompute": {"mode": draw(st.sampled_from(["none", "selective", "full"]))},
        "overlap": {"dp": draw(st.booleans())},
    }  # fmt: skip


SERVED = ("broadcast", "broadcast", "p2p")
FROM_TRAINERS = ("single_sender", "relays", "all_senders", "stage_heads", "replica_writes", "static_writes", "reshard",
                 "chain", "colocated", "file_system")  # fmt: skip


@st.composite
def updates(draw: st.DrawFn, clusters: tuple[str, ...] = CLUSTERS, nodes: tuple[int, ...] = (2, 4)) -> dict[str, Any]:
    """A weight update of 2 to 8 layers, from parameter servers or from trainers; every plan divides."""
    name, many = draw(st.sampled_from(clusters)), draw(st.sampled_from(nodes))
    served, sparse = draw(st.sampled_from([True, False, False])), draw(st.booleans())
    return {
        "kind": "weight_update", "cluster": name, "nodes": many,
        "stack": draw(st.sampled_from(["checkpoint-engine"] if served else ["slime", "miles", "verl"])),
        "model": {"preset": draw(st.sampled_from(SPARSE if sparse else DENSE)),
                  "overrides": {"num_hidden_layers": draw(st.sampled_from([2, 4, 8]))}},
        "update": _served(draw) if served else _from_trainers(draw, many * (4 if name == "gb200-nvl72" else 8), sparse),
    }  # fmt: skip


def _served(draw: st.DrawFn) -> dict[str, Any]:
    method = draw(st.sampled_from(SERVED))
    return {
        "method": method,
        "bucket": draw(st.sampled_from(["2 GiB", "4 GiB"])),
        "pipeline": draw(st.sampled_from(["two_stage", "serial"] + ["three_stage"] * (method == "broadcast"))),
        "inference": {"tp": draw(st.sampled_from([1, 2, 4]))},
        **({"ranks": draw(st.sampled_from([4, 8]))} if method == "p2p" else {}),
    }


def _from_trainers(draw: st.DrawFn, gpus: int, sparse: bool) -> dict[str, Any]:
    """Half of the GPUs train, or all where engines are on them."""
    tp, ep = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4] if sparse else [1]))
    pp = draw(st.sampled_from([1, 1, 2])) if gpus > 8 else 1
    method = draw(st.sampled_from(FROM_TRAINERS))
    trainers = gpus if method == "colocated" else gpus // 2
    return {
        "method": method,
        "bucket": draw(st.sampled_from(["256 MiB", "2 GiB"])),
        "trainer": {"gpus": trainers, "tp": draw(st.sampled_from([1, 2, 4])), "pp": pp, "ep": ep},
        "inference": {"tp": tp, "ep": draw(st.sampled_from([1, 2, 4] if sparse else [1]))},
    }
