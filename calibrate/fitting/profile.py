"""`runcast calibrate fit`: tables of samples become a profile file.

It has one model per cost class and library, the parameters that follow from them, and how it came.
"""

import datetime
import json
import shlex
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...simulator.answers.validate import predict_samples
from ...simulator.base.errors import UserError, fault
from ...simulator.base.files import digest, name_beside, read_json, read_toml, write_atomic
from ...simulator.formats.samples import RECORDS, Samples, features_of, read_samples
from ...simulator.hardware import Cluster, Limits, cluster, cluster_names
from ...simulator.hardware import device as find_device
from ...simulator.hardware import limits as find_limits
from ...simulator.profile import (
    SCHEMA,
    Entry,
    Profile,
    load_profile,
    profile_files,
    profile_for,
    read_profile,
    write_limits,
    write_models,
)
from ...simulator.profile.forms import FEATURES, cost_class
from .algorithms import algorithm_entries
from .errors import WEAK
from .fit import fit_model
from .observed import entries_of
from .ratios import ratios_of
from .read_off import experts_rate, read_off

_ODD = 20.0
"""Ratio of samples to the base beyond which a class is named: a slow machine, or another meaning of a column."""

_UNIT = 300.0
"""Ratio beyond which a table has another unit: milliseconds are 1,000 times seconds, and may be of a machine that is 3
times as fast.
"""

_OTHER_DEVICE = 0.25
"""Spread that carrying over between devices adds (docs/profiles.md)."""


@dataclass(frozen=True)
class Flags:
    """What the command line says; None where it is silent."""

    out: Path
    device: str | None
    cluster: str | None
    name: str | None
    prefer: Sequence[str]
    base: str
    wider: float | None
    source: str
    also: Path | None
    classes: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Written:
    """A profile that was fitted: its errors as a table, the samples read, what was found of algorithms, what is odd."""

    errors: pd.DataFrame
    samples: Samples
    algorithms: list[str]
    odd: list[str]


def fit_files(paths: Sequence[Path], flags: Flags) -> Written:
    """Fit and write the profile.

    Without samples the profile is its base, with the limits of another device. A UserError if samples cannot be read,
    are not of one device, or are in another unit; nothing is written then.
    """
    out = flags.out
    if out.suffix != ".json":
        raise UserError(f"--out = {str(out)!r}: expected a name that ends in .json")
    base = load_profile(flags.base, "--base")
    _refuse_circle(flags)
    samples = _of_classes(read_samples(paths), flags.classes)
    device = _device(samples, flags)
    machine = _machine(device, flags.cluster or None)
    hardware = cluster(machine, 1, "--cluster")
    if hardware.device(0).name != device:
        raise UserError(f"--cluster = {machine!r}: has {hardware.device(0).name}, not {device}")
    stated: dict[str, Any] = {}
    if flags.also:
        load_profile(str(flags.also), "--also")  # raises what is wrong with it
        read = read_json if flags.also.suffix == ".json" else read_toml
        stated = read(flags.also).get("parameters", {})
    wider = flags.wider
    if wider is None:  # as between generations, unless the base is of this device or of any
        wider = _OTHER_DEVICE if base.devices and device not in base.devices else 0.0
    table = samples.table[samples.table["device"] == device]
    others = [record for record in samples.others if record["device"] == device]
    forced = samples.forced[samples.forced["device"] == device] if len(samples.forced) else samples.forced
    if table.empty and not others and forced.empty and samples.devices:
        raise UserError(f"no samples of {device}; there are some of {', '.join(samples.devices)}")
    limits = find_limits(hardware)
    _refuse_what_it_lacks(table, device, limits)
    compared = _compare(base, table, device, limits)
    _refuse_other_units(compared)
    models = {str(kind): _variants(str(kind), rows, limits, flags.prefer) for kind, rows in table.groupby("cost_class")}
    models |= ratios_of(base, models, table)
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "name": flags.name or out.stem,
        "base": name_beside(flags.base, out),
        **({"wider": wider} if wider else {}),
        "devices": [device],
        "date": datetime.date.today().isoformat(),
        "source": flags.source,
        "command": _command(paths, flags, device, machine),
        "samples": [
            {"file": path.name, "sha256": digest(path), "rows": sum(_of_file(rows, path) for rows in (table, forced))}
            for path in paths
        ],
        "environment": dict(samples.environment),
        "limits": write_limits(limits, machine),
        **({"network": hardware.fabric.network} if any(kind.endswith(".network") for kind in models) else {}),
        "parameters": {**read_off(models, table, limits, hardware), **entries_of(others, limits), **stated},
        "models": write_models(models),
    }
    mine = base.join(read_profile(content, str(out)))  # what cannot be read back is not written
    of_algorithms, told = algorithm_entries(forced, mine, machine)
    content["parameters"] = {**experts_rate(table, mine, limits), **of_algorithms, **content["parameters"]}
    write_atomic(out, (json.dumps(content, indent=1) + "\n").encode())
    assumed = [] if flags.cluster else _assumed(table, machine, hardware)
    odd = [*assumed, *_odd(compared), *_doubtful(content), *_missing(mine, device)]
    return Written(_errors(content), samples, told, odd)


