"""Rows of a table of training steps: each as a scenario and its prediction, or with the reason why there is none.

What the table's words stand for, and what a source leaves blank, is in data/validation/training.toml.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

from ....base.errors import UserError
from ....base.files import read_toml
from ....profile import load_stack, stack_names
from ....scenario import check_train
from ....systems.train_step.memory import RankMemory
from ....systems.train_step.resolve import ResolvedTrain
from ....systems.train_step.terms import chain_of
from ..ledger import Case, CellError, Cells, full_name, read_cells, shipped_file
from .answer import Answer, Peak, peak_of, predict_step, rate_fault, time_fault, tokens_fault

MOST_OPS = 150_000
"""Longer steps are predicted at the coarser level, which is as long to 1 % (docs/training.md)."""

_KERNELS_OF_LAYER = 75

TIME, TOKENS = "iter_time_s", "tokens_per_s_per_gpu"
"""Columns of what was measured."""
PREDICTED = ("predicted_s", "interval_low_s", "interval_high_s", "predicted_gib")
"""What a prediction says, in this order; a file of predictions has these columns, `id` and `reason`."""
_DEVICE = {"rank": "fullest", "counts": "device"}
"""What memory is taken for where its convention is not known."""


def shipped_table() -> Path:
    """The ledger that ships with runcast."""
    return shipped_file("training.csv")


@cache
def read_words() -> Mapping[str, Any]:
    """The meanings of words in the shipped table, and notes on its rows: data/validation/training.toml."""
    return read_toml(shipped_table().with_suffix(".toml"))


@dataclass(frozen=True)
class StepCase(Case):
    """A row of training steps; `assumed` is what it left blank and what was taken instead."""

    assumed: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """A key that identifies the measurement."""
        return self.cells.text("id") or str(self.line)

    @property
    def seconds(self) -> float | None:
        """The measured seconds, if the row states them."""
        return self.cells.time(TIME)

    @cached_property
    def resolved(self) -> ResolvedTrain:
        """The row's resolved scenario."""
        assert self.scenario is not None
        return ResolvedTrain(check_train(self.scenario, self.where), self.where)

    def answer(self, values: Mapping[str, float] | None = None, memory: bool = True) -> Answer:
        """The prediction with parameters of its profile and stack changed; `memory` by pipeline rank, or not at all."""
        resolved = self.resolved.restate(values) if values else self.resolved
        return predict_step(resolved, memory, self.cells.text("source"))

    @property
    def memory_convention(self) -> tuple[str, str]:
        """Whose memory was measured, and what it counts, as `peak_of` has it."""
        known, convention = read_words()["memory"], self.cells.text("mem_convention")
        said = next((said for start, said in known.items() if convention.startswith(start)), _DEVICE)
        return said["rank"], said["counts"]

    def peak(self, ranks: Sequence[RankMemory]) -> Peak:
        """The peak of the rank that was measured, as the row's convention counts it."""
        return peak_of(self.resolved, ranks, *self.memory_convention)

    @property
    def tokens_per_s_per_gpu(self) -> float | None:
        """The measured tokens per second of one GPU, if the row states them; a CellError if that is no number."""
        return self.cells.time(TOKENS)

    def fault(self) -> str:
        """Why what was measured cannot be; empty where it can. A UserError if the scenario does not fit."""
        try:
            seconds, tokens = self.seconds, self.tokens_per_s_per_gpu
        except CellError as error:
            return str(error)
        if seconds is not None and (wrong := time_fault(self.resolved, seconds)):
            return f"{TIME} = {self.cells.text(TIME)}: {wrong}"
        if tokens is None:
            return ""
        wrong = rate_fault(self.resolved, tokens) if seconds is None else tokens_fault(self.resolved, seconds, tokens)
        return f"{TOKENS} = {self.cells.text(TOKENS)}: {wrong}" if wrong else ""

    def predict(self) -> dict[str, float]:
        """Seconds with their interval, and memory of the rank that was measured, as the row's convention counts it.

        A UserError if the scenario does not fit, or what was measured cannot be.
        """
        if wrong := self.fault():
            raise UserError(f"{self.where}: {wrong}")
        answer = self.answer()
        said = (answer.seconds, answer.low_s, answer.high_s, self.peak(answer.memory).bytes / 2**30)
        return dict(zip(PREDICTED, said, strict=True))


