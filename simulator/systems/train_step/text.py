"""A TrainReport in words: its summary, and its tables; nothing is computed here."""

from collections.abc import Iterator

from ...base.units import format_bytes, format_decimal, format_probability, format_seconds
from ...report.report import Table, Words
from ...report.spending import spending_rows
from .report import TrainReport
from .run import run_rows

_COLUMNS = ("phase", "mean over ranks", "share", "critical path", "what")
_ROOMY = 0.95  # a driver keeps some of what data sheets say, and allocators fail before the last byte
MEANING = {
    "gemm": "dense products",
    "attention": "attention kernels",
    "experts": "products of experts",
    "memory": "norms, activations",
    "loss": "cross entropy",
    "optimizer": "gradient norm, Adam",
    "tp": "tensor-parallel exchanges",
    "cp": "context-parallel exchanges",
    "ep": "tokens to experts and back",
    "dp": "gradients, new weights",
    "fsdp": "weights layer by layer",
    "pipeline": "other stages: the bubble",
    "host": "the host issues too slowly",
    "offload": "copies to and from the host",
}


def words(report: TrainReport) -> Words:
    """All that is said of it."""
    peak = report.peak
    held = [(name, format_bytes(size)) for name, size in (*peak.held, ("total", peak.peak_bytes))]
    return Words(
        answer=f"{format_seconds(report.step_time_s)} per step",
        rows=list(_rows(report)),
        phases=Table("Where the time goes", _COLUMNS, _phases(report)),
        below=[
            f"memory of pipeline rank {peak.pipeline_rank}, which holds most: {format_bytes(peak.peak_bytes)}",
            *(f"  {format_bytes(size):>10}  {owner}" for owner, size in peak.held),
            *report.interval_notes,
        ],
        tables=[
            Table("Memory by pipeline rank", ("rank", "peak", "at", "most of it"), _memory_rows(report)),
            Table(f"Memory of pipeline rank {peak.pipeline_rank} at its peak", ("held by", "size"), held),
        ],
    )


def _rows(report: TrainReport) -> Iterator[tuple[str, str]]:
    low, high = format_seconds(report.interval_low_s), format_seconds(report.interval_high_s)
    yield "step time", f"{format_seconds(report.step_time_s)}   (90 % interval {low} to {high})"
    yield "throughput", f"{report.tokens_per_s:,.0f} tokens/s, {report.tokens_per_s_per_gpu:,.0f} per GPU"
    yield "model", _model(report)
    full = f"{report.mfu_full:.1%} if attention counts unmasked"
    yield "MFU", f"{report.mfu:.1%} of the dense {report.peak_type} peak, causal attention ({full})"
    yield "bubble", f"{report.bubble_fraction:.1%} of the step waits for other stages"
    yield "memory", memory_text(report)
    yield from spending_rows(
        report.rates, (report.spending, "per step"), (report.spending_per_million_tokens, "per million tokens")
    )
    yield from run_rows(report.run) if report.run is not None else ()
    share = report.exposed[report.bound_by] / report.step_time_s
    yield "bound by", f"{report.bound_by}: {share:.0%} of the critical path ({MEANING[report.bound_by]})"


def _model(report: TrainReport) -> str:
    """How large it is, so that a config which says something else than was meant shows."""
    active = f" ({_billions(report.active_parameters)} active)" * (report.active_parameters < report.parameters)
    flop = format_decimal(report.flop_per_token, "FLOP")
    return f"{_billions(report.parameters)} parameters{active}; {flop} per token, forward and backward"


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:.3g} B"


def memory_text(report: TrainReport) -> str:
    """Whether it fits, and which pipeline rank needs most; if not, from which micro-batch on."""
    peak, needs = report.peak, report.memory_needs
    if report.fits:
        barely = "barely " * (peak.peak_bytes > _ROOMY * report.memory_bytes)
        low, high = map(format_bytes, peak.interval_bytes)
        likely = format_probability(report.fits_probability)
        return f"{barely}fits: {needs} (90 % interval {low} to {high}; fits with {likely})"
    if report.fits_devices:
        return f"DOES NOT FIT: {needs}"
    when = f"from micro-batch {peak.microbatch} on" if peak.microbatch >= 0 else "from the start"
    return f"DOES NOT FIT: {needs}, {when}; most of it {peak.held[0][0]}"


def _phases(report: TrainReport) -> list[tuple[str, ...]]:
    """Rows of the columns: they sum to the step."""
    rows = []
    for name, seconds in report.split_s.items():
        exposed = report.exposed.get(name, 0.0)
        if seconds or exposed:
            share = f"{seconds / report.step_time_s:.1%}"
            rows.append((name, format_seconds(seconds), share, format_seconds(exposed), MEANING[name]))
    return [*rows, ("step", format_seconds(report.step_time_s), "100.0%", "", "from start to end")]


def _memory_rows(report: TrainReport) -> list[tuple[str, ...]]:
    """Each pipeline rank's peak, when, and its largest owners."""
    return [
        (
            str(stage.pipeline_rank),
            format_bytes(stage.peak_bytes),
            format_seconds(stage.at_s),
            ", ".join(f"{name} {format_bytes(size)}" for name, size in stage.held[:3]),
        )
        for stage in report.memory
    ]
