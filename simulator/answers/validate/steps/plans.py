"""The parallelism, schedule and recomputation columns of a row as tables of a scenario."""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from .cells import CellError, Cells
from .shapes import GATED, MOST_LAYERS

SCHEDULES = {"zb-1p": "zb-h1", "zb-2p": "zb-h2", "zb-v": "zb-v", "1f1b": "1f1b", "1f1b-i": "interleaved",
             "interleaved": "interleaved"}  # fmt: skip
"""Names of schedules in tables, in lower case."""

_NO_PIPELINE = ("", "fsdp")

ZERO = {"": 1, "ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp_full": 3, "fsdp2": 3, "fsdp_grad_op": 3}
"""What is sharded, by dp_mode; `fsdp_grad_op` keeps gathered weights from forward to backward."""

_MODULES = {"moe_act": "activation", "act": "activation", "norm": "layernorm", "layernorm": "layernorm",
            "moe": "moe", "core_attn": "core_attn"}  # fmt: skip


def parallel_of(cells: Cells, software: Mapping[str, Any], vpp: int) -> dict[str, Any]:
    """How ranks are laid out; `vpp` chunks per pipeline rank."""
    tp, pp, mode = cells.positive("tp", 1), cells.positive("pp", 1), cells.text("dp_mode")
    if mode not in ZERO:
        raise CellError(f"dp_mode = {mode!r}: expected one of {', '.join(filter(None, ZERO))}")
    found: dict[str, Any] = {"tp": tp, "cp": cells.positive("cp", 1), "pp": pp, "zero": ZERO[mode]}
    moe = cells.text("arch").startswith("moe")
    found["sequence_parallel"] = tp > 1 if moe else cells.flag("sp", tp > 1)
    found |= software.get("parallel", {})
    if mode == "fsdp_grad_op":
        found["reshard"] = False
    if moe:
        found |= _experts(cells, software, tp)
    return found | _layers(cells, software, pp, vpp)


def _experts(cells: Cells, software: Mapping[str, Any], tp: int) -> dict[str, Any]:
    """Experts are split over tp as all else (Megatron-LM's default), unless that does not divide.

    Where software always has expert parallelism, a row with ep = 1 is one that does not tell it.
    """
    ep, ranks = cells.positive("ep", 1), tp * cells.positive("cp", 1) * cells.positive("dp", 1)
    ep = software.get("ep", 1) if ep == 1 else ep
    etp = cells.positive("etp", tp)
    return {"ep": ep, "etp": etp if ranks % (ep * etp) == 0 else 1}


def _layers(cells: Cells, software: Mapping[str, Any], pp: int, vpp: int) -> dict[str, Any]:
    layers, chunks = cells.whole("layers"), pp * vpp
    if software.get("split") == "cost" and pp > 1:
        return {"layers": _by_cost(cells, pp)}
    as_layers = layers % chunks and (layers + 2) % chunks == 0
    return {"embedding_as_layer": True} if as_layers else {}


def _by_cost(cells: Cells, pp: int) -> list[int]:
    """nanotron: blocks in order, the next stage from where the cumulative cost reaches its share; the head is a block.

    Source: huggingface/nanotron, models/base.py, build_model, which goes on one block later where shares divide, and
    may leave the head on an earlier stage. The runs are of a fork ("after_pp_fix" in their names): 16 layers and a head
    of four layers' cost on four stages take the time of five. Costs: models/llama.py, get_block_compute_costs.
    """
    hidden, layers = cells.positive("hidden"), cells.positive("layers", most=MOST_LAYERS)
    matrices = 3 if (cells.text("act_fn") or "swiglu") in GATED else 2
    width = cells.positive("heads") * cells.whole("head_dim", hidden // cells.positive("heads"))
    layer = 4 * width * hidden + matrices * cells.whole("ffn_hidden") * hidden
    costs = [0, *[layer] * layers, 0, cells.whole("vocab") * hidden]  # embedding, blocks, last norm, head
    reached, stage, counts = list(accumulate(costs)), 0, [0] * pp
    for block, cumulative in enumerate(reached):
        counts[stage] += 1 <= block <= layers
        stage += stage < pp - 1 and cumulative * pp >= reached[-1] * (stage + 1)
    return counts


def schedule_of(cells: Cells, software: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The schedule's table, and chunks per pipeline rank."""
    pp, layers, chunks = cells.positive("pp", 1), cells.positive("layers", most=MOST_LAYERS), cells.whole("vpp", 0)
    said = cells.text("schedule").casefold()
    if pp == 1:
        return {}, 1
    if said not in (*SCHEDULES, *_NO_PIPELINE):
        raise CellError(f"schedule = {said!r}: expected one of {', '.join(SCHEDULES)}")
    name = SCHEDULES.get(said, "")
    if not chunks:
        one_each = software.get("vpp") == "layers" and layers % pp == 0
        chunks = layers // pp if one_each else 1
    if name in ("", "1f1b", "interleaved"):
        return ({"name": "interleaved", "vpp": chunks}, chunks) if chunks > 1 else ({"name": "1f1b"}, 1)
    return {"name": name}, 2 if name == "zb-v" else 1


def recompute_of(cells: Cells, software: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is computed again, None where the row does not say; `selective` alone is what the software means by it.

    Raises:
        CellError: a word that nobody explains.
    """
    kind = cells.text("recompute")
    if not kind or kind == "none":
        return {"mode": kind} if kind else None
    if kind == "full":
        word = software.get("early_stop")
        return {"mode": kind} | ({} if word is None or word not in cells.text("extra_flags") else {"early_stop": True})
    if kind == "selective":
        latent = ["mla_up_proj"] if cells.text("arch") == "moe_mla" else None
        modules = latent or software.get("selective")
        return {"mode": "selective"} | ({"modules": modules} if modules else {})
    if kind == "selective(op)":  # torchtitan: every second product and all that is cheap
        return {"mode": "selective", "modules": ["layernorm", "activation", "mlp"]}
    names = kind.removeprefix("selective(").removesuffix(")").split(",")
    if not kind.startswith("selective(") or not set(names) <= set(_MODULES):
        raise CellError(f"recompute = {kind!r}: expected none, full, selective, or selective(norm,act,moe,…)")
    return {"mode": "selective", "modules": [_MODULES[name] for name in names]}
