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
from ...simulator.hardware import cluster, cluster_names, limits
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
    with_device = (name for name in cluster_names() if cluster(name, 1).device(0).name == device)
    machine = flags.cluster or next(with_device, None)
    if machine is None:
        raise UserError(f"--cluster: the catalogue has no cluster of {device}; name a cluster file")
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
    used = samples.table[samples.table["device"] == device]
    origin = Origin(
        name=flags.name or out.stem,
        device=device,
        cluster=machine,
        host_link=min((hardware.links[link] for link in hardware.h2d_route(0)), key=lambda link: link.bytes_per_s).kind,
        date=datetime.date.today().isoformat(),
        source=flags.source,
        command=_command(paths, flags, device, machine),
        files=[
            {"file": path.name, "sha256": digest(path), "rows": int((used["file"] == str(path)).sum())}
            for path in paths
        ],
        base=flags.base,
        wider=wider,
        stated=stated,
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
    return shlex.join(words + [word for value in flags.prefer for word in ("--prefer", value)])


def _device(samples: Samples, asked: str | None) -> str:
    if asked is not None:
        return find_device(asked, "--device").name
    if not samples.devices:
        raise UserError("--device: missing; without samples a profile of this device is derived from --base")
    if len(samples.devices) != 1:
        raise UserError(f"--device: the samples are of {', '.join(samples.devices)}; name one")
    return find_device(samples.devices[0], "samples").name


_SCORES = ("median", "p90", "bias")


def _errors(content: dict[str, Any]) -> pd.DataFrame:
    """Errors in per cent of each model, on what its fit has not seen."""
    rows = []
    for kind, entry in content["models"].items():
        for library, model in entry["variants"].items():
            scored = model["held_out"]
            percent = {f"{name} %": round(100 * scored[name], 1) if scored["rows"] else "-" for name in _SCORES}
            marked = "*" if library == entry["default"] and len(entry["variants"]) > 1 else ""
            how = {"left out": model["left_out"], "scored rows": scored["rows"]}
            rows.append({"class": kind, "library": library + marked, **how, **percent})
    return pd.DataFrame(rows)
