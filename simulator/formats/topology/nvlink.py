"""How the GPUs of a node are joined by NVLink: through switches, by wires, or not."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...base.errors import UserError
from ...base.units import format_rate, parse
from ...hardware.files import Table, plain
from .identify import capability
from .layout import Layout, Pair

_PER_LINK = {
    70: ("25 GB/s", 6, "NVIDIA V100 data sheet: 300 GB/s total of both directions over 6 links; /6 /2"),
    80: ("25 GB/s", 12, "NVIDIA A100 data sheet: 600 GB/s total of both directions over 12 links; /12 /2"),
    90: ("25 GB/s", 18, "NVIDIA H100 data sheet: 900 GB/s total of both directions over 18 links; /18 /2"),
    100: ("50 GB/s", 18, "NVIDIA HGX B200 data sheet: 1800 GB/s total of both directions over 18 links; /18 /2"),
    103: ("50 GB/s", 18, "NVIDIA HGX B300 data sheet: 1800 GB/s total of both directions over 18 links; /18 /2"),
}
"""By compute capability: what one NVLink carries in one direction, how many a GPU has at most, and who says so."""


@dataclass(frozen=True)
class NvLink:
    """The values of a Cluster file: `rate` is of a GPU's port on the switch, or of one link of the wires."""

    kind: Literal["switch", "wires", "none"]
    rate: str = "0"
    rate_source: str = ""
    wires: tuple[tuple[int, int, int], ...] = ()
    note: str = ""


def nvlink(layout: Layout, device: str, node: Table, expected: bool, where: str) -> NvLink:
    """What joins the GPUs.

    `topo -m` counts the links of a pair, whether they run to the other GPU or to switches. They run to switches where
    one GPU's links to all others together would exceed what it has, or where, on a board with switches, each pair has
    all of them.

    Raises:
        UserError: more links than the device has, or none where its board cannot be without (`expected`).
    """
    degree, most = _degree(layout.links), max((*layout.links.values(), *layout.switch_links), default=0)
    if most == 0:
        _check_absence(layout, device, plain(node)["nvlink"] == "switch" and expected, where)
        return NvLink("none")
    rate, ports, source = _port(device, node, most, where)
    if layout.switch_links:
        return _switch(layout.switch_links, rate, source)
    whole = plain(node)["nvlink"] == "switch" and set(layout.links.values()) == {ports}
    if degree <= ports and (layout.direct or not (whole and _complete(layout))):
        return NvLink("wires", rate, source, tuple((a, b, n) for (a, b), n in sorted(layout.links.items())))
    if not _complete(layout):
        raise UserError(f"{where}: NV# joins only some GPUs, yet with more links than the {ports} of {device}")
    return _switch([max(n for pair, n in layout.links.items() if g in pair) for g in range(layout.gpus)], rate, source)


def _switch(links: Sequence[int], rate: str, source: str) -> NvLink:
    """A port per GPU; all are as wide as the narrowest that works."""
    narrowest = min(n for n in links if n)
    lame = ", ".join(f"GPU{g} has {n} of {max(links)}" for g, n in enumerate(links) if n != max(links))
    note = f"NVLinks are missing: {lame}; every GPU is written with {narrowest}" if lame else ""
    port = format_rate(parse(rate, "bytes_per_s") * narrowest)
    return NvLink("switch", port, f"{narrowest} links x {rate} per direction; {source}", note=note)


def _port(device: str, node: Table, most: int, where: str) -> tuple[str, int, str]:
    """Rate of a link, links of the device and the source of both."""
    sm = capability(device)
    if sm not in _PER_LINK:
        raise UserError(f"{where}: shows NVLinks, but {device} has none; name the right GPU with --device")
    rate, ports, source = _PER_LINK[sm]
    ports = _catalogue_ports(plain(node), rate) or ports
    if most > ports:
        raise UserError(f"{where}: shows {most} NVLinks, but {device} has {ports}; name the right GPU with --device")
    return rate, ports, source


def _catalogue_ports(node: Mapping[str, object], rate: str) -> int:
    """How many links a GPU of the catalogue's node has; 0 without NVLink."""
    if node["nvlink"] == "none":
        return 0
    wires = node.get("nvlink_wires", [])
    assert isinstance(wires, list)
    width = _degree({(a, b): n for a, b, n in wires}) if node["nvlink"] == "wires" else 1
    return round(width * parse(str(node["nvlink_bytes_per_s"]), "bytes_per_s") / parse(rate, "bytes_per_s"))


def _degree(links: Mapping[Pair, int]) -> int:
    """The most links that one GPU would need if each pair had its own."""
    total: Counter[int] = Counter()
    for pair, n in links.items():
        total.update(dict.fromkeys(pair, n))
    return max(total.values(), default=0)


def _complete(layout: Layout) -> bool:
    return len(layout.links) == layout.gpus * (layout.gpus - 1) // 2


def _check_absence(layout: Layout, device: str, switched: bool, where: str) -> None:
    if switched and layout.gpus > 1:
        hint = "`nvidia-smi topo -mp` hides them, `topo -m` does not; if the machine has none, add --no-nvlink"
        raise UserError(f"{where}: shows no NVLinks, but boards with {device} have them; {hint}")
