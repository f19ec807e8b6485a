"""The XML that NCCL writes to NCCL_TOPO_DUMP_FILE: a tree of NUMA nodes, PCIe bridges, GPUs and NICs.

Only elements and attributes that say how a node is wired are read; identifiers of the host or of a port are not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from ...base.errors import UserError, fault
from .layout import MOST_GPUS, Distance, Layout, Nic, Pair, identities, network_of

TOOL = "NCCL topology XML"

_NVSWITCH, _CPU, _GPU, _NETWORK = "0x068000", "0x068001", "0x03", "0x02"  # PCI classes, as NCCL tells targets apart
_NIC_CLASS = {"0x0207": "infiniband", "0x0200": "roce"}  # PCI classes of an adapter in InfiniBand and in Ethernet mode
_DEEPEST = 64
_NAME = re.compile(r"[A-Za-z][\w.+-]{0,31}")
_SLINGSHOT = ("cxi", "hsn")  # Ethernet by its class, not by its latency
_LANE_RATE = {8: 3, 16: 4, 32: 5, 64: 6}
"""PCIe generation by GT/s of 16 lanes; fewer lanes at a higher rate carry as much as an older generation."""


@dataclass(frozen=True)
class _Place:
    """The position of a device: its parents, from the nearest one up to the NUMA node."""

    element: Element
    above: tuple[Element, ...]

    def distance(self, other: "_Place") -> Distance:
        meet = next((e for e in self.above if any(e is o for o in other.above)), None)
        if meet is None or meet.tag == "system":
            return Distance.SYS
        if meet.tag == "cpu":
            return Distance.PHB
        return Distance.PIX if meet is self.above[0] is other.above[0] else Distance.PXB

    @property
    def numa(self) -> str:
        return next((e.get("numaid", "") for e in self.above if e.tag == "cpu"), "")


def holds_topology(text: str) -> bool:
    """Whether the text has the outermost element of a topology."""
    return re.search(r"<system[\s>/]", text) is not None


def read_xml(text: str, where: str) -> Layout:
    """The first host of a topology.

    A UserError if it is not XML, or for a document type or an element that means nothing; one line with its place.
    """
    root = _root(text, where)
    places = list(_places(root, where))
    gpus = [p for p in places if p.element.tag == "pci"
            and (p.element.find("gpu") is not None or p.element.get("class", "").startswith(_GPU))]  # fmt: skip

    def number(place: _Place) -> int:  # as NCCL counts them; without that, in the order of the file
        gpu = place.element.find("gpu")
        return 0 if gpu is None or gpu.get("dev") is None else _whole(gpu, "dev", where, _busid(place.element))

    gpus.sort(key=number)
    if not 0 < len(gpus) <= MOST_GPUS:
        allowed = f"expected 1 to {MOST_GPUS} <pci> elements with <gpu>, or of class 0x0302"
        raise UserError(fault(f"{where}: system", "GPUs of the first host", len(gpus), allowed))
    for gpu in gpus:
        if (vendor := gpu.element.get("vendor", "0x10de")).lower() != "0x10de":
            allowed = "expected 0x10de, a GPU of NVIDIA"
            raise UserError(fault(f"{where}: {_busid(gpu.element)}", "vendor", vendor, allowed))
    ports = [(port, nic) for port in places for nic in _nics(port, where)]
    direct, switched = _nvlinks([g.element for g in gpus], where)
    known = identities()["pci_ids"]
    capabilities = {_whole(e, "sm", where, _busid(g.element)) for g in gpus
                    if (e := g.element.find("gpu")) is not None and "sm" in e.attrib}  # fmt: skip
    if len(capabilities) > 1:
        raise UserError(fault(where, "sm", sorted(capabilities), "expected one kind of GPU in a node"))
    return Layout(
        tool=TOOL,
        gpus=len(gpus),
        nics=tuple(nic for _, nic in ports),
        gpu_distance={(a, b): gpus[a].distance(gpus[b]) for b in range(len(gpus)) for a in range(b)},
        nic_distance={(g, n): gpus[g].distance(ports[n][0]) for g in range(len(gpus)) for n in range(len(ports))},
        links=direct,
        direct=True,
        switch_links=tuple(switched) if any(switched) else (),
        numa=tuple(g.numa for g in gpus) if all(g.numa.isdigit() for g in gpus) else (),
        pcie_gen=_slowest(g.element for g in gpus),
        upstream_gen=_slowest(g.above[-3] for g in gpus if len(g.above) > 2),
        devices=tuple(sorted({known[key] for g in gpus if (key := g.element.get("device", "").lower()) in known})),
        devices_from="its PCI device id in the XML",
        compute_capability=next(iter(capabilities), None),
    )


def _root(text: str, where: str) -> Element:
    """The element `system`, out of whatever a terminal shows around it."""
    if re.search(r"<!(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        raise UserError(f"{where}: has a document type (<!DOCTYPE>); expected the plain XML that NCCL writes")
    found = re.search(r"<system[\s>/]", text)
    assert found is not None
    start, end = found.start(), text.rfind("</system>")
    try:
        return ElementTree.fromstring(text[start : end + len("</system>")] if end > start else text[start:])
    except ElementTree.ParseError as error:
        line = text.count("\n", 0, start) + error.position[0]
        raise UserError(f"{where}:{line}: is not XML: {str(error).partition(':')[0]}") from None


def _places(root: Element, where: str) -> Iterator[_Place]:
    """Each PCI device and each NIC without one, of the first host in the file."""
    host = next((cpu.get("host_hash") for cpu in root.iter("cpu")), None)
    for cpu in root.findall("cpu"):
        if cpu.get("host_hash") == host:
            for element in cpu:
                yield from _below(_Place(element, (cpu, root)), where)


def _below(place: _Place, where: str) -> Iterator[_Place]:
    """A place, and the PCI devices within it."""
    yield place
    if len(place.above) > _DEEPEST:
        raise UserError(f"{where}: {_busid(place.element)}: more than {_DEEPEST} elements above it")
    for element in place.element.findall("pci"):
        yield from _below(_Place(element, (place.element, *place.above)), where)


def _nics(place: _Place, where: str) -> Iterator[Nic]:
    """The ports of an adapter: its `net` elements, or the adapter itself in files that people write by hand."""
    element = place.element
    nets = list(element.iter("net")) if element.tag == "nic" else element.findall("nic/net")
    for net in nets:
        name = net.get("name", "")
        labels = (name,) if _NAME.fullmatch(name) else ("unnamed",)
        rate = _whole(net, "speed", where, f"net {labels[0]}") * 1e6 / 8 if "speed" in net.attrib else None
        yield Nic(labels, rate, network_of(name) or (None if name.startswith(_SLINGSHOT) else _by_class(element)))
    if element.tag == "pci" and not nets and element.get("class", "").startswith(_NETWORK):
        bus = element.get("busid", "")
        label = bus if re.fullmatch(r"[0-9a-fA-F:.]{1,16}", bus) else "unnamed"
        yield Nic((label,), None, _by_class(element))


def _by_class(adapter: Element) -> str | None:
    return _NIC_CLASS.get(adapter.get("class", "")[:6])


def _nvlinks(gpus: Sequence[Element], where: str) -> tuple[Mapping[Pair, int], list[int]]:
    """NVLinks between GPUs, and of each GPU to switches."""
    at = {gpu.get("busid"): i for i, gpu in enumerate(gpus)}
    direct: dict[Pair, int] = {}
    switched = [0] * len(gpus)
    for i, gpu in enumerate(gpus):
        for link in gpu.findall("gpu[1]/nvlink"):
            count, peer = _whole(link, "count", where, f"nvlink of {_busid(gpu)}"), at.get(link.get("target"))
            kind = link.get("tclass", _NVSWITCH if peer is None else _GPU)
            if kind == _NVSWITCH:
                switched[i] += count
            elif kind.startswith(_GPU) and peer is not None and peer != i:
                pair = (min(i, peer), max(i, peer))
                direct[pair] = max(count, direct.get(pair, 0))
    return direct, switched


def _slowest(elements: Iterator[Element]) -> int:
    """The PCIe generation whose 16 lanes carry what these links carry; 0 where one of them does not say."""
    found = []
    for element in elements:
        speed = re.match(r"(\d{1,3}(?:\.\d+)?) GT/s", element.get("link_speed", ""))
        width = re.fullmatch(r"\d{1,2}", element.get("link_width", ""))
        found.append(_LANE_RATE.get(round(float(speed[1]) * int(width[0]) / 16), 0) if speed and width else 0)
    return min(found, default=0)


def _whole(element: Element, key: str, where: str, name: str) -> int:
    value = element.get(key, "")
    if not re.fullmatch(r"\d{1,9}", value):
        raise UserError(fault(f"{where}: {name}", key, value, "expected a whole number"))
    return int(value)


def _busid(element: Element) -> str:
    return f"pci {element.get('busid', 'without busid')[:20]}"
