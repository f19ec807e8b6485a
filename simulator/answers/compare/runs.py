"""Sides from real runs: a trace has terms as a report does, a log has totals only."""

from typing import TYPE_CHECKING

from ...base.errors import UserError
from .side import OPENINGS, Drawn, Side, summing

if TYPE_CHECKING:
    from ...formats.traces import Run

OWN = "runcast"
"""The form of traces that a simulation wrote."""
_INPUTS = {
    "world_size": "gpus", "tokens": "tokens", "global_batch": "batch.global", "micro_batch": "batch.micro",
    "seq_len": "batch.seq_len", "vpp": "schedule.vpp", "layers": "model.num_hidden_layers",
    **{axis: f"parallel.{axis}" for axis in ("tp", "cp", "pp", "dp", "ep")},
}  # fmt: skip
"""What a run tells of its question, by the keys of a scenario and the names of a report."""
_METRICS = {"memory_bytes": "peak_memory_bytes", "flop_per_s_per_gpu": "flop_per_s_per_gpu"}


def side_of_run(run: "Run") -> Side:
    """The typical step of a run, or what a simulation's trace shows.

    Raises:
        UserError: it is the trace of an RL cycle, which does not tell its steps apart.
    """
    kind = _kind(run)
    total_s = run.step_s - (_began_s(run) if kind == "weight_update" else 0.0)
    inputs = {name: run.facts[fact] for fact, name in _INPUTS.items() if fact in run.facts}
    metrics = {name: float(run.facts[fact]) for fact, name in _METRICS.items() if fact in run.facts}
    if "tokens" in run.facts:
        metrics["tokens_per_s"] = run.facts["tokens"] / run.step_s
    if {"tokens", "world_size"} <= set(run.facts):
        metrics["tokens_per_s_per_gpu"] = metrics["tokens_per_s"] / run.facts["world_size"]
    return Side(
        where=str(run.path),
        source="trace" if run.form == OWN else "run",
        label=run.path.name,
        kind=kind,
        total_s=total_s,
        terms=summing(run.split_s or {}, total_s),
        inputs=inputs,
        metrics=metrics,
        notes=run.notes,
        drawn=Drawn(run.timeline) if run.timeline is not None else None,
    )


def _kind(run: "Run") -> str:
    """Real runs are training steps; a simulation's trace without a split is of something else."""
    if run.form != OWN or run.split_s is not None:
        return "train_step"
    if run.timeline is not None and "rollout" in run.timeline.program.kinds:
        raise UserError(f"{run.path}: is the trace of an RL cycle: name its report or its scenario instead")
    return "weight_update"


def _began_s(run: "Run") -> float:
    """When the time of an update begins, as its report counts it."""
    if run.timeline is None:
        return 0.0
    kinds = [kind for kind in OPENINGS if kind in run.timeline.program.kinds]
    return run.timeline.span_of(kinds[0])[1] if kinds else 0.0
