"""How the GPUs of a node are joined by NVLink, and which of its NICs carry training traffic and where they hang.

A machine has more ports than rails: storage, management, spare ones. A NIC is a rail if it is the nearest one to some
GPU through PCIe switches alone. Where no NIC is beside a GPU, the fastest are taken; where the file has no rates
either, one NIC alone is the rail, and of several the user must name theirs.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...base.errors import UserError, unknown
from ...base.units import format_rate, parse
from .layout import Layout, Pair, capability, even_groups, identities


@dataclass(frozen=True)
class NvLink:
    """The values of a Cluster file: `rate` is of a GPU's port on the switch, or of one link of the wires."""

    kind: Literal["switch", "wires", "none"]
    rate: str = "0"
    rate_source: str = ""
    wires: tuple[tuple[int, int, int], ...] = ()
    note: str = ""


def nvlink(layout: Layout, device: str, board: Mapping[str, Any], expected: bool, where: str) -> NvLink:
    """The NVLink connection of the GPUs; `board` has the keys of the catalogue's node.

    `topo -m` counts the links of a pair, whether they run to the other GPU or to switches. They run to switches where
    one GPU's links to all others together would exceed what it has, or where, on a board with switches, each pair has
    all of them. A UserError for more links than the device has, or none where its board cannot be without (`expected`).
    """
    most = max((*layout.links.values(), *layout.switch_links), default=0)
    switched = board["nvlink"] == "switch"
    if most == 0:
        if switched and expected and layout.gpus > 1:
            hint = "`nvidia-smi topo -mp` hides them, `topo -m` does not; if the machine has none, add --no-nvlink"
            raise UserError(f"{where}: shows no NVLinks, but boards with {device} have them; {hint}")
        return NvLink("none")
    rate, ports, source = _port(device, board, most, where)
    if layout.switch_links:
        return _switch(layout.switch_links, rate, source)
    complete = len(layout.links) == layout.gpus * (layout.gpus - 1) // 2
    whole = switched and complete and set(layout.links.values()) == {ports}
    if _degree(layout.links) <= ports and (layout.direct or not whole):
        return NvLink("wires", rate, source, tuple((a, b, n) for (a, b), n in sorted(layout.links.items())))
    if not complete:
        raise UserError(f"{where}: NV# joins only some GPUs, yet with more links than the {ports} of {device}")
    return _switch([max(n for pair, n in layout.links.items() if g in pair) for g in range(layout.gpus)], rate, source)


def _switch(links: Sequence[int], rate: str, source: str) -> NvLink:
    """A port per GPU; all are as wide as the narrowest that works."""
    narrowest = min(n for n in links if n)
    lame = ", ".join(f"GPU{g} has {n} of {max(links)}" for g, n in enumerate(links) if n != max(links))
    note = f"NVLinks are missing: {lame}; every GPU is written with {narrowest}" if lame else ""
    port = format_rate(parse(rate, "bytes_per_s") * narrowest)
    return NvLink("switch", port, f"{narrowest} links x {rate} per direction; {source}", note=note)


def _port(device: str, board: Mapping[str, Any], most: int, where: str) -> tuple[str, int, str]:
    """Rate of a link, links of the device and the source of both."""
    known = identities()["nvlink"].get(str(capability(device)))
    if known is None:
        raise UserError(f"{where}: shows NVLinks, but {device} has none; name the right GPU with --device")
    if board["nvlink"] == "none":
        ports = known["links"]
    else:  # of a GPU of the catalogue's node
        width = _degree({(a, b): n for a, b, n in board["nvlink_wires"]}) if board["nvlink"] == "wires" else 1
        rate, each = (parse(text, "bytes_per_s") for text in (board["nvlink_bytes_per_s"], known["rate"]))
        ports = round(width * rate / each) or known["links"]
    if most > ports:
        raise UserError(f"{where}: shows {most} NVLinks, but {device} has {ports}; name the right GPU with --device")
    return known["rate"], ports, known["source"]


def _degree(links: Mapping[Pair, int]) -> int:
    """The most links that one GPU would need if each pair had its own."""
    total: Counter[int] = Counter()
    for pair, n in links.items():
        total.update(dict.fromkeys(pair, n))
    return max(total.values(), default=0)


@dataclass(frozen=True)
class Rails:
    """Indices of the NICs that are rails, on switches or on sockets, with the reason; what was left out and why."""

    nics: tuple[int, ...]
    attach: str
    why: str
    left_out: tuple[str, ...] = ()


def rails(layout: Layout, named: Sequence[str] | None, where: str) -> Rails:
    """The NICs that carry training traffic.

    A UserError for a name in `named` that no NIC has, or nothing that tells rails from other ports.
    """
    nearest = [layout.nearest_nics(gpu) for gpu in range(layout.gpus)]
    near = {nic for distance, nics in nearest if distance is not None and distance.by_switch for nic in nics}
    if named is not None:
        picked, why = _named(layout, named, where), "named with --nics"
    elif near:
        picked, why = _fastest(layout, near), "nearest to a GPU through PCIe switches alone"
    else:
        picked, why = _remote(layout, where), "no NIC shares a PCIe switch with a GPU"
    left_out = []
    for i, nic in enumerate(layout.nics):
        if i not in picked:
            slower = "slower than the others" if i in near or not near else "no GPU's nearest: storage or management"
            left_out.append(f"{nic}: {slower if named is None else 'not named with --nics'}")
    return Rails(picked, "switch" if near & set(picked) else "socket", why, tuple(left_out))


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


def rails_are_even(layout: Layout, picked: Sequence[int], switches: Sequence[Sequence[int]]) -> bool:
    """Whether each switch has as many rails as a Cluster file, which spreads them in order, gives it."""
    beside = [{n for g in group for n in layout.nearest_nics(g)[1]} & set(picked) for group in switches]
    return sorted(map(len, beside)) == sorted(map(len, even_groups(max(len(picked), 1), len(switches))))
