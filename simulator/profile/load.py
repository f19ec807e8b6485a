"""Reading profile and stack files: shipped ones by name, a user's by path, laid over the base that they name."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from ..base.errors import UserError, fault, unknown
from ..base.files import find_beside, read_json, read_toml
from ..base.schema import validate
from ..hardware import Cluster, Device, networks
from .entries import SCHEMA, Measured, ProfileFile, read_models
from .model import Ratio
from .parameters import MEASURED_ON, PARAMETERS, Parameter, parameters
from .profile import Models, Profile

SIBLING_WIDER = 0.1
"""A profile that is carried over from a device of its generation is no wider (docs/profiles.md, borrowed models)."""

_ABOUT = ("date", "source", "command", "samples", "environment", "base", "wider", "network", "covariance")


def load_profile(name: str, where: str = "profile", *, fitted: bool = True) -> Profile:
    """A shipped device profile by name, or one from a .json or .toml file; `where` is the file that names it.

    What the ledger of training steps says of a shipped profile is laid over what its file says, unless `fitted` is
    false. A number that the file has stated otherwise since the fit stands.

    Raises:
        UserError: no such profile, or a key or value that is not allowed; one line each.
    """
    return _load("profiles", name, where, "profile", fitted=fitted)


def load_stack(name: str, where: str = "stack", *, fitted: bool = True) -> Profile:
    """A shipped software stack by name, or one from a file, as `load_profile`.

    What the ledgers say of a shipped stack is laid over what its file says, unless `fitted` is false; what rests on
    that stack is laid over both.
    """
    return _load("stacks", name, where, "stack", fitted=fitted)


def load_network(kind: str, *, fitted: bool = True) -> Profile:
    """The numbers of a kind of network (data/networks.toml), with those fitted to the ledger if `fitted`.

    Raises:
        UserError: there is no such kind.
    """
    return _load("networks", kind, "networks.toml", "network", fitted=fitted)


def load_architecture(name: str, *, fitted: bool = True) -> Profile:
    """The numbers of a model architecture (data/architectures.toml), with fitted ones if `fitted`.

    Raises:
        UserError: there is no such architecture.
    """
    return _load("architectures", name, "architectures.toml", "architecture", fitted=fitted)


_TABLES: dict[str, Callable[[], Mapping[str, Any]]] = {
    "networks": networks,
    "architectures": lambda: read_toml(files("runcast.data") / "architectures.toml"),
}
"""Owners of parameters that are tables of one file."""


def stack_defaults(name: str, where: str = "stack") -> dict[str, Any]:
    """A stack's defaults for keys that a training scenario does not set, merged over those of its base.

    Raises:
        UserError: no such stack.
    """
    return dict(_shipped_defaults(name)) if name in _shipped("stacks") else _defaults(name, where)


@cache
def _shipped_defaults(name: str) -> dict[str, Any]:
    return _defaults(name, "stack")


def _defaults(name: str, where: str) -> dict[str, Any]:
    _load("stacks", name, where, "stack")  # refuses what it should, such as stacks that rest on each other
    file, content = _find("stacks", name, where, "stack")
    below = stack_defaults(content["base"], file) if "base" in content else {}
    own: dict[str, Any] = content.get("defaults", {})
    if wrong := [key for key in own if isinstance(own[key], dict) != isinstance(below.get(key, own[key]), dict)]:
        allowed = f"expected a value of the kind that {content['base']} has there"
        raise UserError(fault(file, f"defaults.{wrong[0]}", own[wrong[0]], allowed))
    tables = {key: {**below.get(key, {}), **value} for key, value in own.items() if isinstance(value, dict)}
    return {**below, **own, **tables}


def stack_chain(name: str) -> list[str]:
    """A shipped stack and those that it rests on, itself first."""
    chain = [name]
    while (base := _content("stacks", chain[-1]).get("base")) is not None:
        chain.append(base)
    return chain


@cache
def fitted_parameters(folder: str = "stacks") -> Mapping[str, Mapping[str, Parameter]]:
    """The parameters fitted to the ledgers of data/validation, by shipped stack (or profile)."""
    return {of: parameters("validation", entries) for of, entries in _fits(folder).items()}


def own_values(folder: str, name: str) -> dict[str, float]:
    """The values that a shipped file or table states itself, by parameter."""
    return {key: entry["value"] for key, entry in _content(folder, name).get("parameters", {}).items()}


def _fitted_over(folder: str, of: str) -> dict[str, Parameter]:
    """The fitted parameters of a file, except values that the file states only since the fit."""
    known = fitted_parameters(folder).get(of, {})
    now, then = own_values(folder, of), _fits("stated", folder).get(of, {})
    return {name: fit for name, fit in known.items() if now.get(name) == then.get(name)}


@cache
def _fits(*keys: str) -> dict[str, dict[str, Any]]:
    """A table of the files of fitted parameters that there are, by owner; training steps win."""
    found: dict[str, dict[str, Any]] = {}
    for name in ("weight_update_fit.json", "training_fit.json"):
        file = files("runcast.data") / "validation" / name
        table = _read(file) if file.is_file() else {}
        for key in keys:
            table = table.get(key, {})
        for of, entries in table.items():
            found.setdefault(of, {}).update(entries)
    return found


def check_complete(profile: Profile, where: str) -> None:
    """Raise UserError with one line for each parameter that a prediction needs and the profile lacks."""
    missing = [name for name in PARAMETERS if name not in profile.parameters]
    if missing:
        raise UserError(*(f"{where}: {profile.name}: {n}: is missing; expected {PARAMETERS[n][2]}" for n in missing))


def check_stack(profile: Profile, stack: str, where: str) -> None:
    """Raise a UserError if a profile lacks numbers of the generic stack, as with a stack that rests on no other."""
    if missing := [name for name in own_values("stacks", "generic") if name not in profile.parameters]:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        allowed = f"lacks {missing[0]}{more}; name the stack that it changes, such as base = 'generic'"
        raise UserError(fault(where, "stack", stack, allowed))


def profile_for(*devices: str) -> str:
    """The shipped profile of the first of these devices that has one, by names of the catalogue, or the generic one."""
    owner = {of: name for name in _shipped("profiles") for of in _content("profiles", name).get("devices", ())}
    return next((owner[device] for device in devices if device in owner), "generic")


def without_profile(devices: Iterable[Device]) -> list[str]:
    """The names of those that no shipped profile is made for; the generic one has no times of kernels."""
    lineages = {device.name: device.lineage for device in devices}
    return [name for name, lineage in lineages.items() if profile_for(*lineage) == "generic"]


def shipped_base(name: str, where: str) -> str:
    """The first shipped profile among this one and those that it rests on; none if a user's own rests on no other."""
    return _down_to_shipped(name, where)[1]