def _of_classes(samples: Samples, classes: Sequence[str]) -> Samples:
    """Of records of a suite the samples of these classes alone; of tables, and without classes, all.

    Raises:
        UserError: records have no class that begins so.
    """
    if not classes:
        return samples
    if not len(samples):
        raise UserError(f"--classes = {classes[0]!r}: there are no records to take it from")
    table = samples.table
    recorded = table["file"].str.endswith(RECORDS)
    for begin in classes:
        if not (recorded & table["cost_class"].str.startswith(begin)).any():
            known = ", ".join(sorted(set(table.loc[recorded, "cost_class"].str.split(".").str[0]))) or "none"
            raise UserError(f"--classes = {begin!r}: expected the beginning of a class of records; there are {known}")
    kept = table["cost_class"].str.startswith(tuple(classes))
    return replace(samples, table=table[kept | ~recorded], others=())


def _of_file(rows: pd.DataFrame, path: Path) -> int:
    """How many rows are of a file."""
    return int((rows["file"] == str(path)).sum()) if len(rows) else 0


def _machine(device: str, asked: str | None) -> str:
    """A cluster by name or file: as asked, else the first of the catalogue that has this device."""
    if asked is not None:
        return asked
    for name in cluster_names():
        if cluster(name, 1).device(0).name == device:
            return name
    raise UserError(f"--cluster: the catalogue has no cluster of {device}; name a cluster file")


def _refuse_circle(flags: Flags) -> None:
    """Raise UserError if the profile to write is its own base, or that of one of its bases."""
    if any(flags.out.resolve() == Path(file).resolve() for file in profile_files(flags.base, "--base")):
        why = f"is --out itself, or rests on it; expected another profile than {str(flags.out)!r}"
        raise UserError(fault("--base", "", flags.base, why))


def _refuse_what_it_lacks(table: pd.DataFrame, device: str, limits: Limits) -> None:
    """Raise UserError for classes that this device cannot have: a data type or a link that it lacks; with a row."""
    faults = list[str]()
    for kind, rows in table.groupby("cost_class"):
        known = cost_class(str(kind))
        assert known is not None, kind
        start = {c.name: c.start for c in known.form.coefficients}
        try:
            known.form.seconds(known.columns(features_of(rows, known), limits), limits, start)
        except UserError as error:
            faults += [f"{rows['source'].iloc[0]}: cost_class = {kind!r} of {device}: {line}" for line in error.faults]
    if faults:
        raise UserError(*faults)


def _assumed(table: pd.DataFrame, machine: str, hardware: Cluster) -> list[str]:
    """What is taken for the network of samples between nodes, where neither they nor --cluster say it."""
    between = table[table["cost_class"].str.endswith(".network")]
    if between.empty:
        return []
    node, kind = find_limits(hardware), hardware.fabric.network
    rates = between.reindex(columns=["network_bytes_per_s", "link_bytes_per_s"])
    if rates.notna().any(axis=1).all():
        return [f"samples between nodes: {kind} of {machine} assumed; state --cluster"]
    nics = f"{node.nics} x {node.nic_bytes_per_s * 8e-9:.4g} Gb/s"
    return [f"samples between nodes: {nics} {kind} of {machine} assumed; state --cluster, or --network at import"]


