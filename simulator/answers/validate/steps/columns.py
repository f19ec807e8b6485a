"""The columns of a row of training steps, which are those of data/validation/training.csv, as tables of a scenario."""

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from ....base.errors import did_you_mean
from ....base.units import format_count
from ....models import preset, preset_names
from ..ledger import CellError, Cells

PRESET = "preset"
"""The column that names a model, in place of its shape."""
SHAPE = ("layers", "hidden", "ffn_hidden", "heads", "vocab")
UNSHIPPED = (PRESET, "stage_layers", "mtp")
"""Columns that data/validation/training.csv does not have."""
REQUIRED = ("framework", *SHAPE, "seq_len", "gpu", "gpus_per_node", "n_gpus", "mbs", "gbs", "precision")
"""Columns without which a table is none of training steps."""

MOST_LAYERS = 10_000


def fill_shape(cells: Cells) -> Cells:
    """The row with the shape of the preset that it names.

    A CellError for an unknown preset, or if a column of the row says something else.
    """
    if not (name := cells.text(PRESET)):
        return cells
    if name not in preset_names():
        raise CellError(
            f"{PRESET} = {name!r}: {did_you_mean(name, preset_names()) or 'expected one of docs/models.md'}"
        )
    spec = preset(name)
    sizes = {
        "layers": spec.num_hidden_layers, "hidden": spec.hidden_size, "ffn_hidden": spec.intermediate_size,
        "heads": spec.num_attention_heads, "kv_heads": spec.num_key_value_heads, "head_dim": spec.head_dim,
        "vocab": spec.vocab_size,
    }  # fmt: skip
    if spec.moe is not None:
        experts = spec.moe.n_routed_experts, spec.moe.num_experts_per_tok, spec.moe.moe_intermediate_size
        sizes |= dict(zip(("n_experts", "topk", "moe_ffn"), experts, strict=True))
    for column, size in sizes.items():
        if cells.has(column) and cells.whole(column) != size:
            raise CellError(f"{column} = {cells.text(column)}: {PRESET} {name} has {size}")
    arch = ("moe_mla" if spec.mla else "moe") if spec.moe else "dense"
    return Cells({**cells, **{column: str(size) for column, size in sizes.items()}, "arch": arch})


def fill_replicas(cells: Cells) -> Cells:
    """The row with its replicas: where it leaves `dp` blank the GPUs over tp, cp and pp, if these divide them.

    A CellError if one of them is no number above zero.
    """
    ranks = math.prod(cells.positive(axis, 1) for axis in ("tp", "cp", "pp"))
    replicas, rest = divmod(cells.whole("n_gpus"), ranks)
    return cells if cells.has("dp") or rest or not replicas else Cells({**cells, "dp": str(replicas)})


def model_of(cells: Cells, words: Mapping[str, Any]) -> dict[str, Any]:
    """The model: the preset that the row names, else a config of its shape."""
    return {"preset": cells.text(PRESET)} if cells.has(PRESET) else {"config": config_of(cells, words)}


def config_of(cells: Cells, words: Mapping[str, Any]) -> dict[str, Any]:
    """Llama's keys; those of GPT where its activation says so, and of the mixture of experts that the row names.

    A CellError if a size is missing, or the architecture is none that runcast knows.
    """
    arch = cells.text("arch") or "dense"
    if arch not in words["arch"]:
        raise CellError(f"arch = {arch!r}: expected one of {', '.join(words['arch'])}")
    known = words["arch"][arch]
    found = _attention(cells) | _feed_forward(cells, words) | known.get("keys", {})
    found |= {key: cells.whole(column) for key, column in known.get("columns", {}).items()}
    found |= {key: cells.whole(column, 0) for key, column in known.get("columns_or_0", {}).items()}
    if arch == "moe":
        found["mlp_only_layers"] = list(range(cells.whole("n_dense_layers", 0)))
    elif arch == "moe_mla":
        del found["head_dim"], found["num_key_value_heads"]
        found |= {"q_lora_rank": queries} if (queries := cells.whole("mla_q_lora", 0)) else {}
    ahead = cells.whole("mtp", words["mtp"].get(cells.text("framework"), {}).get(cells.text("model"), 0))
    return found | ({"num_nextn_predict_layers": ahead} if ahead else {})