def profile_files(name: str, where: str) -> list[str]:
    """The user's own files among a profile and those that it rests on, itself first."""
    return _down_to_shipped(name, where)[0]


def _down_to_shipped(name: str, where: str) -> tuple[list[str], str]:
    """(files, name): a user's own profiles from this one down, and the shipped one that they rest on, or nothing."""
    found = list[str]()
    while name and name not in _shipped("profiles"):
        where, content = _find("profiles", name, where, "profile")
        found.append(where)
        name = content.get("base", "")
    return found, name


def profile_names() -> list[str]:
    """The names of all shipped profiles."""
    return list(_shipped("profiles"))


def stack_names() -> list[str]:
    """The names of all shipped stacks."""
    return list(_shipped("stacks"))


def fits_device(profile: Profile, device: Device) -> bool:
    """Whether the profile is made for this device, for one that it is `like`, or for any."""
    return not profile.devices or not set(device.lineage).isdisjoint(profile.devices)


def check_devices(profile: Profile, devices: Sequence[Device], where: str) -> None:
    """Raise UserError if the profile is made for other devices than these; it names the one that fits."""
    if others := [device for device in devices if not fits_device(profile, device)]:
        made_for = f"is made for {', '.join(profile.devices)}, not for {', '.join(map(_with_lineage, others))}"
        own = profile_for(*others[0].lineage)
        raise UserError(fault(where, "profile", profile.name, f"{made_for}, whose profile is {own}"))


def _with_lineage(device: Device) -> str:
    """The name of a device, and of those that it is `like`."""
    name, *alike = device.lineage
    return f"{name} or what it is like ({', '.join(alike)})" if alike else name


@cache
def _shipped(folder: str) -> Mapping[str, Any]:
    """The files of a folder, or the tables of a file, by name; only the files that are asked for are read."""
    if folder in _TABLES:
        return {name: {"schema": SCHEMA, **table} for name, table in _TABLES[folder]().items()}
    entries = sorted((files("runcast.data") / folder).iterdir(), key=lambda entry: entry.name)
    return {entry.name.rsplit(".", 1)[0]: entry for entry in entries}


@cache
def _content(folder: str, name: str) -> dict[str, Any]:
    entry = _shipped(folder)[name]
    return entry if isinstance(entry, dict) else _read(entry)


def _load(
    folder: str, name: str, where: str, key: str, above: tuple[str, ...] = (), *, fitted: bool = False
) -> Profile:
    """A profile laid over its base; `above` are the files that rest on this one."""
    file, content = _find(folder, name, where, key)
    place = os.path.realpath(file)
    if place in above:
        raise UserError(fault(where, key, name, "rests on itself; a chain of bases must end"))
    said = validate(ProfileFile, content, file)
    base = Profile(name, {})
    if said.base is not None:
        base = _load(folder, said.base, file, "base", (*above, place), fitted=fitted).carry_over(said.wider)
    shipped = name in _shipped(folder)
    models = _shipped_models(folder, name) if shipped else read_models(said.models, file, _measured(said, base))
    found = _over(base, said, models, content, name, file)
    known = _fitted_over(folder, name) if fitted and shipped else {}
    return replace(found, parameters={**found.parameters, **known})


@cache
def _shipped_models(folder: str, name: str) -> Models:
    """The models of a shipped file, which take long to read."""
    file = f"{folder}/{name}"
    said = validate(ProfileFile, _content(folder, name), file)
    base = _load(folder, said.base, file, "base") if said.base is not None else Profile(name, {})
    return read_models(said.models, file, _measured(said, base))


