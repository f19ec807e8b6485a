"""How sure stated failure rates are: rates drawn for repeats of a run, from what was counted or from other clusters.

A cause that says how many events its rate was read from has a gamma distribution of this shape, whose mean is the rate
(the posterior of a Poisson rate with the prior 1 / rate). A cause that does not is of a cluster whose failures nobody
has counted: data/failure_rates.toml says how far clusters are apart, and one factor moves all such causes together, as
the published rates are those of whole clusters. When parts fail is in `failures`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import exp, inf, log, sqrt
from statistics import fmean, variance

from ....base.files import read_toml
from ....profile import Z90
from .failures import Cause, Failures

_TURNS = 50  # of a fixed-point iteration that halves its error in each


@dataclass(frozen=True)
class Rate:
    """The rate of failures of a cluster's nodes; `failures` is inf where no count is published."""

    cluster: str
    source: str
    per_node_day: float
    failures: float = inf


@cache
def published_rates() -> tuple[Rate, ...]:
    """The rates of data/failure_rates.toml."""
    return tuple(map(_rate, read_toml(files("runcast.data") / "failure_rates.toml")["cluster"]))


def _rate(table: Mapping[str, float | str]) -> Rate:
    count = float(table.get("failures", inf))
    stated = table.get("per_node_day")
    rate = count / (float(table["nodes"]) * float(table["days"])) if stated is None else float(stated)
    return Rate(str(table["name"]), str(table["source"]), rate, count)


@cache
def spread_between_clusters(without: str = "") -> float:
    """The standard deviation of ln(rate here / rate of another cluster), from clusters of all sources but `without`."""
    return spread_of([rate for rate in published_rates() if rate.source != without])


def spread_of(rates: Sequence[Rate]) -> float:
    """How far a cluster's rate is from that of another one, as a standard deviation of ln(rate).

    The variance between clusters is that of ln(rate) less what chance does to counts, 1 / failures. Both clusters are
    off the mean, hence twice that; few tell of it, hence the ratio of 95 % quantiles of Student's t and the normal.
    """
    from scipy.special import stdtrit  # here: it takes long to import

    between = variance(log(rate.per_node_day) for rate in rates) - fmean(1 / rate.failures for rate in rates)
    return sqrt(2 * max(between, 0.0)) * float(stdtrit(len(rates) - 1, 0.95)) / Z90


def draw_rates(said: Failures, index: int, spread: float, most: float = inf) -> Failures:
    """Failures with the rates of one repeat of a run: as stated at `index` 0, else drawn.

    `spread` is that of ln(rate) where nobody counted; planned stops have none, as they are one's own choice. A rate is
    at most `most` times as stated.
    """
    counted = [i for i, cause in enumerate(said.cause) if cause.events is not None]
    common, *own = shares(index, 1 + len(counted))
    share_of = dict(zip(counted, own, strict=True))
    causes = (_draw(cause, share_of.get(i, common), spread, most) for i, cause in enumerate(said.cause))
    return said.model_copy(update={"cause": tuple(causes)}) if index else said


def _draw(cause: Cause, share: float, spread: float, most: float) -> Cause:
    """The cause with a rate below which this share of the distribution lies."""
    from scipy.special import gammaincinv, ndtri

    if cause.events is not None:
        factor = float(gammaincinv(cause.events, share)) / cause.events
    else:
        factor = 1.0 if cause.effect == "planned" else exp(spread * float(ndtri(share)))
    return cause.model_copy(update={"mtbf": cause.mtbf / min(factor, most)})


def shares(index: int, dimensions: int) -> tuple[float, ...]:
    """Point `index` of a sequence that fills the unit cube evenly, so that few repeats show a distribution's width.

    Roberts' sequence: multiples of 1 / g, 1 / g^2, ... for the root g > 1 of x^(d + 1) = x + 1, the golden ratio in one
    dimension (extremelearning.com.au/unreasonable-effectiveness-of-quasirandom-sequences, 2018). Point 0 is the middle.
    """
    root = 1.5
    for _ in range(_TURNS):
        root = (1 + root) ** (1 / (1 + dimensions))
    return tuple((0.5 + index * root**-axis) % 1 for axis in range(1, 1 + dimensions))


def varies(said: Failures) -> bool:
    """Whether a rate is not known for sure."""
    return any(cause.events is not None or cause.effect != "planned" for cause in said.cause)