def _missing(mine: Profile, device: str) -> list[str]:
    """What the shipped profile of a device has and this one lacks: predictions that need it will say so."""
    shipped = profile_for(device)
    missing = [kind for kind in load_profile(shipped).models if kind not in mine.models]
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    lacking = f"no models of {', '.join(missing[:3])}{more}, which training steps may need"
    return [f"{lacking}; --base {shipped} has them"] if missing else []


def _compare(base: Profile, table: pd.DataFrame, device: str, limits: Limits) -> pd.DataFrame:
    """Samples with two more columns: how many `times` they take what is expected at the rates of their device, and who
    `expects` that. It is the base, or the device's shipped profile where the base is of no device; no rows without.
    """
    known = base if base.limits else load_profile(profile_for(device))
    if known.limits is None or table.empty:
        return pd.DataFrame(columns=["file", "cost_class", "times", "expects"])
    scored = predict_samples(replace(known, limits=limits), table)
    return scored.assign(times=scored["seconds"] / scored["predicted_s"], expects=known.name)


def _refuse_other_units(compared: pd.DataFrame) -> None:
    """Raise UserError for classes of tables whose samples are in another unit; records of the suite state theirs."""
    tables = compared[compared["file"].str.endswith(".csv")]
    wrong = [f"{row['file']}: {said}; expected seconds" for row, said in _outliers(tables, _UNIT, ["file"])]
    if wrong:
        raise UserError(*wrong)


def _odd(compared: pd.DataFrame) -> list[str]:
    """Classes whose samples differ from what is expected by more than devices do."""
    return [f"{said}; seconds?" for _, said in _outliers(compared, _ODD, [])]


def _outliers(compared: pd.DataFrame, most: float, keys: list[str]) -> Iterator[tuple[dict[Hashable, Any], str]]:
    """Classes, with further keys, whose median is `most` times what is expected, or as little; and that in words."""
    ratios = compared.groupby([*keys, "cost_class", "expects"])["times"].median()
    for row in ratios[(ratios > most) | (ratios < 1 / most)].reset_index().to_dict("records"):
        yield row, f"{row['cost_class']}: the samples take {row['times']:.3g} times what {row['expects']} says"


def _doubtful(content: dict[str, Any]) -> list[str]:
    """Models not to rely on: those that miss much, and those whose coefficients ran as far as they may."""
    models = [(kind, model) for kind, _, model in _fitted(content)]
    weak = [kind for kind, model in models if model["held_out"]["rows"] and model["held_out"]["p90"] > WEAK]
    bound = [kind for kind, model in models if _at_bounds(kind, model["coefficients"]) > _BOUNDS]
    doubts = {
        f"off by more than {WEAK:.0%} on a tenth of the rows left out": weak,
        f"{_BOUNDS + 1} or more coefficients at a bound": bound,
    }
    return [f"{text}: {len(of)} models, of {', '.join(dict.fromkeys(of))}" for text, of in doubts.items() if of]


_BOUNDS = 2
"""Coefficients at a bound that a fit may have: more of them, and the form does not describe the samples."""


def _at_bounds(kind: str, coefficients: dict[str, float]) -> int:
    found = cost_class(kind)
    assert found is not None, kind
    ends = {c.name: (c.low, c.high) for c in found.form.coefficients}
    return sum(any(isclose(value, end, rel_tol=0.01) for end in ends[name]) for name, value in coefficients.items())


