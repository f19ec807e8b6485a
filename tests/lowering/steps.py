"""Small training steps for the tests of this folder: scenarios by their tables, ops by name, costs by hand."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from runcast.simulator.base.memo import Memo
from runcast.simulator.costs import Costs, kind_costs
from runcast.simulator.engine import simulate
from runcast.simulator.profile import load
from runcast.simulator.program import Program
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.resolve import ResolvedTrain
from runcast.simulator.timeline import Timeline

HIDDEN, LAYERS, HEADS, KV_HEADS, DIM, INTER, WORDS, SEQ = 64, 4, 8, 4, 8, 128, 512, 32
DENSE = {
    "preset": "llama3-8b",
    "overrides": {
        "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "head_dim": DIM,
        "num_key_value_heads": KV_HEADS, "intermediate_size": INTER, "vocab_size": WORDS,
    },
}  # fmt: skip
EXPERTS, TOP_K, EXPERT_INTER = 8, 2, 32
MOE = {
    "preset": "qwen3-30b-a3b",
    "overrides": DENSE["overrides"]
    | {"num_experts": EXPERTS, "num_experts_per_tok": TOP_K, "moe_intermediate_size": EXPERT_INTER},
}
LAYER = HIDDEN * DIM * (2 * HEADS + 2 * KV_HEADS) + 3 * HIDDEN * INTER + 2 * HIDDEN
"""Parameters of a layer of the dense model."""
TABLE = WORDS * HIDDEN
"""Parameters of its embedding, and of its output matrix."""

MEMOS: dict[object, Memo] = defaultdict(Memo)
"""What steps have in common is made once, apart with fitted numbers and without (`unfitted`)."""


def resolved(gpus: int = 1, micro_batches: int = 1, model: Mapping[str, Any] = DENSE, **tables: Any) -> ResolvedTrain:
    """A step on one node of so many GPUs, or on nodes of 8; `layers` changes the model's."""
    model = {**model, "overrides": {**model["overrides"], **tables.pop("overrides", {})}}
    parallel = tables.get("parallel", {})
    dp = gpus // (parallel.get("tp", 1) * parallel.get("cp", 1) * parallel.get("pp", 1))
    batch = {"global": max(dp, 1) * micro_batches, "seq_len": SEQ, **tables.pop("batch", {})}
    one_node = {"base": "dgx-h100", "gpus_per_node": min(gpus, 8)}
    given = {"kind": "train_step", "cluster": one_node, "nodes": -(-gpus // 8), "model": model, "batch": batch}
    return ResolvedTrain(check_train(given | tables), memo=MEMOS[load.fitted_parameters])


def program(*given: Any, **tables: Any) -> Program:
    """What happens in it."""
    return resolved(*given, **tables).program


def labels(program: Program) -> np.ndarray:
    """The name of every op without where it belongs."""
    return np.array([program.names._labels[i] for i in program.names._label])


def ops(program: Program, label: str = "", lane: str = "", kind: str = "") -> list[int]:
    """Ops by label, name of their first lane, or kind."""
    first = program.lanes_of.values[program.lanes_of.start[:-1]]
    found = np.ones(len(program), bool)
    if label:
        found &= labels(program) == label
    if lane:
        found &= np.array([lane_.name for lane_ in program.lanes])[first] == lane
    if kind:
        found &= np.array(program.kinds)[program.kind] == kind
    return np.flatnonzero(found).tolist()


def costs(program: Program, seconds: Mapping[str, float]) -> Costs:
    """Seconds by label where one is given, else by kind, else 0."""
    of_kind = kind_costs(program, seconds)
    work = [seconds.get(label, of_kind.work_s[op]) for op, label in enumerate(labels(program).tolist())]
    return replace(of_kind, work_s=np.array(work))


def seconds(forward: float = 1.0, inward: float = 2.0, weights: float = 0.0, **others: float) -> dict[str, float]:
    """A layer's forward, input gradient and weight gradient; further labels or kinds by name, _ for a space."""
    return {"attention": forward, "attention_dgrad": inward, "proj_wgrad": weights} | {
        name.replace("__", " "): value for name, value in others.items()
    }


def run(program: Program, seconds: Mapping[str, float]) -> Timeline:
    """When what happens at these seconds."""
    return simulate(program, costs(program, seconds))


def makespan(program: Program, seconds: Mapping[str, float]) -> float:
    """How long it takes."""
    return run(program, seconds).makespan_s
