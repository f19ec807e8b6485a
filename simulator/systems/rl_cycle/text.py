"""A CycleReport in words: the lines of its summary, and its tables."""

from collections.abc import Iterator

from ...base.units import format_bytes, format_count, format_seconds
from ...report.report import Table, Words, page_tables
from ...report.spending import spending_rows
from ..train_step.text import memory_text
from ..weight_update.report import Report as Update
from ..weight_update.text import memory_text as update_memory
from ..weight_update.text import words as update_words
from .report import CycleReport

_COLUMNS = ("phase", "per step", "share of the step", "critical path", "what")


def words(report: CycleReport) -> Words:
    """The report in words; a page also has the tables of its update."""
    total = sum(report.staleness.values())
    ages = [(f"{age}", f"{count:,} ({count / total:.1%})") for age, count in report.staleness.items()]
    below = [] if report.training is None else [f"training: {report.training.question}"]
    below += [] if report.update is None else [_updated(report.update)]
    return Words(
        answer=f"{format_seconds(report.step_time_s)} per step",
        rows=list(_rows(report)),
        phases=Table("Phases", _COLUMNS, _phases(report)),
        below=below,
        tables=[Table("Staleness", ("versions behind", "requests"), ages), *_of_update(report.update)],
    )


def _rows(report: CycleReport) -> Iterator[tuple[str, str]]:
    p50, p99 = format_seconds(report.step_p50_s), format_seconds(report.step_p99_s)
    steps = format_count(report.steps, "step")
    steps += f" after {report.warmup} of warm-up" if report.warmup else ""
    yield "step time", f"{format_seconds(report.step_time_s)} on average   (p50 {p50}, p99 {p99}; {steps})"
    if (interval_s := report.interval_s) is not None:
        low, high = map(format_seconds, interval_s)
        yield "interval", f"{low} to {high} (90 %), of what is predicted and what cycles leave out"
    yield "throughput", f"{report.requests_per_s:.3g} rollouts/s, {report.tokens_per_s:,.0f} tokens/s"
    length = f"{report.mean_tokens:,.0f} tokens on average, at most {report.longest_tokens:,}"
    yield "rollouts", f"{length}; {report.slots_busy:.0%} of the slots busy while any is"
    if (engine := report.engine) is not None:
        step = f"{format_seconds(engine.step.seconds)} per token with {engine.running:,.0f} requests on an engine"
        sent_back = f"; {engine.preempted:,} times a full one sent a request back" if engine.preempted else ""
        yield "decoding", step
        yield "KV cache", f"{engine.cache_tokens:,} tokens, {engine.cache_requests:,} usual requests{sent_back}"
    yield "pause", f"{format_seconds(report.pause_s)} per step in which engines cannot decode"
    total = sum(report.staleness.values())
    ages = ", ".join(f"{count / total:.0%} at {age}" for age, count in report.staleness.items())
    yield "staleness", f"{report.mean_staleness:.2f} versions on average ({ages})"
    yield "idle", _idle(report)
    if memory := "; ".join(_memory(report)):
        yield "memory", memory
    yield from spending_rows(
        report.rates, (report.spending, "per step"), (report.spending_per_million_tokens, "per million tokens")
    )
    if report.lost_share:
        yield "lost", f"{report.lost_share:.1%} of the tokens, by updates that abort"
    share = report.exposed[report.bound_by] / report.makespan_s
    yield "bound by", f"{report.bound_by}: {share:.0%} of the critical path"


def _memory(report: CycleReport) -> Iterator[str]:
    """Whether what is predicted of a cycle fits."""
    if report.training is not None:
        yield f"training {memory_text(report.training)}"
    if report.update is not None:
        yield f"update {update_memory(report.update)}"


def _updated(update: Update) -> str:
    """The update in one line."""
    low, high = format_seconds(update.interval_low_s), format_seconds(update.interval_high_s)
    size = f"{format_bytes(update.bytes)} to {update.gpus:,} GPUs"
    return f"update: {format_seconds(update.update_time_s)} (90 % interval {low} to {high}), {size}: {update.question}"


def _of_update(update: Update | None) -> list[Table]:
    """The tables of the update, without its notes, which are among the cycle's."""
    tables = [] if update is None else page_tables(update, update_words(update))[:-1]
    return [table._replace(caption=f"Its update: {table.caption}") for table in tables]


def _phases(report: CycleReport) -> list[tuple[str, ...]]:
    """Rows of the table; phases that run at once add up to more than the step."""
    seconds = {
        "rollout": (report.rollout_s, "any slot decodes"),
        "  tail": (report.tail_s, "under half of usable slots"),
        "prepare": (report.prepare_s, "between rollout and training"),
        "train": (report.train_s, "as given" if report.training is None else "predicted"),
        "  drain": (report.drain_s, "until running requests end"),
        "update": (report.update_s, "as given" if report.update is None else "simulated"),
        "switch": (report.switch_s, "GPUs change over"),
    }
    critical = {phase: f"{exposed_s / report.makespan_s:.1%}" for phase, exposed_s in report.exposed.items()}
    rows = [
        (name, format_seconds(value), f"{value / report.step_time_s:.1%}", critical.get(name, ""), what)
        for name, (value, what) in seconds.items()
        if value
    ]
    together = "rollout and train at once" if report.at_once else "one after another"
    return [*rows, ("step", format_seconds(report.step_time_s), "100.0%", "", together)]


def _idle(report: CycleReport) -> str:
    """The idle GPUs, in words."""
    if report.placement == "colocated":
        return f"{report.rollout_idle:.0%} of the GPUs' time: engines that are done before the others"
    rollout, trainer = report.gpus
    others = f"{report.rollout_idle:.0%} of the {rollout:,} that roll out"
    return f"{report.trainer_idle:.0%} of the {trainer:,} GPUs that train, {others}"
