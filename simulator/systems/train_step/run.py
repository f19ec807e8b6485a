"""A whole training run from one step: its time with failures, its goodput, and its cost.

Failures that stop the run come at a constant rate at any time, even while it writes a checkpoint or restarts. Work
since the last checkpoint is then lost, and is done again after a restart (Daly, A higher order estimate of the optimum
checkpoint interval for restart dumps, FGCS 22, 2006; Young, CACM 17, 1974, is its first order).
"""

from dataclasses import dataclass
from math import ceil, exp, expm1, sqrt
from operator import attrgetter

from ...base.units import format_energy, format_usd
from ...report.report import Metric, spending
from ...report.spending import Rates, Spending
from .scenario import Run

_DAY_S = 86_400.0


@dataclass(frozen=True)
class TrainingRun:
    """The expected course of a run; `interval_s` is the work between two checkpoints, None without failures."""

    tokens: float
    steps: int
    step_time_s: float
    interval_s: float | None
    time_s: float
    failures: float
    spent: Spending

    @property
    def goodput(self) -> float:
        """The share of the run's time that is spent on steps whose work is kept."""
        return self.steps * self.step_time_s / self.time_s


OF_RUN = (
    Metric("run_tokens", "1", "tokens of the whole run", of=attrgetter("run.tokens")),
    Metric("run_steps", "1", "its steps", of=attrgetter("run.steps")),
    Metric("time_to_train_s", "s", "the whole run, with failures", "lower", of=attrgetter("run.time_s")),
    Metric("goodput", "1", "share of the run in which it makes progress that it keeps", "higher",
           of=attrgetter("run.goodput")),
    Metric("failures", "1", "how many of them are expected", "lower", of=attrgetter("run.failures")),
    Metric("checkpoint_interval_s", "s", "work between two checkpoints", of=attrgetter("run.interval_s")),
    *spending("run.spent", "for the whole run", "_total"),
)  # fmt: skip
"""The metrics of a whole run in reports."""


def training_run(run: Run, step_tokens: int, step_time_s: float, held: Rates) -> TrainingRun:
    """The expected run of a scenario. Its GPUs are paid from start to end."""
    steps = ceil(run.tokens / step_tokens)
    useful_s = steps * step_time_s
    if run.gpu_mtbf is None:
        return TrainingRun(run.tokens, steps, step_time_s, None, useful_s, 0.0, held.amount(useful_s))
    assert run.checkpoint is not None
    assert run.restart is not None
    mtbf_s = run.gpu_mtbf / held.gpus
    asked_s = run.interval or best_interval_s(run.checkpoint, mtbf_s)
    interval_s = useful_s / max(round(useful_s / asked_s), 1)  # whole intervals
    time_s = expected_s(useful_s, interval_s, run.checkpoint, run.restart, mtbf_s)
    return TrainingRun(run.tokens, steps, step_time_s, interval_s, time_s, time_s / mtbf_s, held.amount(time_s))


def best_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """The work between two checkpoints in seconds that makes a run shortest (Daly 2006, equation 37)."""
    if checkpoint_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = checkpoint_s / (2 * mtbf_s)
    return sqrt(2 * checkpoint_s * mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - checkpoint_s


def expected_s(useful_s: float, interval_s: float, checkpoint_s: float, restart_s: float, mtbf_s: float) -> float:
    """The expected seconds for `useful_s` of work, in intervals that end with a checkpoint (Daly 2006)."""
    each = mtbf_s * exp(restart_s / mtbf_s) * expm1((interval_s + checkpoint_s) / mtbf_s)
    return each * useful_s / interval_s


def run_rows(found: TrainingRun) -> list[tuple[str, str]]:
    """A run in words."""
    spent = []
    if (usd := found.spent.cost_usd) is not None:
        spent.append(format_usd(usd))
    if (energy_j := found.spent.energy_j) is not None:
        spent.append(f"at most {format_energy(energy_j)}")
    calm = "" if found.interval_s is not None else "; no failures are counted, as there is no run.gpu_mtbf"
    rows = [("whole run", f"{_days(found.time_s)} for {_tokens(found.tokens)} in {found.steps:,} steps{calm}")]
    if found.interval_s is not None:
        every = f"{found.failures:,.1f} failures, a checkpoint every {found.interval_s / 60:.3g} min"
        rows.append(("goodput", f"{found.goodput:.1%} of the run's time; {every}"))
    return [*rows, ("run's cost", ", ".join(spent))] if spent else rows


def _days(seconds: float) -> str:
    return f"{seconds / _DAY_S:,.1f} days" if seconds >= _DAY_S else f"{seconds / 3600:.3g} h"


def _tokens(count: float) -> str:
    for scale, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if count >= scale:
            return f"{count / scale:.4g}{name} tokens"
    return f"{count:,.0f} tokens"