def training_stacks() -> list[str]:
    """The shipped stacks that rows of training steps ran on."""
    return list(dict.fromkeys(str(entry["stack"]) for entry in read_words()["software"]))


def read_cases(path: Path, stack: str | None = None) -> list[StepCase]:
    """The rows of a file, on the software that each names, or all on one `stack` (a shipped one, or a file).

    Raises:
        UserError: the file cannot be read, holds no rows, lacks a column, or names a row twice; or no such stack.
    """
    required = [column for column in REQUIRED if stack is None or column != "framework"]
    rows = read_cells(path, required, "those of data/validation/training.csv")
    software = None if stack is None else _software_like(read_words(), stack)
    return [_case(read_words(), line, where, cells, software) for line, where, cells in rows]


def _software_like(words: Mapping[str, Any], stack: str) -> dict[str, Any]:
    """The entry for software that rests on a stack, without the cluster that this entry's own rows ran on."""
    chain = [link.of for link in chain_of(load_stack, stack, "--stack")]
    known = {entry["stack"]: entry for entry in reversed(words["software"])}
    found: dict[str, Any] = next((known[of] for of in chain if of in known), {})
    return {key: value for key, value in found.items() if key != "cluster"} | {"stack": full_name(stack)}


def _case(words: Mapping[str, Any], line: int, where: str, cells: Cells, software: dict[str, Any] | None) -> StepCase:
    cells = Cells({**cells, **words["said"].get(cells.get("id", ""), {})})
    try:
        cells.time(TIME)
        scenario, assumed = _scenario(words, cells, _software_of(words, cells) if software is None else software)
    except CellError as error:
        return StepCase(line, cells, None, str(error), where)
    return StepCase(line, cells, scenario, "", where, assumed)


def _software_of(words: Mapping[str, Any], cells: Cells) -> dict[str, Any]:
    """The first entry for the software that a row names, by framework and release.

    A CellError if nothing is known, and no stack has that name.
    """
    framework, release = cells.text("framework"), cells.text("sw_version")
    for entry in words["software"]:
        if entry["framework"] == framework and release.startswith(tuple(entry.get("releases", [""]))):
            return dict(entry)
    if framework in stack_names():
        return {"stack": framework}
    raise CellError(f"framework = {framework!r}: no stack is known for it; name the most similar one: --stack NAME")


