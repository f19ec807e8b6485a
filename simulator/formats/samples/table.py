"""Samples: measured seconds with the features of what was measured, as one table with one row per sample.

| column | meaning |
|---|---|
| cost_class | which cost class it belongs to (`forms.cost_class`) |
| device | the GPU, by its name in the catalogue |
| library | what ran: kernel library or NCCL with its version; a profile keeps these apart as variants |
| group | rows that stand or fall together when errors are measured: a weight's shape, a model, a cluster |
| seconds | measured, of one call |
| source | file and line |

and one column per feature (`forms.FEATURES`), empty where a class has no such feature.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from ...base.errors import UserError, hint, shorten, tidy
from ...profile.forms import AT_MOST, BUS_FACTOR, FEATURES, WHOLE, CostClass, cost_class, known_classes

KEYS = ("cost_class", "device", "library", "group", "seconds", "source")
OPTIONAL = ("wider", "network", "algorithm")
"""Columns that a table may have besides: `wider` is the spread that carrying a sample over from another device adds,
`network` the kind of network between nodes (data/networks.toml) if it is not the one that profiles are measured on,
`algorithm` the NCCL_ALGO of a collective if it was forced."""

OF_ALGORITHM = "of a forced algorithm: fits that alone"
"""Why a row with an `algorithm` is no sample of its class."""


Record = Mapping[str, Any]
"""One record of a file of raw records."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Good rows, and one line `place: reason` for each row that was left out.

    `environment` holds what is known of the machine and its software, for the profile and its report. `others` are raw
    records that are no samples of a class, such as interference, each with its `device` and `source`. `forced` are good
    rows of collectives whose algorithm was forced: they are no samples of what a library takes by itself.
    """

    table: pd.DataFrame
    dropped: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    others: tuple[Record, ...] = ()
    forced: pd.DataFrame = field(default_factory=pd.DataFrame)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def devices(self) -> list[str]:
        """Whose samples and other records these are."""
        forced = self.forced["device"] if len(self.forced) else ()
        return sorted({*self.table["device"], *forced, *(record["device"] for record in self.others)})

    def of_file(self, path: str) -> "Samples":
        """The same, whose rows say their `file`."""
        forced = self.forced.assign(file=path) if len(self.forced) else self.forced
        return replace(self, table=self.table.assign(file=path), forced=forced)

    @property
    def rows(self) -> pd.DataFrame:
        """All good rows, those of forced algorithms too."""
        return pd.concat([self.table, self.forced], ignore_index=True) if len(self.forced) else self.table


def join_samples(parts: Sequence[Samples]) -> Samples:
    """All rows of several sets."""
    tables = [part.table for part in parts if len(part)] or [part.table for part in parts]
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=list(KEYS))
    environment = {key: value for part in parts for key, value in part.environment.items()}
    dropped = tuple(line for part in parts for line in part.dropped)
    others = tuple(record for part in parts for record in part.others)
    forced = [part.forced for part in parts if len(part.forced)]
    return Samples(
        table, dropped, environment, others, pd.concat(forced, ignore_index=True) if forced else pd.DataFrame()
    )


def sound_samples(table: pd.DataFrame, file: str, dropped: Sequence[str] = ()) -> Samples:
    """The rows that are complete and possible; `source` says where each stands; a UserError if no row is left.

    A collective over several nodes is of a class of its own (`<op>.network`), also where its row names the op alone.
    """
    table = _between_nodes(table.reset_index(drop=True))
    reasons = _faults(table)
    bad = reasons != ""
    lines = [f"{source}: {reason}" for source, reason in zip(table["source"][bad], reasons[bad], strict=True)]
    if bad.all():
        raise UserError(*(lines[:3] or [f"{file}: holds no samples"]))
    good, forced = table[~bad], is_forced(table)[~bad]
    apart = [f"{source}: {OF_ALGORITHM}" for source in good["source"][forced]]
    kept, aside = (good[rows].reset_index(drop=True) for rows in (~forced, forced))
    return Samples(kept, (*dropped, *lines, *apart), forced=aside)


def is_forced(table: pd.DataFrame) -> "pd.Series[bool]":
    """Which rows name an algorithm that was forced."""
    named = table["algorithm"] if "algorithm" in table else pd.Series("", table.index)
    return ~named.fillna("").isin(["", "default", "?"])


def summarize(dropped: Iterable[str]) -> list[str]:
    """One line per file and reason, with the number of rows and the line of the first one."""
    first: dict[tuple[str, str], str] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for entry in dropped:
        place, _, reason = entry.partition(": ")
        key = (place.rpartition(":")[0] or place, reason)
        first.setdefault(key, place)
        counts[key] += 1
    return [tidy(f"{first[key]}: {key[1]}" + (f" ({n} rows)" if n > 1 else "")) for key, n in counts.items()]


def _between_nodes(table: pd.DataFrame) -> pd.DataFrame:
    if "nodes" not in table:
        return table
    several = table["cost_class"].isin(BUS_FACTOR) & (pd.to_numeric(table["nodes"], errors="coerce") > 1)
    return table.assign(cost_class=table["cost_class"].mask(several, table["cost_class"].astype(str) + ".network"))


def _faults(table: pd.DataFrame) -> "pd.Series[str]":
    """Why each row cannot be used, nothing for the good ones."""
    reasons = pd.Series("", table.index)
    for name, rows in table.groupby("cost_class", sort=False, dropna=False):
        found = cost_class(str(name))
        if found is None:
            reasons[rows.index] = f"cost_class = {shorten(repr(name), 80)}: unknown; {hint(str(name), known_classes())}"
            continue
        for reason, wrong in _wrong(rows, found):
            good = reasons[rows.index].to_numpy() == ""
            reasons[rows.index[wrong & good]] = reason
    return reasons


def _wrong(rows: pd.DataFrame, found: CostClass) -> Iterator[tuple[str, np.ndarray]]:
    """What rows of a class may be wrong in, and which of them are."""
    for column in ("seconds", *found.names):
        possible = _possible(rows, column, may_be_empty=column not in ("seconds", *found.features))
        yield f"{column}: expected {_ALLOWED.get(column, _POSITIVE)}", ~possible
    for fewer, more in AT_MOST:
        if {fewer, more} <= {*found.names} & {*rows}:
            numbers = rows[[fewer, more]].apply(pd.to_numeric, errors="coerce").to_numpy(float)
            yield f"{fewer}: expected at most {more}", numbers[:, 0] > numbers[:, 1]


_MOST = 1e18  # beyond it nothing is measured, and products of sizes would leave the range of floating point
_POSITIVE = "a number greater than zero, at most 1e18"
_ALLOWED = {
    **dict.fromkeys(WHOLE, "a whole number greater than zero, at most 1e18"),
    "seconds": "a number greater than zero, 1e-12 to 1e9",
    "skew": "a number, zero or greater, at most 1e18",
    "causal": "0 or 1",
    **dict.fromkeys(("gpus", "nodes"), "at least 2, at most 1e18, whole"),
}


def _possible(rows: pd.DataFrame, column: str, may_be_empty: bool) -> np.ndarray:
    if column not in rows:
        return np.full(len(rows), may_be_empty)
    values = pd.to_numeric(rows[column], errors="coerce").to_numpy(float)
    possible = {
        "seconds": (values >= 1e-12) & (values <= 1e9),
        "skew": values >= 0,
        "causal": np.isin(values, (0, 1)),
        "gpus": values >= 2,
        "nodes": values >= 2,
    }.get(column, values > 0)
    if column in WHOLE:
        possible = possible & (values == np.round(values))
    return np.asarray((possible & (values <= _MOST)) | (rows[column].isna().to_numpy() & may_be_empty))


def features_of(table: pd.DataFrame, kind: CostClass) -> dict[str, np.ndarray]:
    """The features of a class as arrays; NaN where one that need not be given is not."""
    return {feature: table[feature].to_numpy(float) for feature in kind.names if feature in table}


def to_csv(samples: pd.DataFrame) -> bytes:
    """The table as CSV: the key columns, then the features in use."""
    used = [feature for feature in FEATURES if feature in samples and samples[feature].notna().any()]
    optional = [column for column in OPTIONAL if column in samples]
    text = samples.reindex(columns=[*KEYS, *optional, *used]).to_csv(index=False, lineterminator="\n")
    return str(text).encode()
