"""What is known of the machine and its software: for the file, and for the choice of cases.

No host names, no users, no environment variables.
"""

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from .case import Facts
from .device import Device

SUITE = 1
"""Raised when cases come to mean something else, so that old and new records are not mixed."""

IDENTITY = ("suite", "gpu", "torch", "cuda", "driver", "collectives", "cpu", "threads", "nodes")
"""Keys of the environment in which all records of a file agree."""

_SHARE = 0.5  # of the memory that is free, for one rank's cases
_LIMITS = "index,pcie.link.gen.max,pcie.link.width.max,power.limit,clocks.max.sm,clocks.max.mem"


def environment(facts: Facts) -> dict[str, Any]:
    """The first record of a file; `gpu` is the device's name."""
    known = {
        "group": "environment",
        "suite": SUITE,
        "runcast": _or_none(lambda: metadata.version("runcast")),
        "gpu": torch.cuda.get_device_name() if facts.cuda else "CPU",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "cpu": _line_of("/proc/cpuinfo", "model name").partition(":")[2].strip() or platform.processor(),
        "cpus": os.cpu_count(),
        "nodes": facts.nodes,
        "numa_nodes": facts.numa_nodes,
        "collectives": facts.collectives,
    }
    if not facts.cuda:
        return known
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return known | {
        "sms": properties.multi_processor_count,
        "gpus_visible": torch.cuda.device_count(),
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "gpu_hash": _hash(properties),
        "cuda": torch.version.cuda,
        "cudnn": _or_none(torch.backends.cudnn.version),
        "nccl": _nccl(),
        "driver": _driver(),
        "topology": _printed("nvidia-smi", "topo", "-m"),
        "limits": _printed("nvidia-smi", f"--query-gpu={_LIMITS}", "--format=csv"),
    }


def machine_facts(kind: str, nodes: tuple[tuple[int, ...], ...], ranks_here: int) -> Facts:
    """The facts of this machine, as rank 0 sees them."""
    cpus_of_nodes = Path("/sys/devices/system/node").glob("node[0-9]*/cpulist")
    numa_nodes = sum(bool(_line_of(str(path), "")) for path in cpus_of_nodes) or 1  # a GPU's memory may be one, too
    if kind == "cpu":
        return Facts("cpu", nodes, _free_host_bytes() * _SHARE / ranks_here, numa_nodes=numa_nodes)
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    free, _ = torch.cuda.mem_get_info()
    return Facts(
        "cuda",
        nodes,
        free * _SHARE,
        sms=properties.multi_processor_count,
        fp8=torch.cuda.get_device_capability() >= (8, 9),
        numa_nodes=numa_nodes,
        near_numa=_numa_node(properties),
        collectives=f"nccl {_nccl() or ''}".strip(),
    )


def gpu_hash(device: Device) -> str:
    """Which GPU a device is, told apart from the others of its node; nothing for a CPU."""
    return _hash(torch.cuda.get_device_properties(device.torch_device)) if device.kind == "cuda" else ""


def _hash(properties: Any) -> str:
    """A hash of a GPU's serial number (for privacy); empty if this torch does not report it."""
    number = str(getattr(properties, "uuid", ""))
    return hashlib.sha256(number.encode()).hexdigest()[:12] if number else ""


def _or_none(ask: Callable[[], Any]) -> Any:
    """The answer of `ask`; None if this torch or machine cannot answer, which must not stop a measurement."""
    try:
        return ask()
    except Exception:
        return None


def _nccl() -> str | None:
    version = _or_none(torch.cuda.nccl.version)
    return ".".join(map(str, version)) if version else None


def _driver() -> str | None:
    version = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", _or_none(Path("/proc/driver/nvidia/version").read_text) or "")
    return version.group() if version else None


def _printed(*command: str) -> list[str] | None:
    """The lines of a command, without the colours of a terminal; None where there is no such command."""
    done = _or_none(lambda: subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30))
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines() if done and done.returncode == 0 else None


def _numa_node(properties: Any) -> int:
    """The NUMA node that the GPU hangs on."""
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    domain, bus, slot = (getattr(properties, name, 0) for name in names)
    file = Path(f"/sys/bus/pci/devices/{domain:04x}:{bus:02x}:{slot:02x}.0/numa_node")
    return max(_or_none(lambda: int(file.read_text())) or 0, 0)  # -1 where there is one node


def _free_host_bytes() -> float:
    words = _line_of("/proc/meminfo", "MemAvailable").split()
    return float(words[1]) * 1024 if len(words) > 1 else 4e9


def _line_of(path: str, start: str) -> str:
    lines = (_or_none(Path(path).read_text) or "").splitlines()
    return next((line for line in lines if line.startswith(start)), "")
