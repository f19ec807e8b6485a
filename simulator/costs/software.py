"""What software takes over a profile's curves: factors of phases, fitted to measured steps."""

from dataclasses import replace

from ..collectives import Machines, Price
from .phases import OF_LAYERS


def by_software(found: Price, phase: str, machines: Machines, *, far: bool = False, besides: str = "") -> Price:
    """The price of an op with the software's factors: the profile's time and host work, multiplied.

    `far`: its group lies on several islands. `besides` is a parameter of host work. An exchange takes at least the time
    of its bytes at line rate. Its rates are lowered so that it moves the same bytes in the new time, and never exceed
    what its links sustain. Factors say what software takes over the curve of what a library chose, so the closed form
    of an algorithm keeps its own seconds.
    """
    if found.by_formula:
        return found
    usual = found.work_s + (machines.profile.value_or(besides, 0.0) if besides else 0.0)
    work = max(usual * _factor(phase, machines, far), min(usual, found.least_s))
    slower = work / found.work_s if found.demand else 1.0
    demand = {link: min(rate / slower, float(machines.capacity[link])) for link, rate in found.demand.items()}
    return replace(found, seconds=work + found.latency_s, demand=demand)


def _factor(phase: str, machines: Machines, far: bool) -> float:
    profile = machines.profile
    factor = profile.value_or(f"time_factor.{phase}", 1.0)
    if phase == "tp" and far:
        factor *= profile.value_or("time_factor.tp.network", 1.0)
    if phase in OF_LAYERS:
        factor *= profile.value_or("architecture.factor", 1.0)
    return factor
