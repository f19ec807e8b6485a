"""Parameters from records that are no samples of a class: what ops keep of their speed beside others, settled clocks,
what awkward shapes cost, how fast a loader's copies move bytes.

**Interference.** A record of the group `interference` times a victim beside a noise, `params` naming both, and tells in
`more` what victim and noise take alone. `interference.<victim>.<noise>` is the victim's speed beside the noise over its
speed alone, `interference.<noise>.<victim>` the noise's own, 1 at most. Where no collective was measured, `occupy`
(programs that hold SMs and memory bandwidth as a collective would) at about 20 programs stands in for it as a noise,
and where one collective was not, the measured all-reduce. What a collective itself loses, `occupy` cannot tell. A copy
on the device, `d2d` in records, is the op `copy` here, as in weight updates.

**Sustained products.** `gemm.training_rate` is the rate of the last third of a long run, by its median, over that of
its first sample: an H100 reaches its power limit, and lowers its clocks, within 0.1 s.

**Awkward shapes.** A record of the group `shapes` times a kernel, and in `more` the same with its size padded.
`gemm.align16_factor` and its like are the time of products over that of padded ones, by how their rows are aligned.
`attention.head_multiple` is 32 where fused attention takes as long as with the padded head, and 8 where it is as much
faster as that has fewer vectors of 8.

**Reloads.** `reload.hbm_fraction` is what the copies of the largest tensors out of a bucket, one call each, move in
device memory (read and written), over its peak bandwidth.

Values are medians over cases, but speeds beside others are those of all cases in a row: a long product loses less
beside programs that hold SMs than a short one, whose tiles then need another wave. Spreads join the scatter over cases
and that of the repeats in one, in squares.
"""

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePath
from typing import Any

from ...simulator.base.units import format_count
from ...simulator.costs import HEAD_MULTIPLE, alignment_penalty
from ...simulator.hardware import Limits
from ...simulator.profile import Z90
from .owners import Entry, entry

Record = Mapping[str, Any]
Entries = dict[str, Entry]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")

_PROGRAMS = 20
"""SMs that communication holds (DeepSeek-V3 report, arXiv 2412.19437, section 3.2.2)."""

_OCCUPY_SPREAD, _OTHER_COLLECTIVE_SPREAD = 0.15, 0.1
"""Assumed: what standing in for a collective adds, of a kernel that merely holds SMs, and of another collective."""

_ONE_CASE = 0.05
"""Assumed scatter over cases where there is one."""

_LEAST_SPREAD, _MOST_SPREAD = 0.02, 5.0

_LEAST_S = 5.0
"""Seconds that a sustained run takes at least for its clocks to settle."""


@dataclass(frozen=True)
class Reading:
    """What a record tells as a ratio, with the scatter of its repeats (relative); of a speed, the seconds alone."""

    value: float
    scatter: float
    case: str
    file: str
    alone_s: float = 1.0

    @classmethod
    def take(
        cls, record: Record, value: float, samples: Sequence[float] | None = None, alone_s: float = 1.0
    ) -> "Reading":
        """The case leaves out how often the noise ran; `samples` are those that repeat, by default all."""
        params = {name: value for name, value in record.get("params", {}).items() if name != "noise_passes"}
        case = f"{record['case']} {sorted(params.items())}"
        return cls(value, _scatter(samples or record["samples"]), case, _file(record), alone_s)


Pair = tuple[str, str]
"""A victim and the noise beside it."""


def entries_of(records: Iterable[Record], limits: Limits) -> Entries:
    """Entries of a profile's `parameters`, by name, from records of one device with their `source`, and its limits.

    Records that lack what is needed, or hold impossible numbers, tell nothing.
    """
    known = [record for record in records if _usable(record)]
    interference = [record for record in known if record["group"] == "interference"]
    shapes = [record for record in known if record["group"] == "shapes"]
    entries = {**_interference(interference), **_sustained(known), **_misaligned(shapes), **_heads(shapes)}
    return dict(sorted({**entries, **_reloads(known, limits)}.items()))


def _usable(record: Record) -> bool:
    """Whether it has a case, parameters, and times that are possible."""
    shaped = "case" in record and all(isinstance(record.get(key, {}), Mapping) for key in ("params", "more"))
    return shaped and bool(record.get("samples")) and all(map(_possible, record["samples"]))


def _possible(seconds: object) -> bool:
    """Whether this is a time."""
    return isinstance(seconds, int | float) and math.isfinite(seconds) and seconds > 0


