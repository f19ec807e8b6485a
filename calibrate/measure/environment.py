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

_SHARE = 0.5  # of the memory that is free, for one rank's cases


def environment(facts: Facts) -> dict[str, Any]:
    """The first record of a file; `gpu` is the device's name."""
    known = {
        "group": "environment",
        "suite": SUITE,
        "runcast": _if_told(lambda: metadata.version("runcast")),
        "gpu": torch.cuda.get_device_name() if facts.cuda else "CPU",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "nodes": facts.nodes,
        "numa_nodes": facts.numa_nodes,
        "collectives": facts.collectives,
    }
    return known | (_cuda() if facts.cuda else {})


def identity(environment: dict[str, Any]) -> dict[str, Any]:
    """That part of it in which all records of a file agree."""
    same = ("suite", "gpu", "torch", "cuda", "driver", "collectives", "cpu", "threads", "nodes")
    return {key: environment.get(key) for key in same}


def facts_here(kind: str, nodes: tuple[tuple[int, ...], ...], ranks_here: int) -> Facts:
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
        near_numa=_numa_of(properties),
        collectives=" ".join(["nccl", _nccl() or ""]).strip(),
    )


def gpu_of(device: Device) -> str:
    """Which GPU a device is, told apart from the others of its node; nothing for a CPU."""
    return _hash(torch.cuda.get_device_properties(device.torch_device)) if device.kind == "cuda" else ""


def _hash(properties: Any) -> str:
    """Of a GPU's serial number, which nobody needs to know; empty where this torch does not tell it."""
    number = str(getattr(properties, "uuid", ""))
    return hashlib.sha256(number.encode()).hexdigest()[:12] if number else ""


def _cuda() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "sms": properties.multi_processor_count,
        "gpus_visible": torch.cuda.device_count(),
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "gpu_hash": _hash(properties),
        "cuda": torch.version.cuda,
        "cudnn": _if_told(torch.backends.cudnn.version),
        "nccl": _nccl(),
        "driver": _driver(),
        "topology": _printed("nvidia-smi", "topo", "-m"),
        "limits": _printed(
            "nvidia-smi",
            "--query-gpu=index,pcie.link.gen.max,pcie.link.width.max,power.limit,clocks.max.sm,clocks.max.mem",
            "--format=csv",
        ),
    }


def _if_told(ask: Callable[[], Any]) -> Any:
    """None where this torch or this machine does not tell: no reason not to measure."""
    try:
        return ask()
    except Exception:
        return None


def _nccl() -> str | None:
    version = _if_told(torch.cuda.nccl.version)
    return ".".join(map(str, version)) if version else None


def _driver() -> str | None:
    try:
        told = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", told)
    return found.group() if found else None


def _printed(*command: str) -> list[str] | None:
    """The lines of a command, without the colours of a terminal; None where there is no such command."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).splitlines() if done.returncode == 0 else None


def _numa_of(properties: Any) -> int:
    """The NUMA node that the GPU hangs on."""
    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    domain, bus, slot = (getattr(properties, name, 0) for name in names)
    try:
        return max(int(Path(f"/sys/bus/pci/devices/{domain:04x}:{bus:02x}:{slot:02x}.0/numa_node").read_text()), 0)
    except (OSError, ValueError):
        return 0


def _cpu_model() -> str:
    told = _line_of("/proc/cpuinfo", "model name")
    return told.partition(":")[2].strip() or platform.processor()


def _free_host_bytes() -> float:
    words = _line_of("/proc/meminfo", "MemAvailable").split()
    return float(words[1]) * 1024 if len(words) > 1 else 4e9


def _line_of(path: str, start: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(start)), "")