def _scenario(
    words: Mapping[str, Any], cells: Cells, software: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    gpu = cells.text("gpu")
    if gpu not in words["gpu"]:
        raise CellError(f"gpu = {gpu!r}: expected one of {', '.join(words['gpu'])}")
    known = words["gpu"][gpu]
    cluster, nodes = cluster_of(cells, known, software.get("cluster"))
    schedule, chunks = schedule_of(cells, words, software)
    parallel = parallel_of(cells, words, software, chunks)
    micro, replicas = cells.positive("mbs"), cells.positive("dp", 1)
    micro_batches = cells.positive("gbs") / (micro * replicas)
    table: dict[str, Any] = {
        "name": cells.text("id"), "kind": "train_step", "cluster": cluster, "nodes": nodes, "stack": software["stack"],
        "model": {"config": config_of(cells, words)}, "parallel": parallel, "schedule": schedule,
        # in whole micro-batches of all replicas: some sources state their own rounding
        "batch": {"global": max(round(micro_batches), 1) * micro * replicas, "micro": micro,
                  "seq_len": cells.positive("seq_len")},
        "precision": {"compute": words["precision"].get(cells.text("precision"), cells.text("precision"))},
        "overlap": _overlap(cells, parallel),
        "level": level_of(micro_batches, cells.positive("layers"), parallel["zero"]),
    }  # fmt: skip
    table |= {"profile": known["profile"]} if "profile" in known else {}
    if (again := recompute_of(cells, words, software)) is not None:
        table["recompute"] = again
    if cells.text("task") == "lora":
        table["lora"] = words["lora"]
    for word, tables in words["flags"].items():  # words of extra_flags that stand for keys of a scenario
        if word in cells.text("extra_flags"):
            table |= {name: {**table.get(name, {}), **keys} for name, keys in tables.items()}
    if schedule.get("name", "interleaved") == "interleaved" and _overlaps_experts(words, cells):
        table["schedule"] = {"name": "interleaved-overlap", "vpp": chunks}
        table["overlap"]["wgrad"] = True
    # how the names of the GPUs begin on which tokens of the row's model go to a rank once
    deepep = words["deepep"].get(cells.text("framework"), {}).get(cells.text("model"), ())
    if parallel.get("ep", 1) == 1:
        table.pop("experts", None)
    elif gpu.startswith(tuple(deepep)):
        table.setdefault("experts", {"dispatcher": "deepep"})
    return table, tuple(_assumed(cells, chunks, known, software))


def level_of(micro_batches: float, layers: int, zero: int) -> str:
    """The level at which a step of so many micro-batches per replica is predicted: the coarser one if it is long."""
    ops = micro_batches * layers * _KERNELS_OF_LAYER
    return "coarse" if ops > MOST_OPS and zero < 3 else "kernels"


def _overlaps_experts(words: Mapping[str, Any], cells: Cells) -> bool:
    """Whether a forward and a backward run side by side, so that exchanges of experts of one hide under the other."""
    if cells.has("overlap_ep"):
        return cells.flag("overlap_ep", False)
    return any(
        all(cells.text(column).startswith(tuple(starts)) for column, starts in recipe.items())
        for recipe in words["overlap_ep"]
    )


def _overlap(cells: Cells, parallel: Mapping[str, Any]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    if cells.has("overlap_dp"):
        found["dp"] = cells.flag("overlap_dp", True)
        if parallel["zero"] in (1, 2):
            found["params"] = found["dp"]
    if cells.text("overlap_tp") in ("1", "async_tp") and parallel["tp"] > 1 and parallel["sequence_parallel"]:
        found["tp"] = True
    return found


def _assumed(cells: Cells, chunks: int, known: Mapping[str, Any], software: Mapping[str, Any]) -> Iterator[str]:
    """Notes on blank cells of the row and the values assumed for them."""
    if not cells.has("recompute"):
        yield f"recompute: what {software['stack']} does"
    if cells.whole("pp", 1) > 1 and not cells.has("vpp"):
        yield f"vpp {chunks}"
    if not cells.has("nics_per_node"):
        yield f"{known['nics']} NICs of {known['gbps']} Gb/s"
    if not cells.has("overlap_dp"):
        yield f"overlap of dp: what {software['stack']} does"
    if cells.text("arch").startswith("moe") and not cells.has("ep"):
        yield f"ep {software.get('ep', 1)}"


# The columns of a row, which are those of data/validation/training.csv, as tables of a scenario.

REQUIRED = (
    "framework", "layers", "hidden", "ffn_hidden", "heads", "vocab", "seq_len", "gpu", "gpus_per_node", "n_gpus",
    "mbs", "gbs", "precision",
)  # fmt: skip
"""Columns without which a table is none of training steps."""

MOST_LAYERS = 10_000


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
    return found


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
    found["sequence_parallel"] = tp > 1 if moe else cells.flag("sp", tp > 1)
    found |= software.get("parallel", {})
    if mode == "fsdp_grad_op":
        found["reshard"] = False
    if moe:
        # Experts are split over tp as all else (Megatron-LM's default), unless that does not divide. Where software
        # always has expert parallelism, a row with ep = 1 is one that does not tell it.
        ep, ranks = cells.positive("ep", 1), tp * found["cp"] * cells.positive("dp", 1)
        ep, etp = software.get("ep", 1) if ep == 1 else ep, cells.positive("etp", tp)
        found |= {"ep": ep, "etp": etp if ranks % (ep * etp) == 0 else 1}
    layers, chunks = cells.whole("layers"), pp * vpp
    if software.get("split") == "cost" and pp > 1:
        found["layers"] = _by_cost(cells, words, pp)
    elif layers % chunks and (layers + 2) % chunks == 0:
        found["embedding_as_layer"] = True
    return found


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