def _command(paths: Sequence[Path], flags: Flags, device: str, machine: str) -> str:
    """The command that refits, with every choice named and without folders."""
    given = {"--device": device, "--cluster": machine, "--base": flags.base, "--source": flags.source}
    given |= {"--name": flags.name} if flags.name is not None else {}
    if flags.wider is not None:
        given["--wider"] = f"{flags.wider:g}"
    if flags.also is not None:
        given["--also"] = flags.also.name
    words = ["runcast", "calibrate", "fit", *(path.name for path in paths), "-o", flags.out.name]
    words += [word for flag, value in given.items() for word in (flag, value)]
    for flag, values in (("--prefer", flags.prefer), ("--classes", flags.classes)):
        words += [word for value in values for word in (flag, value)]
    return shlex.join(words)


def _device(samples: Samples, flags: Flags) -> str:
    """The name of the GPU: of --device, else of the samples; one of no catalogue is known by its cluster's file."""
    if flags.device is not None:
        return find_device(flags.device, "--device").name
    if not samples.devices:
        raise UserError("--device: missing; without samples a profile of this device is derived from --base")
    if len(samples.devices) != 1:
        raise UserError(f"--device: the samples are of {', '.join(samples.devices)}; name one")
    (name,) = samples.devices
    if flags.cluster is not None:  # which has this GPU, of the catalogue or not
        return name
    try:
        return find_device(name, "samples").name
    except UserError as error:
        raise UserError(*(f"{line}; of a GPU of your own name the file: --cluster" for line in error.faults)) from None


_SCORES = ("median", "p90", "bias")


def _errors(content: dict[str, Any]) -> pd.DataFrame:
    """Errors in per cent of each model, on what its fit has not seen."""
    rows = []
    for kind, library, model in _fitted(content):
        of, scored = content["models"][kind], model["held_out"]
        percent = {f"{name} %": round(100 * scored[name], 1) if scored["rows"] else "-" for name in _SCORES}
        marked = "*" if library == of["default"] and len(of["variants"]) > 1 else ""
        how = {"left out": model["left_out"], "scored rows": scored["rows"]}
        rows.append({"class": kind, "library": library + marked, **how, **percent})
    return pd.DataFrame(rows)


def _fitted(content: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(class, library, model) of every model, without ratios taken on from a sibling."""
    for kind, of in content["models"].items():
        yield from ((kind, library, model) for library, model in of["variants"].items() if "form" in model)


def _variants(kind: str, table: pd.DataFrame, limits: Limits, prefer: Sequence[str]) -> dict[str, Entry]:
    """A model per library, the default one first.

    `prefer` lists parts of library names: the first that fits is the default library of a class (of several the one
    that is called so), else the one with the most samples, of equally many the faster one on shapes that they share.
    """
    counts = table["library"].value_counts()

    def rank(library: str) -> tuple[int, bool, int]:
        wanted = next((i for i, part in enumerate(prefer) if part in library), len(prefer))
        return wanted, library not in prefer, -int(counts[library])

    equals: dict[tuple[int, bool, int], list[str]] = {}
    for library in sorted(counts.index):
        equals.setdefault(rank(library), []).append(library)
    libraries = [library for _, equal in sorted(equals.items()) for library in _fastest_first(table, equal)]
    of = {library: table[table["library"] == library] for library in libraries}
    return {library: fit_model(kind, library, rows, limits, _source(rows)) for library, rows in of.items()}


def _fastest_first(table: pd.DataFrame, libraries: Sequence[str]) -> list[str]:
    """Sort libraries by their times on common samples, fastest first; in the given order without common samples."""
    if len(libraries) == 1:
        return list(libraries)
    features = [name for name in FEATURES if name in table]
    rows = table[table["library"].isin(libraries)].fillna(dict.fromkeys(features, 0.0))
    seconds = rows.groupby([*features, "library"])["seconds"].median().unstack("library").dropna()
    mean = np.log(seconds).mean()
    return sorted(libraries, key=lambda library: float(mean[library]) if len(seconds) else 0.0)


def _source(rows: pd.DataFrame) -> str:
    """The sources of samples: file names without folders and lines, or the words of a table of single figures."""
    words = rows["source"].str.replace(r"^(?:.*/)?([^/ ]+):\d+$", r"\1", regex=True)
    return ", ".join(f"{text} ({count} rows)" for text, count in words.value_counts().items())
