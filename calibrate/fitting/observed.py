"""Parameters from records that are no samples of a class: what ops keep of their speed beside others, settled clocks,
what awkward shapes cost.

**Interference.** A record of the group `interference` times a victim beside a noise, `params` naming both, and tells in
`more` what victim and noise take alone. `interference.<victim>.<noise>` is the victim's speed beside the noise over its
speed alone, `interference.<noise>.<victim>` the noise's own, 1 at most. Where no collective was measured, `occupy`
(programs that hold SMs and memory bandwidth as a collective would) at about 20 programs stands in for it as a noise,
and where one collective was not, the measured all-reduce. What a collective itself loses, `occupy` cannot tell. A copy
on the device, `d2d` in records, is the op `copy` here, as in weight updates.

**Sustained products.** `gemm.training_rate` is the rate of the last third of a long run over that of its first
second, by medians.

**Awkward shapes.** A record of the group `shapes` times a kernel, and in `more` the same with its size padded.
`gemm.align16_factor` and its like are the time of products over that of padded ones, by how their rows are aligned.
`attention.head_multiple` is 32 where fused attention takes as long as with the padded head, and 8 where it is as much
faster as that has fewer vectors of 8.

Values are medians over cases. Spreads join the scatter over cases and that of the repeats in one, in squares.
"""

import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ...simulator.costs import HEAD_MULTIPLE, misaligned
from ...simulator.profile import Z90

Record = Mapping[str, Any]
Entries = dict[str, dict[str, Any]]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")

_PROGRAMS = 20
"""SMs that communication holds (DeepSeek-V3 report, arXiv 2412.19437, section 3.2.2)."""

_OCCUPY_SPREAD, _OTHER_COLLECTIVE_SPREAD = 0.15, 0.1
"""Assumed: what standing in for a collective adds, of a kernel that merely holds SMs, and of another collective."""

_ONE_CASE = 0.05
"""Assumed scatter over cases where there is one."""

_LEAST_SPREAD, _MOST_SPREAD = 0.02, 5.0

_LEAST_S, _FIRST_S = 5.0, 1.0
"""Seconds that a sustained run takes at least for its clocks to settle, and of it those that count as fresh."""


@dataclass(frozen=True)
class Kept:
    """Speed that `victim` kept beside `noise` in one record, with the scatter of its repeats (relative)."""

    victim: str
    noise: str
    value: float
    scatter: float
    case: str
    file: str
    programs: int = 0


def observed(records: Iterable[Record]) -> Entries:
    """Entries of a profile's `parameters`, by name, from records of one device with their `source`.

    Records that lack what is needed, or hold impossible numbers, tell nothing.
    """
    known = [record for record in records if _usable(record)]
    interference = [record for record in known if record["group"] == "interference"]
    kept = [*_stated(interference), *_probed(interference)]
    shapes = [record for record in known if record["group"] == "shapes"]
    return dict(sorted({**_interference(kept), **_sustained(known), **_misaligned(shapes), **_heads(shapes)}.items()))


def _usable(record: Record) -> bool:
    """Whether it has a case, parameters, and times that are possible."""
    shaped = "case" in record and all(isinstance(record.get(key, {}), Mapping) for key in ("params", "more"))
    return shaped and bool(record.get("samples")) and all(map(_possible, record["samples"]))


def _possible(seconds: object) -> bool:
    """Whether this is a time."""
    return isinstance(seconds, int | float) and math.isfinite(seconds) and seconds > 0


def _stated(records: Iterable[Record]) -> Iterator[Kept]:
    """From records that tell the times alone themselves, in seconds."""
    for record in records:
        params, more = record.get("params", {}), record.get("more", {})
        victim, noise = str(params.get("victim")), str(params.get("beside"))
        if not _KIND.fullmatch(victim) or not _KIND.fullmatch(noise) or "victim" not in params or noise == "none":
            continue
        victim, noise = _OPS.get(victim, victim), _OPS.get(noise, noise)
        scatter, case, file = _scatter(record["samples"]), _case(record), _file(record)
        programs = params.get("programs")
        held = programs if isinstance(programs, int) else 0
        if (speed := _ratio(more.get("alone_s"), _seconds(record))) is not None:
            yield Kept(victim, noise, speed, scatter, case, file, held)
        if (speed := _ratio(more.get("noise_alone_s"), more.get("noise_beside_s"))) is not None:
            yield Kept(noise, victim, speed, scatter, case, file, held)


