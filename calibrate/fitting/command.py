"""What `runcast calibrate fit` does between its flags and its file."""

import datetime
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Any

import pandas as pd

from ...simulator.answers.validate import predict_samples
from ...simulator.base.errors import UserError
from ...simulator.base.files import digest, read_json, read_toml, write_atomic
from ...simulator.formats.samples import Samples, read_samples
from ...simulator.hardware import Cluster, cluster, cluster_names, limits
from ...simulator.hardware import device as find_device
from ...simulator.profile import Profile, load_profile, read_profile
from ...simulator.profile.forms import cost_class
from .errors import WEAK
from .profile import Origin, fit_profile

_ODD = 20.0
"""Ratio of samples to the base beyond which a unit is wrong rather than a machine slow."""

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


def fit_files(paths: Sequence[Path], flags: Flags) -> tuple[pd.DataFrame, Samples, list[str]]:
    """Fit, write the profile, and return its errors as a table, the samples read, and what looks odd.

    Raises:
        UserError: samples that cannot be read, or of which device is not clear; nothing is written then.
    """
    out = flags.out
    if out.suffix != ".json":
        raise UserError(f"--out = {str(out)!r}: expected a name that ends in .json")
    base = load_profile(flags.base, "--base")
    samples = read_samples(paths)
    device = _device(samples, flags.device)
    machine = flags.cluster or _cluster_of(device)
    hardware = cluster(machine, 1, "--cluster")
    if hardware.device(0).name != device:
        raise UserError(f"--cluster = {machine!r}: has {hardware.device(0).name}, not {device}")
    origin = Origin(
        name=flags.name or out.stem,
        device=device,
        cluster=machine,
        host_link=_host_link(hardware),
        date=datetime.date.today().isoformat(),
        source=flags.source,
        command=_command(paths, flags, device, machine),
        files=[_file(path, samples, device) for path in paths],
        base=flags.base,
        wider=_wider(flags.wider, base, device),
        stated=_stated(flags.also) if flags.also else {},
    )
    content = fit_profile(samples, limits(hardware), origin, flags.prefer)
    read_profile(content, str(out))  # what cannot be read back is not written
    write_atomic(out, (json.dumps(content, indent=1) + "\n").encode())
    return _errors(content), samples, [*_odd(base, samples, device), *_doubtful(content)]


def _odd(base: Profile, samples: Samples, device: str) -> list[str]:
    """Classes whose samples differ from the base by more than devices do: a unit, or another meaning of a column."""
    if base.limits is None:
        return []
    scored = predict_samples(base, samples.table[samples.table["device"] == device])
    ratios = (scored["seconds"] / scored["predicted_s"]).groupby(scored["cost_class"]).median()
    odd = ratios[(ratios > _ODD) | (ratios < 1 / _ODD)]
    return [f"{kind}: the samples take {far:.3g} times what {base.name} says; seconds?" for kind, far in odd.items()]


def _doubtful(content: dict[str, Any]) -> list[str]:
    """Models not to rely on: those that miss much, and those whose coefficients ran as far as they may."""
    models = [(kind, model) for kind, entry in content["models"].items() for model in entry["variants"].values()]
    weak = [kind for kind, model in models if model["held_out"]["rows"] and model["held_out"]["p90"] > WEAK]
    bound = [kind for kind, model in models if _at_bounds(kind, model["coefficients"]) > _BOUNDS]
    lines = [f"off by more than {WEAK:.0%} on a tenth of the rows left out: {_counted(weak)}"] if weak else []
    return lines + ([f"{_BOUNDS + 1} or more coefficients at a bound: {_counted(bound)}"] if bound else [])


_BOUNDS = 2
"""Coefficients at a bound that a fit may have: more of them, and the form does not describe the samples."""


def _at_bounds(kind: str, coefficients: dict[str, float]) -> int:
    found = cost_class(kind)
    assert found is not None, kind
    limits_of = {c.name: (c.low, c.high) for c in found.form.coefficients}
    return sum(
        any(isclose(value, end, rel_tol=0.01) for end in limits_of[name]) for name, value in coefficients.items()
    )


def _counted(kinds: Sequence[str]) -> str:
    return f"{len(kinds)} models, of {', '.join(dict.fromkeys(kinds))}"


def _wider(asked: float | None, base: Profile, device: str) -> float:
    """What carrying over adds where nobody says: as between generations, unless the base is of this device or any."""
    if asked is not None:
        return asked
    return _OTHER_DEVICE if base.devices and device not in base.devices else 0.0


def _host_link(hardware: Cluster) -> str:
    """Kind of the narrowest link between host memory and the first GPU."""
    return min((hardware.links[link] for link in hardware.h2d_route(0)), key=lambda link: link.bytes_per_s).kind


def _stated(path: Path) -> dict[str, Any]:
    """The parameters of a file, as they stand there.

    Raises:
        UserError: the file cannot be read, or an entry is not allowed.
    """
    load_profile(str(path), "--also")
    found: dict[str, Any] = (read_json if path.suffix == ".json" else read_toml)(path).get("parameters", {})
    return found


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
    return shlex.join(words + [word for value in flags.prefer for word in ("--prefer", value)])


def _device(samples: Samples, asked: str | None) -> str:
    if asked is not None:
        return find_device(asked, "--device").name
    found = samples.devices
    if not found:
        raise UserError("--device: missing; without samples a profile of this device is derived from --base")
    if len(found) != 1:
        raise UserError(f"--device: the samples are of {', '.join(found)}; name one")
    return find_device(found[0], "samples").name


def _cluster_of(device: str) -> str:
    """The first catalogue cluster of this device."""
    fitting = [name for name in cluster_names() if cluster(name, 1).device(0).name == device]
    if not fitting:
        raise UserError(f"--cluster: the catalogue has no cluster of {device}; name a cluster file")
    return fitting[0]


def _file(path: Path, samples: Samples, device: str) -> dict[str, Any]:
    """Which bytes were read, and how many rows of them were used."""
    used = (samples.table["file"] == str(path)) & (samples.table["device"] == device)
    return {"file": path.name, "sha256": digest(path), "rows": int(used.sum())}


def _errors(content: dict[str, Any]) -> pd.DataFrame:
    """Errors in per cent of each model, on what its fit has not seen."""
    rows = []
    for kind, entry in content["models"].items():
        for library, model in entry["variants"].items():
            held = model["held_out"]
            told = held["rows"] > 0
            percent = {f"{key} %": round(100 * held[key], 1) if told else "-" for key in ("median", "p90", "bias")}
            marked = "*" if library == entry["default"] and len(entry["variants"]) > 1 else ""
            how = {"left out": model["left_out"], "scored rows": held["rows"]}
            rows.append({"class": kind, "library": library + marked, **how, **percent})
    return pd.DataFrame(rows)