def _stated(records: Iterable[Record]) -> Iterator[tuple[Pair, int, Reading]]:
    """Readings of records that contain the times alone, in seconds."""
    for record in records:
        params, more = record.get("params", {}), record.get("more", {})
        victim, noise = str(params.get("victim")), str(params.get("beside"))
        if not _KIND.fullmatch(victim) or not _KIND.fullmatch(noise) or "victim" not in params or noise == "none":
            continue
        victim, noise = _OPS.get(victim, victim), _OPS.get(noise, noise)
        programs = params["programs"] if isinstance(params.get("programs"), int) else 0
        if (speed := _ratio(more.get("alone_s"), _seconds(record))) is not None:
            yield (victim, noise), programs, Reading.take(record, speed, alone_s=more["alone_s"])
        if (speed := _ratio(more.get("noise_alone_s"), more.get("noise_beside_s"))) is not None:
            yield (noise, victim), programs, Reading.take(record, speed, alone_s=more["noise_alone_s"])


_OPS = {"d2d": "copy"}
"""Kinds of op by what records call them, where predictions call them otherwise."""

_KIND = re.compile(r"[a-z]\w*")
"""A kind of op, as names of parameters have it."""

_PROBED = {"gemm": "gemm", "attention": "attention", "membound": "memory"}
"""Kinds of the one-call probe's victims, by how their cases begin."""


def _probed(records: Sequence[Record]) -> Iterator[tuple[Pair, int, Reading]]:
    """Readings of the one-call probe, in which the victim alone is a separate record, beside `none`.

    Its noises last longer than the victims beside them, so what they lose themselves cannot be read off.
    """
    beside = [(record, str(record.get("params", {}).get("beside", ""))) for record in records]
    beside = [(record, noise) for record, noise in beside if "victim" not in record.get("params", {})]
    alone = {(_file(record), record["case"]): _seconds(record) for record, noise in beside if noise == "none"}
    for record, noise in beside:
        victim = _PROBED.get(str(record["case"]).partition("_")[0])
        speed = _ratio(alone.get((_file(record), record["case"])), _seconds(record))
        if victim is None or speed is None or noise in ("", "none"):
            continue
        kind, _, programs = noise.removesuffix("_ctas").partition("_")
        number = int(programs) if programs.isdecimal() else 0
        alone_s = alone[_file(record), record["case"]]
        yield (victim, _OPS.get(kind, kind)), number, Reading.take(record, speed, alone_s=alone_s)


def _interference(records: Sequence[Record]) -> Entries:
    found: dict[Pair, list[tuple[int, Reading]]] = {}
    for pair, programs, reading in [*_stated(records), *_probed(records)]:
        found.setdefault(pair, []).append((programs, reading))
    entries: Entries = {}
    for (victim, noise), seen in found.items():
        if "occupy" not in (victim, noise):
            how = f"speed of {victim} beside {noise} over alone"
            entries[f"interference.{victim}.{noise}"] = _speed([reading for _, reading in seen], how)
    for victim in {victim for victim, noise in found if noise in ("occupy", "all_reduce")}:
        stand_in = _stand_in(victim, found)
        entries = {f"interference.{victim}.{noise}": stand_in for noise in COLLECTIVES} | entries
    return entries


def _stand_in(victim: str, found: Mapping[Pair, Sequence[tuple[int, Reading]]]) -> Entry:
    """For a victim beside collectives that were not measured."""
    if real := found.get((victim, "all_reduce")):
        how = f"speed of {victim} beside all_reduce over alone, for another collective"
        return _speed([reading for _, reading in real], how, _OTHER_COLLECTIVE_SPREAD)
    seen = found[victim, "occupy"]
    nearest = min({programs for programs, _ in seen}, key=lambda k: (abs(k - _PROGRAMS), k))
    how = f"speed of {victim} beside {nearest} programs that hold SMs, in place of a collective's"
    return _speed([reading for programs, reading in seen if programs == nearest], how, _OCCUPY_SPREAD)


def _speed(seen: Sequence[Reading], how: str, carried: float = 0.0) -> Entry:
    cases: dict[str, list[Reading]] = {}
    for one in seen:
        cases.setdefault(one.case, []).append(one)
    by_case = [statistics.median(one.value for one in of) for of in cases.values()]
    alone = [statistics.median(one.alone_s for one in of) for of in cases.values()]
    speed = sum(alone) / sum(one / value for one, value in zip(alone, by_case, strict=True))
    return _entry(min(max(speed, 0.01), 1.0), by_case, seen, how, carried)


def _entry(
    value: float, values: Sequence[float], seen: Sequence[Reading], how: str, carried: float = 0.0,
    of_one: float = _ONE_CASE,
) -> Entry:  # fmt: skip
    """A parameter; its spread is the standard deviation of the logarithm: over `values`, over repeats, and `carried`.

    `of_one` stands for the first where there is one value alone. `carried` is what standing in for another noise adds;
    then the number is no measurement.
    """
    between = statistics.stdev(map(math.log, values)) if len(values) > 1 else of_one
    scatter = statistics.median(one.scatter for one in seen)
    spread = min(max(math.hypot(between, scatter, carried), _LEAST_SPREAD), _MOST_SPREAD)
    cases, files = len({one.case for one in seen}), sorted({one.file for one in seen})
    count = f"{format_count(len(seen), 'record')} of {format_count(cases, 'case')} in {', '.join(files)}"
    return entry(value, spread, "extrapolated" if carried else "measured", f"{how}; {count}")