def _measured(said: ProfileFile, base: Profile) -> Measured:
    """What was measured for a file: what it says, else what its base was measured on."""
    return Measured(said.limits or base.limits, said.network or base.about.get("network", MEASURED_ON))


def read_profile(content: Mapping[str, Any], file: str) -> Profile:
    """The profile in a file's content, without its base.

    Raises:
        UserError: a key or value that is not allowed; one line each.
    """
    said = validate(ProfileFile, content, file)
    none = Profile(file, {})
    return _over(none, said, read_models(said.models, file, _measured(said, none)), content, file, file)


def _over(base: Profile, said: ProfileFile, own: Models, content: Mapping[str, Any], name: str, file: str) -> Profile:
    """The profile of a file with models of its own, merged over its base."""
    models = {**base.models, **own}
    _check_ratios(models, file)
    network = _measured(said, base).network
    on = {} if network == MEASURED_ON else {"network": network}
    return Profile(
        name=said.name or name,
        parameters={**base.parameters, **parameters(file, _on(network, said.parameters))},
        models=models,
        devices=base.devices if said.devices is None else said.devices,
        limits=said.limits or base.limits,
        about=on | {key: content[key] for key in _ABOUT if key in content},
    )


def _on(network: str, entries: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entries of parameters, with the network that they were measured on where they do not say."""
    if network == MEASURED_ON:
        return entries
    return {name: {"network": network, **x} if isinstance(x, Mapping) else x for name, x in entries.items()}


def _check_ratios(models: Models, file: str) -> None:
    """A class that is a multiple of another one must rest on something in the end."""
    first = {kind: next(iter(variants.values())) for kind, variants in models.items()}
    like = {kind: entry.like for kind, entry in first.items() if isinstance(entry, Ratio)}
    for kind in like:
        chain = [kind]
        while chain[-1] in like:
            chain.append(like[chain[-1]])
            if chain[-1] in chain[:-1]:
                raise UserError(f"{file}: models.{kind}: rests on itself: {' -> '.join(chain)}")


def _find(folder: str, name: str, where: str, key: str) -> tuple[str, dict[str, Any]]:
    """(the file's name in messages, its content) for the name of a profile or stack."""
    if name in _shipped(folder):
        return f"{folder}/{name}", _content(folder, name)
    if name.endswith((".json", ".toml")):
        path = find_beside(name, where, key)
        return str(path), _read(path)
    raise unknown(where, key, name, _shipped(folder))


def _read(path: Traversable) -> dict[str, Any]:
    content = read_json(path) if path.name.endswith(".json") else read_toml(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds {type(content).__name__}, not an object; expected one with parameters")
    return content


Names = Mapping[str, str]
"""The name of a profile by the name of a device, the slowest device first."""


def devices_of(machines: Cluster) -> tuple[Device, ...]:
    """The kinds of GPU in a cluster, the slowest first, in whatever order its nodes are listed."""
    found = {node.device.name: node.device for node in machines.nodes}
    return tuple(sorted(found.values(), key=_speed))


def _speed(device: Device) -> tuple[float, float, str]:
    peaks = device.peak_flop_per_s
    return peaks.get("bf16", peaks.get("fp16", 0.0)), device.memory_bytes_per_s, device.name


def choose_profiles(devices: Sequence[Device], named: str | None, where: str) -> Names:
    """The profile that a scenario names for the devices that it is made for, and for others their own.

    Raises:
        UserError: there is no such profile, or it is made for none of the devices.
    """
    own = {device.name: profile_for(*device.lineage) for device in devices}
    if named is None:
        return own
    profile = load_profile(named, where)
    fitting = [device.name for device in devices if fits_device(profile, device)]
    if not fitting:
        check_devices(profile, devices, where)
    return own | dict.fromkeys(fitting, named)


def load_numbers(names: Names, network: str, architecture: str, stack: str, where: str) -> Profile:
    """The profile of the slowest device, joined with a kind of network and an architecture, if known, and the stack.

    Those of other devices are in it (`Profile.device_profile`). What the stack says is measured by an op of the profile
    has the profile's time, if that was measured.

    Raises:
        UserError: a file cannot be read, or says what is not allowed.
    """
    loaded = {name: load_profile(name, where) for name in dict.fromkeys(names.values())}
    first, *_ = names.values()
    others = {device: loaded[name] for device, name in names.items() if name != first}
    joined = replace(loaded[first], others=others)
    if network:
        joined = joined.join(load_network(network))
    if architecture:
        joined = joined.join(load_architecture(architecture))
    return joined.join(load_stack(stack, where)).read_measured()


def profile_notes(names: Names, named: str | None) -> list[str]:
    """A note for each profile that was chosen by device."""
    devices: dict[str, list[str]] = {}
    for device, name in names.items():
        devices.setdefault(name, []).append(device)
    own = {False: "chosen by device", True: "nothing is known of its own"}
    return [
        f"profile of {', '.join(of)}: {name}; {own[name == 'generic']}" for name, of in devices.items() if name != named
    ]
