"""A CycleReport in words: the lines of its terminal summary, and its tables; nothing is computed here."""

from collections.abc import Iterator, Sequence

from ...base.units import format_bytes, format_seconds
from ...report.spending import told
from .report import CycleReport

Row = tuple[str, str, str, str]
PHASE_COLUMNS = ("phase", "per step", "share of the step", "critical path", "what")


def headline(report: CycleReport) -> Iterator[str]:
    """What was asked and the answer."""
    yield report.name
    yield f"  {report.question}"
    p50, p99 = format_seconds(report.step_p50_s), format_seconds(report.step_p99_s)
    yield f"  step time     {format_seconds(report.step_time_s)} on average   (p50 {p50}, p99 {p99}; {_steps(report)})"
    yield f"  throughput    {report.requests_per_s:.3g} rollouts/s, {report.tokens_per_s:,.0f} tokens/s"
    length = f"{report.mean_tokens:,.0f} tokens on average, at most {report.longest_tokens:,}"
    yield f"  rollouts      {length}; {report.slots_busy:.0%} of the slots busy while any is"
    yield f"  pause         {format_seconds(report.pause_s)} per step in which engines cannot decode"
    yield f"  staleness     {report.mean_staleness:.2f} versions on average ({_ages(report)})"
    yield f"  idle          {idle(report)}"
    for what, amount in told(report.rates, report.spent, report.spent_per_million_tokens):
        yield f"  {what:<14}{amount}"
    if report.lost_share:
        yield f"  lost          {report.lost_share:.1%} of the tokens, by updates that abort"
    share = report.exposed[report.bound_by] / report.makespan_s
    yield f"  bound by      {report.bound_by}: {share:.0%} of the critical path"
    yield ""


def footer(report: CycleReport) -> Iterator[str]:
    """The update inside, what the numbers rest on, and what was assumed."""
    if (update := report.update) is not None:
        low, high = format_seconds(update.interval_low_s), format_seconds(update.interval_high_s)
        size = f"{format_bytes(update.bytes)} to {update.gpus:,} GPUs"
        interval = f"(90 % interval {low} to {high})"
        yield f"update: {format_seconds(update.update_time_s)} {interval}, {size}: {update.question}"
    shares = ", ".join(f"{share:.0%} {name}" for name, share in report.provenance.items() if share >= 0.005)
    yield f"the critical path rests on numbers that are {shares}"
    for note in report.notes:
        yield f"note: {note}"
    yield f"scenario {report.scenario_hash}"


def phases(report: CycleReport) -> list[tuple[str, ...]]:
    """Rows of the columns `PHASE_COLUMNS`; phases that run at once add up to more than the step."""
    seconds = {
        "rollout": (report.rollout_s, "any slot decodes"),
        "  tail": (report.tail_s, "under half of usable slots"),
        "train": (report.train_s, "as given"),
        "  drain": (report.drain_s, "until running requests end"),
        "update": (report.update_s, "as given" if report.update is None else "simulated"),
        "switch": (report.switch_s, "GPUs change over"),
    }
    rows = [
        (name, format_seconds(value), f"{value / report.step_time_s:.1%}", _critical(report, name), what)
        for name, (value, what) in seconds.items()
        if value
    ]
    return [*rows, ("step", format_seconds(report.step_time_s), "100.0%", "", _together(report))]


def idle(report: CycleReport) -> str:
    """Whose GPUs do nothing."""
    if report.placement == "colocated":
        return f"{report.rollout_idle:.0%} of the GPUs' time: engines that are done before the others"
    rollout, trainer = report.gpus
    others = f"{report.rollout_idle:.0%} of the {rollout:,} that roll out"
    return f"{report.trainer_idle:.0%} of the {trainer:,} GPUs that train, {others}"


def result_rows(report: CycleReport) -> Sequence[tuple[str, str]]:
    """The headline as pairs, for a page."""
    pairs = [line.strip().partition("  ") for line in headline(report) if line]
    return [
        ("what", report.question),
        *((name, value.strip()) for name, _, value in pairs[2:]),
        ("scenario", report.scenario_hash),
    ]


def staleness_rows(report: CycleReport) -> Sequence[tuple[str, str]]:
    """How many requests were how old."""
    total = sum(report.staleness.values())
    return [(f"{age}", f"{count:,} ({count / total:.1%})") for age, count in report.staleness.items()]


def _critical(report: CycleReport, phase: str) -> str:
    return f"{report.exposed[phase] / report.makespan_s:.1%}" if phase in report.exposed else ""


def _together(report: CycleReport) -> str:
    return "one after another" if report.mode == "synchronous" else "rollout and train at once"


def _steps(report: CycleReport) -> str:
    after = f" after {report.warmup} of warm-up" if report.warmup else ""
    return f"{report.steps} step{'s' * (report.steps > 1)}{after}"


def _ages(report: CycleReport) -> str:
    total = sum(report.staleness.values())
    return ", ".join(f"{count / total:.0%} at {age}" for age, count in report.staleness.items())
