"""The numbers of a scenario: which profile each kind of GPU in the cluster has, joined with the software stack."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..hardware import Cluster, Device
from . import Profile, check_devices, load_architecture, load_network, load_profile, load_stack, profile_for

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
    own = {device.name: profile_for(device.measured_as) for device in devices}
    if named is None:
        return own
    made_for = load_profile(named, where).devices
    fitting = [device.name for device in devices if not made_for or device.measured_as in made_for]
    if not fitting:
        check_devices(load_profile(named, where), [device.measured_as for device in devices], where)
    return own | dict.fromkeys(fitting, named)


def load_numbers(names: Names, network: str, architecture: str, stack: str, where: str) -> Profile:
    """The profile of the slowest device, joined with a kind of network and an architecture, if known, and the stack.

    Those of other devices are in it (`Profile.on`).

    Raises:
        UserError: a file cannot be read, or says what is not allowed.
    """
    loaded = {name: load_profile(name, where) for name in dict.fromkeys(names.values())}
    first, *_ = names.values()
    others = {device: loaded[name] for device, name in names.items() if name != first}
    joined = replace(loaded[first], others=others)
    if network:
        joined = joined.joined(load_network(network))
    if architecture:
        joined = joined.joined(load_architecture(architecture))
    return joined.joined(load_stack(stack, where))


def notes_on(names: Names, named: str | None) -> list[str]:
    """Which profiles were chosen by device, one line for each."""
    devices: dict[str, list[str]] = {}
    for device, name in names.items():
        devices.setdefault(name, []).append(device)
    own = {False: "chosen by device", True: "nothing is known of its own"}
    return [
        f"profile of {', '.join(of)}: {name}; {own[name == 'generic']}" for name, of in devices.items() if name != named
    ]
