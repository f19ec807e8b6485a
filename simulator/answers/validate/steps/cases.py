"""Rows of a table of training steps: each as a scenario and its prediction, or with the reason why there is none.

What the table's words stand for, and what a source leaves blank, is in data/validation/training.toml.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from ....base.errors import UserError
from ....base.files import read_toml
from ....base.memo import Memo
from ....formats.samples import read_table
from ....profile import load_stack, stack_names
from ....scenario import check_train
from ....systems.train_step.memory import RankMemory
from ....systems.train_step.resolve import ResolvedTrain
from ....systems.train_step.terms import chain_of
from ..ledger import Case, CellError, Cells, check_slips, full_name, read_cells, shipped_file
from .answer import (
    Answer,
    Peak,
    flop_fault,
    memory_fault,
    mfu_fault,
    peak_of,
    predict_step,
    rate_fault,
    time_fault,
    tokens_fault,
    tokens_per_s_per_gpu,
)
from .columns import (
    PRESET,
    REQUIRED,
    SHAPE,
    UNSHIPPED,
    adapters_of,
    cluster_of,
    fill_replicas,
    fill_shape,
    model_of,
    overlap_of,
    parallel_of,
    recompute_of,
    schedule_of,
)

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
def row_columns() -> tuple[str, ...]:
    """The columns of a row of which a prediction, or a ledger, reads something."""
    return (*map(str, read_table(shipped_table()).columns.drop("line")), *UNSHIPPED)


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

    @property
    def measured_s(self) -> float | None:
        """The measured seconds: those that the row states, else those that its tokens per second and GPU say."""
        tokens = None if self.seconds is not None else self.tokens_per_s_per_gpu
        return self.seconds if tokens is None else tokens_per_s_per_gpu(self.resolved, 1.0) / tokens

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
            return next(self._faults(), "")
        except CellError as error:
            return str(error)

    def contradictions(self) -> Iterator[str]:
        """What the row states of its ranks and its batch that cannot be; a CellError if a cell is no number."""
        cells = self.cells
        tp, pp, cp, gpus = (cells.positive(name, 1) for name in ("tp", "pp", "cp", "n_gpus"))
        if gpus % (tp * pp * cp):
            yield f"tp {tp} x pp {pp} x cp {cp} = {tp * pp * cp}: expected a divisor of n_gpus = {gpus}"
            return
        if cells.has("dp") and tp * pp * cp * cells.positive("dp") != gpus:
            product = f"tp {tp} x pp {pp} x cp {cp} x dp {cells.text('dp')}"
            yield f"n_gpus = {gpus}: expected {product} = {tp * pp * cp * cells.positive('dp')}"
        micro = cells.positive("mbs") * cells.positive("dp")
        batch = cells.positive("gbs")
        if batch % micro:
            yield f"gbs = {batch}: expected a multiple of mbs x dp = {micro}"
        elif cells.has("grad_accum") and cells.positive("grad_accum") not in (batch // micro, self._passes):
            yield f"grad_accum = {cells.text('grad_accum')}: expected gbs / (mbs x dp) = {batch // micro}"
        if pp == 1 and (chunks := cells.whole("vpp", 1)) > 1:
            yield f"vpp = {chunks}: expected pp above 1"
        if not cells.text("arch").startswith("moe") and (ranks := cells.whole("ep", 1)) > 1:
            yield f"ep = {ranks}: expected a model with experts, which arch says"

    @property
    def _passes(self) -> int:
        """How often its pipeline is filled, which grad_accum may count."""
        return int((self.scenario or {}).get("schedule", {}).get("passes", 1))

    def _faults(self) -> Iterator[str]:
        yield from self.contradictions()
        seconds, resolved = self.seconds, self.resolved
        checks: dict[str, Callable[[float], str | None]] = {
            TIME: partial(time_fault, resolved),
            TOKENS: partial(rate_fault, resolved) if seconds is None else partial(tokens_fault, resolved, seconds),
            "tflops_per_gpu": lambda tera: flop_fault(resolved, self.measured_s, tera * 1e12),
            "mfu_pct": lambda percent: mfu_fault(resolved, self.measured_s, percent),
            "peak_mem_gib": lambda gib: memory_fault(resolved, gib * 2**30),
        }
        for column, check in checks.items():
            value = self.cells.time(column)
            if value is not None and (wrong := check(value)):
                yield f"{column} = {self.cells.text(column)}: {wrong}"

    def predict(self, memo: Memo) -> dict[str, float]:
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
        UserError: the file cannot be read, holds no rows, lacks a column or misspells one, or names a row twice; or no
            such stack.
    """
    check_slips(path, row_columns())
    blank: tuple[str, ...] = ("framework",) if stack is not None else ()
    blank += SHAPE if PRESET in read_table(path) else ()
    required = [column for column in REQUIRED if column not in blank]
    like = "those of data/validation/training.csv (preset stands for sizes, --stack for framework)"
    rows = read_cells(path, required, like)
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
        cells = fill_replicas(fill_shape(cells))
        scenario, assumed = _scenario(words, cells, _software_of(words, cells) if software is None else software)
    except CellError as error:
        return StepCase(line, cells, None, str(error), where)
    return StepCase(line, cells, scenario, "", where, assumed)


def _software_of(words: Mapping[str, Any], cells: Cells) -> dict[str, Any]:
    """The first entry for the software that a row names, by framework, release and GPU.

    A CellError if nothing is known, and no stack has that name.
    """
    framework, starts = cells.text("framework"), {"releases": "sw_version", "gpu": "gpu"}
    for entry in words["software"]:
        if entry["framework"] == framework and all(
            cells.text(column).startswith(tuple(entry.get(key, [""]))) for key, column in starts.items()
        ):
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
        "model": model_of(cells, words), "parallel": parallel, "schedule": schedule,
        "batch": {"global": cells.positive("gbs"), "micro": micro, "seq_len": cells.positive("seq_len")},
        "precision": {"compute": words["precision"].get(cells.text("precision"), cells.text("precision"))},
        "overlap": overlap_of(cells, parallel),
        "level": level_of(micro_batches, cells.positive("layers"), parallel["zero"]),
    }  # fmt: skip
    table |= {"profile": known["profile"]} if "profile" in known else {}
    if (again := recompute_of(cells, words, software)) is not None:
        table["recompute"] = again
    table |= adapters_of(cells, words)
    for word, tables in words["flags"].items():  # words of extra_flags that stand for keys of a scenario
        if word in cells.text("extra_flags"):
            table |= {key: {**table.get(key, {}), **said} if isinstance(said, dict) else said
                      for key, said in tables.items()}  # fmt: skip
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
