"""Which NICs of a node carry training traffic, and where they hang.

A machine has more ports than rails: storage, management, spare ones. A NIC is a rail if it is the nearest one to some
GPU through PCIe switches alone. Where no NIC is beside a GPU, the fastest are taken; where the file has no rates
either, one NIC alone is the rail, and of several the user must name theirs.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...base.errors import UserError, unknown
from .layout import Layout, evenly


@dataclass(frozen=True)
class Rails:
    """Indices of the NICs that are rails, on switches or on sockets, with the reason; what was left out and why."""

    nics: tuple[int, ...]
    attach: str
    why: str
    left_out: tuple[str, ...] = ()


def rails(layout: Layout, named: Sequence[str] | None, where: str) -> Rails:
    """The NICs that carry training traffic.

    Raises:
        UserError: a name in `named` that no NIC has, or nothing that tells rails from other ports.
    """
    near = _near(layout)
    if named is not None:
        picked, why = _named(layout, named, where), "named with --nics"
    elif near:
        picked, why = _fastest(layout, near), "nearest to a GPU through PCIe switches alone"
    else:
        picked, why = _remote(layout, where), "no NIC shares a PCIe switch with a GPU"
    attach = "switch" if near & set(picked) else "socket"
    left_out = {i: str(nic) for i, nic in enumerate(layout.nics) if i not in picked}
    return Rails(
        picked, attach, why, tuple(f"{nic}: {_reason(i in near or not near, named)}" for i, nic in left_out.items())
    )


def _near(layout: Layout) -> set[int]:
    """NICs that are the nearest of some GPU, behind a switch that both share."""
    nearest = [layout.nearest_nics(gpu) for gpu in range(layout.gpus)]
    return {nic for distance, nics in nearest if distance is not None and distance.by_switch for nic in nics}


def _named(layout: Layout, named: Sequence[str], where: str) -> tuple[int, ...]:
    if list(named) == ["all"]:
        return tuple(range(len(layout.nics)))
    at = {label: i for i, nic in enumerate(layout.nics) for label in nic.labels}
    for name in named:
        if name not in at:
            raise unknown("--nics", f"NIC of {where}", name, [*at, "all"])
    return tuple(sorted({at[name] for name in named}))


def _fastest(layout: Layout, candidates: Collection[int]) -> tuple[int, ...]:
    """A Cluster file has one rate for all; NICs without a rate stay."""
    best = max((layout.nics[i].bytes_per_s or 0 for i in candidates), default=0)
    return tuple(i for i in sorted(candidates) if layout.nics[i].bytes_per_s in (None, best))


def _remote(layout: Layout, where: str) -> tuple[int, ...]:
    everything = range(len(layout.nics))
    if len(everything) > 1 and any(nic.bytes_per_s is None for nic in layout.nics):
        names = ",".join(nic.labels[0] for nic in layout.nics)
        hint = f"name the rails, from --nics {names}" if len(names) < 80 else "name the rails with --nics"
        raise UserError(f"{where}: no NIC shares a PCIe switch with a GPU, so storage ports look like rails; {hint}")
    return _fastest(layout, everything)


def _reason(slower: bool, named: Sequence[str] | None) -> str:
    if named is not None:
        return "not named with --nics"
    return "slower than the others" if slower else "no GPU's nearest: storage or management"


def spread_evenly(layout: Layout, picked: Sequence[int], switches: Sequence[Sequence[int]]) -> bool:
    """Whether each switch has as many rails as a Cluster file, which spreads them in order, gives it."""
    beside = [{n for g in group for n in layout.nearest_nics(g)[1]} & set(picked) for group in switches]
    return sorted(map(len, beside)) == sorted(map(len, evenly(max(len(picked), 1), len(switches))))
