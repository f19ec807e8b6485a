"""Random training plans: models, machines, axes, schedules, types and levers that go together, drawn with a seed."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

from runcast.simulator.base.errors import UserError
from runcast.simulator.scenario import check_train
from runcast.simulator.systems.train_step.resolve import ResolvedTrain
from runcast.simulator.systems.train_step.scenario import TrainScenario

DENSE = ("llama3-8b", "llama3-70b", "llama3-405b", "qwen3-8b", "qwen2.5-32b", "gpt3-13b", "gpt3-175b", "mpt-7b")
SPARSE = ("qwen3-30b-a3b", "qwen3-235b-a22b", "mixtral-8x7b", "deepseek-v3", "kimi-k2", "gpt-oss-120b", "glm-4.5-air")
NAMED = ("llama3-8b", "llama3-70b", "llama3-405b", "qwen3-8b", "qwen3-32b")  # which torchtitan has, too
NAMED_SPARSE = ("qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3", "gpt-oss-120b")
ODD = ("gemma2-9b", "nemotron-h-8b", "falcon-7b")  # of layers that some tools have no words for
MACHINES = ("dgx-h100", "dgx-a100", "dgx-b200", "h800-hgx", "gb200-nvl72", "h20-hgx")
STACKS = ("generic", "generic", "megatron-core", "megatron-bridge", "nanotron", "pytorch-fsdp", "torchtitan")
ADAPTED = (("all-linear",), ("q_proj", "v_proj"), ("qkv", "up"), ("proj", "down"))  # of which PEFT has no third
FORMATS = ("megatron", "torchtitan", "fsdp")


def plans(seed: int, form: str) -> Iterator[TrainScenario]:
    """Endless plans that can be simulated; two of three are drawn from what `form` has words for, and not much else."""
    chance = Random(f"{form} {seed}")
    while True:
        table = _draw(chance, form if chance.random() < 2 / 3 else "")
        with suppress(UserError):
            scenario = check_train(table)
            _ = ResolvedTrain(scenario).plan, ResolvedTrain(scenario).peak_type
            yield scenario


def _draw(chance: Random, form: str) -> dict[str, Any]:
    """A plan, which may not fit its machines or model."""
    one, maybe = chance.choice, lambda share=0.5: chance.random() < share
    sparse, alone, named = maybe(0.4), form == "fsdp", form in ("torchtitan", "fsdp")
    model = one((NAMED_SPARSE if sparse else NAMED) if named else SPARSE if sparse else ODD if maybe(0.1) else DENSE)
    tp, cp, pp = (1 if alone or maybe() else one((2, 4, 8)) for _ in range(3))
    zero = one(
        (0, 1, 2, 3)
        if not form
        else (1, 1, 0, 3, 2)
        if form == "megatron"
        else (3, 3, 0)
        if tp == cp == pp == 1
        else (3,)
    )
    parallel: dict[str, Any] = {"tp": tp, "cp": cp, "pp": pp, "zero": zero}
    if cp > 1:
        parallel["cp_type"] = one(("ring", "all_gather", *(() if form == "torchtitan" else ("ulysses",))))
    if sparse and not alone:
        parallel |= {"ep": one((1, 2, 4, 8)), "etp": one((None, 1))}
    if tp > 1 and not sparse and maybe(0.2):
        parallel["sequence_parallel"] = False
    if zero == 3:
        parallel |= {"reshard": maybe(0.8)} if form != "megatron" else {}
        parallel |= (
            {"sync_each_microbatch": (maybe() or form == "torchtitan") and pp == 1} if form != "megatron" else {}
        )
        parallel |= {"shard": 8} if maybe(0.2) else {}
    if not form and maybe(0.2):
        parallel |= one(({"prefetch": 2}, {"shard_embedding": True}, {"tp_2d": True}, {"order": "cp-tp-ep-dp-pp"}))
    if maybe(0.2):
        parallel |= {"pad_vocab": 128} if form == "megatron" else {"embedding_as_layer": True}
    micro = one((1, 1, 2))
    precision = _precision(chance, parallel, form)
    bases: tuple[dict[str, Any], ...] = (
        ({}, {"base": "nf4"}, {"base": "nf4-double"}) if precision["compute"] == "bf16" else ({},)
    )
    return {
        "kind": "train_step", "cluster": one(MACHINES), "nodes": one((1, 2, 4, 8)), "stack": one(STACKS),
        "level": "kernels" if zero == 3 else "coarse", "model": {"preset": model, "mtp": form in ("", "megatron")},
        "parallel": {key: value for key, value in parallel.items() if value is not None},
        "schedule": _schedule(chance, pp, form), "overlap": _overlap(chance, tp, pp, zero, form),
        "precision": precision, "recompute": _recompute(chance, form, sparse),
        "offload": _offload(chance, form), "experts": _experts(chance, sparse),
        "batch": {"global": micro * one((64, 128, 288)), "micro": micro, "seq_len": one((2048, 4096, 8192))},
        **({"attention": one(("flash-2", "unfused"))} if maybe(0.15) else {}),
        **({"loss": "passes"} if maybe(0.15) else {}),
        **({"bucket": one((20_000_000, "tensor"))} if maybe(0.1) else {}),
        **({"lora": {"rank": 16, "targets": one(ADAPTED)} | one(bases)} if alone and maybe(0.3) else {}),
    }  # fmt: skip


def _schedule(chance: Random, pp: int, form: str) -> dict[str, Any]:
    if pp == 1 or chance.random() < 0.3:
        return {}
    if form in ("torchtitan", "") and chance.random() < 0.2:
        return {"passes": 2}
    others = {"megatron": (), "torchtitan": ("gpipe", "zb-v", "dualpipe-v"), "": ("zb-h1", "dualpipe", "gpipe")}
    name = chance.choice(("interleaved", "interleaved", *others.get(form, ())))
    return {"name": name} | ({"vpp": chance.choice((2, 3, 4, 5))} if name == "interleaved" else {})


def _overlap(chance: Random, tp: int, pp: int, zero: int, form: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if pp > 1 and chance.random() < 0.7 and form in ("", "megatron"):
        found["pp"] = False
    if chance.random() < 0.3 and form in ("", "megatron"):
        found["dp"] = False
    if tp > 1 and chance.random() < 0.3:
        found["tp"] = True
    if zero in (1, 2) and (found.get("dp") is False or chance.random() < 0.2):
        found["params"] = False
    return found | ({"wgrad": True} if chance.random() < 0.1 and form in ("", "megatron") else {})


def _precision(chance: Random, parallel: dict[str, Any], form: str) -> dict[str, Any]:
    known = {"fsdp": ("bf16", "bf16", "fp32"), "torchtitan": ("bf16", "bf16", "fp8", "mxfp8", "fp32")}
    compute = chance.choice(known.get(form, ("bf16", "bf16", "fp16", "fp8", "fp8-block", "mxfp8", "nvfp4", "fp32")))
    found: dict[str, Any] = {"compute": compute}
    if form == "fsdp" and compute == "bf16" and parallel["zero"] == 3:
        found["reduce"] = "bf16"
        found |= {"gradients": "bf16"} if parallel["sync_each_microbatch"] is False else {}
    elif chance.random() < 0.3:
        found |= chance.choice(({"gradients": "bf16"}, {"moments": "bf16"}, {"reduce": "bf16"}, {"master": False}))
    return found


def _recompute(chance: Random, form: str, sparse: bool) -> dict[str, Any]:
    parts = ["layernorm", "core_attn", "mlp", "moe", "shared_experts", "mla_up_proj", "moe_act"]
    modules = chance.sample(parts if sparse or not form else parts[:3], chance.choice((1, 2)))
    selective = ["layernorm", "activation"] if form == "torchtitan" else modules
    ways: list[dict[str, Any]] = [{}, {"mode": "full"}]
    if form != "megatron":
        ways.append({"mode": "full", "early_stop": True})
    if form != "fsdp":
        ways += [{"mode": "full", "layers": 1}, *[{"mode": "selective", "modules": selective}] * 3]
    return chance.choice(ways)


def _offload(chance: Random, form: str) -> dict[str, Any]:
    if chance.random() < 0.8 or form not in ("", "megatron"):
        return {}
    return chance.choice(({"optimizer": True}, {"activations": 0.5}, {"activations": 1.0, "slots": 3}))


def _experts(chance: Random, sparse: bool) -> dict[str, Any]:
    if not sparse or chance.random() < 0.5:
        return {}
    return chance.choice(({"dispatcher": "deepep"}, {"capacity": 1.5}, {"routing": "zipf", "zipf": 0.3}))