_OPS = {"d2d": "copy"}
"""Kinds of op by what records call them, where predictions call them otherwise."""

_KIND = re.compile(r"[a-z]\w*")
"""A kind of op, as names of parameters have it."""

_PROBED = {"gemm": "gemm", "attention": "attention", "membound": "memory"}
"""Kinds of the one-call probe's victims, by how their cases begin."""


def _probed(records: Sequence[Record]) -> Iterator[Kept]:
    """From records of the one-call probe, where the victim alone is a record of its own, beside `none`.

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
        known = int(programs) if programs.isdecimal() else 0
        kind = _OPS.get(kind, kind)
        yield Kept(victim, kind, speed, _scatter(record["samples"]), _case(record), _file(record), known)


def _interference(kept: Sequence[Kept]) -> Entries:
    found: dict[tuple[str, str], list[Kept]] = {}
    for one in kept:
        found.setdefault((one.victim, one.noise), []).append(one)
    entries: Entries = {}
    for (victim, noise), seen in found.items():
        if "occupy" not in (victim, noise):
            entries[f"interference.{victim}.{noise}"] = _entry(seen, f"speed of {victim} beside {noise} over alone")
    for victim in {victim for victim, noise in found if noise in ("occupy", "all_reduce")}:
        stand_in = _stand_in(victim, found)
        entries = {f"interference.{victim}.{noise}": stand_in for noise in COLLECTIVES} | entries
    return entries


def _stand_in(victim: str, found: Mapping[tuple[str, str], Sequence[Kept]]) -> dict[str, Any]:
    """For a victim beside collectives that were not measured."""
    if real := found.get((victim, "all_reduce")):
        how = f"speed of {victim} beside all_reduce over alone, for another collective"
        return _entry(real, how, _OTHER_COLLECTIVE_SPREAD)
    seen = found[victim, "occupy"]
    nearest = min({one.programs for one in seen}, key=lambda k: (abs(k - _PROGRAMS), k))
    how = f"speed of {victim} beside {nearest} programs that hold SMs, in place of a collective's"
    return _entry([one for one in seen if one.programs == nearest], how, _OCCUPY_SPREAD)


def _entry(seen: Sequence[Kept], how: str, carried: float = 0.0) -> dict[str, Any]:
    """`carried` is the spread that standing in for another noise adds; then the number is no measurement of it."""
    cases: dict[str, list[float]] = {}
    for one in seen:
        cases.setdefault(one.case, []).append(one.value)
    by_case = [statistics.median(values) for values in cases.values()]
    scatter = statistics.median(one.scatter for one in seen)
    value = min(max(statistics.median(by_case), 0.01), 1.0)
    label = "extrapolated" if carried else "measured"
    return _written(value, _spread(by_case, scatter, carried), label, f"{how}; {_told(seen, cases)}")


def _told(seen: Sequence[Kept], cases: Mapping[str, Any]) -> str:
    files = sorted({one.file for one in seen})
    return (
        f"{len(seen)} record{'s' * (len(seen) > 1)} of {len(cases)} case{'s' * (len(cases) > 1)} in {', '.join(files)}"
    )


def _spread(by_case: Sequence[float], scatter: float, carried: float = 0.0) -> float:
    """Standard deviation of the logarithm: over cases, over repeats, and of what the number is carried over to."""
    between = statistics.stdev(map(math.log, by_case)) if len(by_case) > 1 else _ONE_CASE
    return min(max(math.hypot(between, scatter, carried), _LEAST_SPREAD), _MOST_SPREAD)


def _written(value: float, spread: float, provenance: str, source: str) -> dict[str, Any]:
    rounded = {"value": float(f"{value:.4g}"), "spread": float(f"{spread:.3g}")}
    return {**rounded, "provenance": provenance, "source": source}


def _sustained(records: Iterable[Record]) -> Entries:
    """The parameter of settled clocks, from runs that are long enough."""
    runs = [record for record in records if (record["group"], record["case"]) == ("sustained", "gemm")]
    kept = [one for record in runs if (one := _settled(record)) is not None]
    if not kept:
        return {}
    value, scatter = statistics.median(one.value for one in kept), statistics.median(one.scatter for one in kept)
    if not 0.1 <= value <= 1.2:
        return {}  # not clocks: another program ran beside
    seconds = f"rate of the last third of a run over that of its first {_FIRST_S:g} s"
    source = f"{seconds}; {_told(kept, {one.case: one for one in kept})}"
    between = statistics.stdev(math.log(one.value) for one in kept) if len(kept) > 1 else 0.0
    spread = max(math.hypot(between, scatter), _LEAST_SPREAD)
    return {"gemm.training_rate": _written(value, spread, "measured", source)}


def _settled(record: Record) -> Kept | None:
    """How fast a long run ends, over how it began; time is that of the products themselves."""
    params, more = record.get("params", {}), record.get("more", {})
    acts = float(params.get("per_sample") or more.get("acts_per_sample") or 1)
    seconds = [us * 1e-6 * acts for us in record["samples"]]
    if sum(seconds) < _LEAST_S:
        return None
    fresh = _while(seconds, lambda before, _total: before < _FIRST_S)
    settled = _while(seconds, lambda before, total: before >= total * 2 / 3)
    value = statistics.median(fresh) / statistics.median(settled)
    return Kept("gemm", "sustained", value, _scatter(settled), _case(record), _file(record))


def _while(seconds: Sequence[float], holds: Callable[[float, float], bool]) -> list[float]:
    """The samples that began while this held of the time before them and of the whole time, else the last one."""
    total, before, found = sum(seconds), 0.0, []
    for one in seconds:
        found += [one] if holds(before, total) else []
        before += one
    return found or [seconds[-1]]


def _misaligned(records: Iterable[Record]) -> Entries:
    """The factors of products whose rows are not aligned."""
    kept: dict[str, list[Kept]] = {}
    for record in records:
        widths = _sizes(record, "n", "k")
        name = misaligned(widths, "bf16") if widths else None
        if name is not None and (longer := _longer(record)) is not None:
            kept.setdefault(name, []).append(longer)
    how = "time of products over that of padded ones"
    return {name: _factor(seen, how, max(statistics.median(one.value for one in seen), 1.0))
            for name, seen in kept.items()}  # fmt: skip


def _heads(records: Iterable[Record]) -> Entries:
    """What fused attention pads heads of whole vectors to."""
    seen, fewer = list[Kept](), list[float]()
    for record in records:
        sizes = _sizes(record, "head_dim", "padded_head_dim")
        whole = bool(sizes) and sizes[0] % 8 == 0 and str(record["case"]).startswith("attention")
        if whole and (longer := _longer(record)) is not None:
            seen.append(longer)
            fewer.append(sizes[0] / sizes[1])
    if not seen:
        return {}
    apart = {
        32.0: [abs(math.log(one.value)) for one in seen],
        8.0: [abs(math.log(one.value / share)) for one, share in zip(seen, fewer, strict=True)],
    }
    multiple = min(apart, key=lambda value: statistics.median(apart[value]))
    return {HEAD_MULTIPLE: _factor(seen, "time of fused attention over that with padded heads", multiple)}


def _sizes(record: Record, *names: str) -> list[int]:
    """Parameters that are sizes, or none where one is missing or no size."""
    found = [record.get("params", {}).get(name) for name in names]
    sizes = [size for size in found if type(size) is int and size > 0]
    return sizes if len(sizes) == len(names) else []


def _longer(record: Record) -> Kept | None:
    """How many times as long a record's kernel takes as its padded twin."""
    padded = record.get("more", {}).get("padded_s")
    if not _possible(padded):
        return None
    value = _seconds(record) / padded
    return Kept(record["case"], "padded", value, _scatter(record["samples"]), _case(record), _file(record))


def _factor(seen: Sequence[Kept], how: str, value: float) -> dict[str, Any]:
    """An entry with the scatter of the ratios that it rests on."""
    cases = {one.case: one for one in seen}
    scatter = statistics.median(one.scatter for one in seen)
    return _written(value, _spread([one.value for one in seen], scatter), "measured", f"{how}; {_told(seen, cases)}")


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


def _case(record: Record) -> str:
    params = {name: value for name, value in record.get("params", {}).items() if name != "noise_passes"}
    return f"{record['case']} {sorted(params.items())}"


def _file(record: Record) -> str:
    return PurePath(str(record["source"]).rpartition(":")[0]).name