def _attention(cells: Cells) -> dict[str, Any]:
    hidden, heads = cells.positive("hidden"), cells.positive("heads")
    return {
        "model_type": "llama", "hidden_size": hidden, "num_hidden_layers": cells.positive("layers", most=MOST_LAYERS),
        "num_attention_heads": heads, "num_key_value_heads": cells.whole("kv_heads", heads),
        "head_dim": cells.whole("head_dim", hidden // heads), "vocab_size": cells.whole("vocab"),
        "tie_word_embeddings": cells.flag("tied_emb", False),
    }  # fmt: skip


def _feed_forward(cells: Cells, words: Mapping[str, Any]) -> dict[str, Any]:
    """Without a gate the layers are GPT's: LayerNorm, biases, learned positions (squared ReLU: Nemotron's)."""
    kind, known = cells.text("act_fn") or "swiglu", words["act_fn"]
    if kind not in known:
        raise CellError(f"act_fn = {kind!r}: expected one of {', '.join(known)}")
    found: dict[str, Any] = {"intermediate_size": cells.whole("ffn_hidden"), "hidden_act": known[kind]}
    if kind not in words["gated"]:
        found |= {"gated_ffn": False, "norm": "layer", "norm_bias": True}
    if kind == "gelu":
        found |= {"attention_bias": True, "mlp_bias": True, "positions": "learned",
                  "position_embeddings": cells.whole("seq_len")}  # fmt: skip
    return found


_NVL72 = 72
_SEGMENT_TRAYS = 16  # of a rack's 18, whole ones are booked by 16: jobs of 64 x n GPUs


def cluster_of(cells: Cells, known: Mapping[str, Any], base: str | None = None) -> tuple[str | dict[str, Any], int]:
    """The cluster, with what the row states of its own, and the number of nodes.

    `known` says of a GPU: its cluster, NICs per node and Gb/s of each where a row is silent, GPUs per node, and keys
    of the cluster; `base` is another cluster on which the row's software ran.
    """
    each, gpus = cells.whole("gpus_per_node"), cells.whole("n_gpus")
    if not each or not gpus:
        raise CellError("gpus_per_node and n_gpus: expected numbers above zero")
    nodes, rest = divmod(gpus, each)
    if nodes and rest:
        raise CellError(f"n_gpus = {gpus}: expected a multiple of gpus_per_node = {each}")
    stated: dict[str, Any] = dict(known.get("keys", {}))
    nics, gbps = cells.whole("nics_per_node", known["nics"]), cells.number("nic_gbps", known["gbps"])
    if (nics, gbps) != (known["nics"], known["gbps"]) or base:
        stated |= {"nics": nics, "nic": f"{gbps:g} Gb/s"}
    if (per_node := each if nodes else rest) != known["gpus_per_node"]:
        stated["gpus_per_node"] = per_node
    if cells.whole("nvlink_domain", each) == _NVL72 and gpus > _NVL72 and gpus % (4 * _SEGMENT_TRAYS) == 0:
        stated["nvlink_domain_nodes"] = _SEGMENT_TRAYS
    name = base or known["cluster"]
    return ({"base": name, **stated} if stated else name), max(nodes, 1)


def parallel_of(cells: Cells, words: Mapping[str, Any], software: Mapping[str, Any], vpp: int) -> dict[str, Any]:
    """The layout of ranks; `vpp` chunks per pipeline rank."""
    tp, pp, mode = cells.positive("tp", 1), cells.positive("pp", 1), cells.text("dp_mode")
    if mode and mode not in words["dp_mode"]:
        raise CellError(f"dp_mode = {mode!r}: expected one of {', '.join(words['dp_mode'])}")
    found: dict[str, Any] = {"tp": tp, "cp": cells.positive("cp", 1), "pp": pp, "zero": words["dp_mode"].get(mode, 1)}
    moe = cells.text("arch").startswith("moe")
    found["sequence_parallel"] = cells.flag("sp", tp > 1)
    found |= software.get("parallel", {})
    if mode == "fsdp_grad_op":
        found["reshard"] = False
    if moe:
        found |= software.get("moe", {}).get("parallel", {})
        # Experts are split over tp as all else (Megatron-LM's default), unless that does not divide. Where software
        # always has expert parallelism, a row with ep = 1 is one that does not tell it.
        ep, ranks = cells.positive("ep", 1), tp * found["cp"] * cells.positive("dp", 1)
        ep, etp = software.get("ep", 1) if ep == 1 else ep, cells.positive("etp", tp)
        found |= {"ep": ep, "etp": etp if ranks % (ep * etp) == 0 else 1}
    layers, chunks = cells.whole("layers"), pp * vpp
    if cells.has("stage_layers"):
        found["layers"] = _stage_layers(cells, layers, chunks)
    elif software.get("split") == "cost" and pp > 1:
        found["layers"] = _by_cost(cells, words, pp)
    elif chunks > 1 and cells.text("model") in words["short_end"].get(cells.text("framework"), ()):
        found["layers"] = _short_end(layers, chunks)
    elif layers % chunks and (layers + 2) % chunks == 0:
        found["embedding_as_layer"] = True
    return found


def _stage_layers(cells: Cells, layers: int, stages: int) -> list[int]:
    """The layers of each stage as the row lists them, in model order, a chunk of a pipeline rank being a stage."""
    words = cells.text("stage_layers").split()
    counts = [int(word) for word in words if word.isdecimal()]
    if len(counts) != len(words) or len(counts) != stages or sum(counts) != layers:
        expected = f"{format_count(stages, 'whole number')} that add up to layers = {layers}"
        raise CellError(f"stage_layers = {' '.join(words)!r}: expected {expected}")
    return counts


def _short_end(layers: int, stages: int) -> list[int]:
    """As many layers in each stage as in the fullest, and what is left in the last one, which has more beside.

    Where nothing is left for the last stage, the short one is the first.
    """
    each = -(-layers // stages)
    full, left = divmod(layers, each)
    alike, short = full * [each], [left] * (left > 0)
    empty = stages - len(alike) - len(short)
    return [*short, *alike, *empty * [0]] if empty else [*alike, *short]


def _by_cost(cells: Cells, words: Mapping[str, Any], pp: int) -> list[int]:
    """nanotron: blocks in order, the next stage from where the cumulative cost reaches its share; the head is a block.

    Source: huggingface/nanotron, models/base.py, build_model, which goes on one block later where shares divide, and
    may leave the head on an earlier stage. The runs are of a fork ("after_pp_fix" in their names): 16 layers and a head
    of four layers' cost on four stages take the time of five. Costs: models/llama.py, get_block_compute_costs.
    """
    hidden, layers = cells.positive("hidden"), cells.positive("layers", most=MOST_LAYERS)
    matrices = 3 if (cells.text("act_fn") or "swiglu") in words["gated"] else 2
    width = cells.positive("heads") * cells.whole("head_dim", hidden // cells.positive("heads"))
    layer = 4 * width * hidden + matrices * cells.whole("ffn_hidden") * hidden
    costs = [0, *[layer] * layers, 0, cells.whole("vocab") * hidden]  # embedding, blocks, last norm, head
    reached, stage, counts = list(accumulate(costs)), 0, [0] * pp
    for block, cumulative in enumerate(reached):
        counts[stage] += 1 <= block <= layers
        stage += stage < pp - 1 and cumulative * pp >= reached[-1] * (stage + 1)
    return counts


def schedule_of(cells: Cells, words: Mapping[str, Any], software: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The schedule's table, and chunks per pipeline rank."""
    found, chunks = _order_of(cells, words, software)
    return found | _passes_of(cells, software), chunks


def _order_of(cells: Cells, words: Mapping[str, Any], software: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    pp, layers, chunks = cells.positive("pp", 1), cells.positive("layers", most=MOST_LAYERS), cells.whole("vpp", 0)
    said = cells.text("schedule").casefold()
    if pp == 1:
        return {}, 1
    name = words["schedule"].get(said, "")
    if not name and said not in ("", "fsdp"):  # which say nothing of a pipeline
        raise CellError(f"schedule = {said!r}: expected one of {', '.join(words['schedule'])}")
    if not chunks:
        one_each = software.get("vpp") == "layers" and layers % pp == 0
        chunks = layers // pp if one_each else 1
    if name in ("", "1f1b", "interleaved"):
        return ({"name": "interleaved", "vpp": chunks}, chunks) if chunks > 1 else ({"name": "1f1b"}, 1)
    return {"name": name}, 2 if name == "zb-v" else 1


def _passes_of(cells: Cells, software: Mapping[str, Any]) -> dict[str, int]:
    """How often a step fills the pipeline, where grad_accum counts that: it then is less than all micro-batches."""
    if not software.get("passes") or cells.positive("pp", 1) == 1 or not cells.has("grad_accum"):
        return {}
    all_of_them = cells.positive("gbs") / (cells.positive("mbs") * cells.positive("dp", 1))
    passes = cells.positive("grad_accum")
    return {"passes": passes} if 1 < passes < all_of_them else {}


def recompute_of(cells: Cells, words: Mapping[str, Any], software: Mapping[str, Any]) -> dict[str, Any] | None:
    """The recomputation of a row, None if it is not stated; `selective` alone means the software's default.

    A CellError for a word that nobody explains.
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
    if not kind.startswith("selective(") or not set(names) <= set(words["recompute"]):
        raise CellError(f"recompute = {kind!r}: expected none, full, selective, or selective(norm,act,moe,…)")
    return {"mode": "selective", "modules": [words["recompute"][name] for name in names]}


def adapters_of(cells: Cells, words: Mapping[str, Any]) -> dict[str, Any]:
    """The table of adapters if the row's task is LoRA, else nothing; a CellError if the task is no training."""
    if (task := cells.text("task").casefold()) not in ("", "pretrain", "sft", "lora"):
        raise CellError(f"task = {task!r}: expected pretrain, sft or lora")
    return {"lora": words["lora"]} if task == "lora" else {}


_OVERLAPS_TP = {
    "": None, "0": False, "false": False, "1": True, "true": True, "async_tp": True,
    "1 (reduce_scatter async)": None,  # nanotron's, which its stack has
}  # fmt: skip


def overlap_of(cells: Cells, parallel: Mapping[str, Any]) -> dict[str, bool]:
    """What runs beside what, as far as the row states it; a CellError for a word that nobody explains."""
    found: dict[str, bool] = {}
    if cells.has("overlap_dp"):
        found["dp"] = cells.flag("overlap_dp", True)
        if parallel["zero"] in (1, 2):
            found["params"] = found["dp"]
    said = cells.text("overlap_tp").casefold()
    if said not in _OVERLAPS_TP:
        raise CellError(f"overlap_tp = {said!r}: expected one of {', '.join(filter(None, _OVERLAPS_TP))}")
    beside = _OVERLAPS_TP[said]
    if beside is False or (beside and parallel["tp"] > 1):
        found["tp"] = beside
    return found