def _sustained(records: Iterable[Record]) -> Entries:
    """The parameter of settled clocks: how fast runs that are long enough end, over how they began.

    Time is that of the products themselves.
    """
    seen = []
    for record in records:
        if (record["group"], record["case"]) != ("sustained", "gemm"):
            continue
        per_sample = record.get("params", {}).get("per_sample") or record.get("more", {}).get("acts_per_sample") or 1
        seconds = [us * 1e-6 * float(per_sample) for us in record["samples"]]
        total, begins = sum(seconds), [0.0, *accumulate(seconds)]
        if total < _LEAST_S:
            continue
        settled = [one for one, begin in zip(seconds, begins, strict=False) if begin >= total * 2 / 3] or seconds[-1:]
        seen.append(Reading.take(record, seconds[0] / statistics.median(settled), settled))
    values = [one.value for one in seen]
    if not seen or not 0.1 <= statistics.median(values) <= 1.2:
        return {}  # no such run, or not clocks: another program ran beside
    how = "rate of the last third of a run over that of its first sample"
    return {"gemm.training_rate": _entry(statistics.median(values), values, seen, how, of_one=0.0)}


def _misaligned(records: Iterable[Record]) -> Entries:
    """The factors of products whose rows are not aligned."""
    seen: dict[str, list[Reading]] = {}
    for record in records:
        widths = _sizes(record, "n", "k")
        name = alignment_penalty(widths, "bf16") if widths else None
        if name is not None and (longer := _longer(record)) is not None:
            seen.setdefault(name, []).append(longer)
    values = {name: [one.value for one in readings] for name, readings in seen.items()}
    how = "time of products over that of padded ones"
    return {name: _entry(max(statistics.median(values[name]), 1.0), values[name], readings, how)
            for name, readings in seen.items()}  # fmt: skip


def _heads(records: Iterable[Record]) -> Entries:
    """What fused attention pads heads of whole vectors to."""
    seen, fewer = list[Reading](), list[float]()
    for record in records:
        sizes = _sizes(record, "head_dim", "padded_head_dim")
        whole = bool(sizes) and sizes[0] % 8 == 0 and str(record["case"]).startswith("attention")
        if whole and (longer := _longer(record)) is not None:
            seen.append(longer)
            fewer.append(sizes[0] / sizes[1])
    if not seen:
        return {}
    values = [one.value for one in seen]
    apart = {
        32.0: [abs(math.log(value)) for value in values],
        8.0: [abs(math.log(value / share)) for value, share in zip(values, fewer, strict=True)],
    }
    multiple = min(apart, key=lambda value: statistics.median(apart[value]))
    return {HEAD_MULTIPLE: _entry(multiple, values, seen, "time of fused attention over that with padded heads")}


def _reloads(records: Iterable[Record], limits: Limits) -> Entries:
    """What copies of the largest tensors out of a bucket move in device memory, over its peak bandwidth."""
    seen: dict[int, list[Reading]] = {}
    for record in records:
        sizes = _sizes(record, "tensors", "bytes")
        if sizes and (record["group"], record["case"]) == ("reload", "copy_per_tensor"):
            moved = 2.0 * math.prod(sizes)
            share = moved / _seconds(record) / limits.memory_bytes_per_s
            seen.setdefault(sizes[1], []).append(Reading.take(record, share))
    if not seen:
        return {}
    readings = seen[max(seen)]
    value = min(statistics.median(one.value for one in readings), 1.0)
    how = "traffic of copies of the largest tensors out of a bucket"
    return {"reload.hbm_fraction": _entry(value, [one.value for one in readings], readings, how)}


def _sizes(record: Record, *names: str) -> list[int]:
    """Parameters that are sizes, or none where one is missing or no size."""
    found = [record.get("params", {}).get(name) for name in names]
    sizes = [size for size in found if type(size) is int and size > 0]
    return sizes if len(sizes) == len(names) else []


def _longer(record: Record) -> Reading | None:
    """How many times as long a record's kernel takes as its padded twin."""
    padded = record.get("more", {}).get("padded_s")
    return Reading.take(record, _seconds(record) / padded) if _possible(padded) else None


def _ratio(alone: Any, beside: Any) -> float | None:
    """Speed beside over speed alone, from seconds; None where they are impossible."""
    return float(min(alone / beside, 1.0)) if _possible(alone) and _possible(beside) else None


def _seconds(record: Record) -> float:
    return float(statistics.median(record["samples"])) * 1e-6


def _scatter(samples: Sequence[float]) -> float:
    """Relative standard deviation of a normal law with the same 90 % range; 0 for a single sample."""
    if len(samples) < 2:
        return 0.0
    low, *_, high = statistics.quantiles(samples, n=20, method="inclusive")
    return (high - low) / (2 * Z90 * statistics.median(samples))


def _file(record: Record) -> str:
    return PurePath(str(record["source"]).rpartition(":")[0]).name
