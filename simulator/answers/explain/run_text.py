"""A RunExplanation in words and numbers; nothing is computed here."""

from collections.abc import Iterable, Iterator

from ...base.units import format_long, format_seconds, format_usd
from ...systems.run.history import CAUSES
from ...systems.run.text import words
from .by_levers import LeverWords
from .run import QUEUE, Lever, Means, RunExplanation

_SHOWN = 10
_DAY_S = 86_400.0


def run_words(found: RunExplanation) -> LeverWords[Lever]:
    """The explanation in words."""
    return LeverWords(
        title=f"{found.report.name}: why {format_long(found.report.wall_s)}",
        said=words(found.report),
        sentences=tuple(_sentences(found)),
        parts_title="What the run is made of",
        whole="run",
        parts_s=found.report.history.breakdown_s,
        aim=found.aim,
        columns=("what if", "saves", "by seed", *_worth_names(found), _result_name(found), "what it is"),
        row=lambda one: _row(one, found),
        most=_SHOWN,
        digits=2,
        notes=tuple(_notes(found)),
    )


def _notes(found: RunExplanation) -> Iterator[str]:
    if found.tried:
        seeds = " and ".join(map(str, found.lever_seeds))
        of = f"seed {seeds}" if len(found.lever_seeds) == 1 else f"the mean of seeds {seeds}"
        yield f"without a change: {_result_name(found)} {_result(found.unchanged, found)}, {of} as for each what-if"
    if hidden := [one.name for one in found.best[:_SHOWN] if found.is_beyond_chance(one) is False]:
        yield f"less than chance, so that one run does not show it: {'; '.join(hidden)}"


def _sentences(found: RunExplanation) -> Iterator[str]:
    """Sentences on where the time goes, and on what chance does."""
    shares = {cause: seconds / (found.report.wall_s or 1.0) for cause, seconds in _seconds(found)}
    yield f"Computing takes {shares.get('compute', 0.0):.1%} of the time."
    if (most := found.largest_loss) is not None:
        yield f"The largest part of the rest is {most}, {shares[most]:.1%}: {CAUSES[most]}."
    if found.chance is not None:
        size = f"{found.chance:.0%}" if found.chance > 0.1 else f"{100 * found.chance:.2g}%"
        yield f"By chance {found.aim} is up to {size} longer or shorter (90 % of runs, from {found.seeds} of them)."


def _seconds(found: RunExplanation) -> Iterable[tuple[str, float]]:
    return found.report.history.breakdown_s.items()


def _by_seed(one: Lever) -> str:
    low, high = f"{min(one.gains):.2%}", f"{max(one.gains):.2%}"
    return low if low == high else f"{low} to {high}"


def _row(one: Lever, found: RunExplanation) -> tuple[str, ...]:
    return one.name, f"{one.gain:.2%}", _by_seed(one), *_worth(one, found), _result(one.means, found), one.about


def _worth_names(found: RunExplanation) -> tuple[str, ...]:
    """A column of money where levers have any, and one of its interval where the cost of the run has one."""
    if all(one.worth is None for one in found.tried):
        return ()
    low_usd, high_usd = found.report.cost_interval_usd
    return ("worth",) if low_usd == high_usd else ("worth", "90 %")


def _worth(one: Lever, found: RunExplanation) -> tuple[str, ...]:
    """The cells of these columns."""
    usd, low, high = map(_format_usd, one.worth) if one.worth else ("–",) * 3
    return (usd, f"{low} to {high}" if one.worth else "–")[: len(_worth_names(found))]


def _format_usd(usd: float) -> str:
    return f"-{format_usd(-usd)}" if usd < 0 else format_usd(usd)


def _result_name(found: RunExplanation) -> str:
    if QUEUE in found.report.history.counts:
        return "mean wait"
    return f"{found.report.unit}/s" if found.report.wall_is_given else "wall clock"


def _result(means: Means, found: RunExplanation) -> str:
    if means.queue_s is not None:
        return _format(means.queue_s)
    return f"{means.samples_per_s:,.5g}" if found.report.wall_is_given else _format(means.wall_s)


def _format(seconds: float) -> str:
    """A duration with digits that tell levers apart."""
    return f"{seconds / _DAY_S:,.4g} days" if seconds >= 2 * _DAY_S else format_seconds(seconds, 4)
