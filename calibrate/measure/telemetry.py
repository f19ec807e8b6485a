"""Clocks, power, temperature and why clocks are held back, as NVML tells them of one GPU.

Reads `libnvidia-ml.so.1`, which comes with the driver, through ctypes. Only functions that read are called: clocks and
limits stay as they are. What NVML does not answer (an older driver, a slice of a GPU, no permission) is None.
"""

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

Reading = dict[str, Any]
"""`at_s` by `time.monotonic`; `sm_hz`, `memory_hz`, `power_w`, `power_limit_w`, `temperature_c`; `busy`, `memory_busy`:
share of the time in which a kernel ran, or memory was read or written; `held_back`: names of `REASONS`."""

REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
}
"""Bits of NVML's clocks event reasons (nvml.h, nvmlClocksEventReasons)."""

_LIBRARY = "libnvidia-ml.so.1"
_SM, _MEMORY = 1, 2  # nvmlClockType_t: NVML_CLOCK_SM, NVML_CLOCK_MEM
_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Telemetry:
    """One GPU as NVML sees it."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p):
        self._library, self._handle = library, handle

    @classmethod
    def find_device(cls, device: torch.device) -> "Telemetry | None":
        """The telemetry of a torch device, by UUID or PCI address: torch numbers only visible GPUs, NVML all."""
        if device.type != "cuda":
            return None
        return cls.find(*identities(torch.cuda.get_device_properties(device)))

    @classmethod
    def find(cls, uuid: str, pci: str, library: str = _LIBRARY) -> "Telemetry | None":
        """The telemetry of the GPU with this UUID, else this PCI address; None without NVML or such a GPU."""
        try:
            nvml = ctypes.CDLL(library)
            if nvml.nvmlInit_v2() != 0:
                return None
        except (OSError, AttributeError):
            return None
        for call, name in (("nvmlDeviceGetHandleByUUID", uuid), ("nvmlDeviceGetHandleByPciBusId_v2", pci)):
            handle = ctypes.c_void_p()
            if name and _ask(nvml, call, name.encode(), ctypes.byref(handle)):
                return cls(nvml, handle)
        nvml.nvmlShutdown()
        return None

    def close(self) -> None:
        """NVML counts who uses it."""
        self._library.nvmlShutdown()

    def read(self) -> Reading:
        """What it tells now; about 100 microseconds."""
        used = _Utilization()
        answered = self._ask("nvmlDeviceGetUtilizationRates", ctypes.byref(used))
        return {
            "at_s": time.monotonic(),
            "sm_hz": self._number("nvmlDeviceGetClockInfo", _SM, scale=1e6),
            "memory_hz": self._number("nvmlDeviceGetClockInfo", _MEMORY, scale=1e6),
            "power_w": self._number("nvmlDeviceGetPowerUsage", scale=1e-3),
            "power_limit_w": self._number("nvmlDeviceGetEnforcedPowerLimit", scale=1e-3),
            "temperature_c": self._number("nvmlDeviceGetTemperature", _GPU_SENSOR),
            "held_back": self._reasons(),
            "busy": used.gpu / 100 if answered else None,
            "memory_busy": used.memory / 100 if answered else None,
        }

    def _number(self, call: str, *arguments: int, scale: float = 1) -> float | None:
        value = ctypes.c_uint()
        return scale * value.value if self._ask(call, *arguments, ctypes.byref(value)) else None

    def _reasons(self) -> list[str] | None:
        bits = ctypes.c_ulonglong()
        for call in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if self._ask(call, ctypes.byref(bits)):
                return [name for bit, name in REASONS.items() if bits.value & bit]
        return None

    def _ask(self, call: str, *arguments: Any) -> bool:
        return _ask(self._library, call, self._handle, *arguments)


def _ask(nvml: ctypes.CDLL, call: str, *arguments: Any) -> bool:
    """Whether it answers; older drivers lack some calls."""
    function: Callable[..., int] | None = getattr(nvml, call, None)
    return function is not None and function(*arguments) == 0


def identities(properties: Any) -> tuple[str, str]:
    """UUID and PCI address of a torch device as NVML spells them; empty where this torch does not tell."""
    uuid = str(getattr(properties, "uuid", ""))
    named = uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    domain, bus, slot = (getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device"))
    if domain is None or bus is None or slot is None:
        return named, ""
    return named, f"{domain:08X}:{bus:02X}:{slot:02X}.0"


@contextlib.contextmanager
def sample(telemetry: Telemetry | None, every_s: float = 0.1) -> Iterator[list[Reading]]:
    """Readings that a thread takes every so many seconds while the context lasts; none where there is no telemetry."""
    readings: list[Reading] = []
    done = threading.Event()

    def walk() -> None:
        while telemetry and not done.is_set():
            readings.append(telemetry.read())
            done.wait(every_s)

    thread = threading.Thread(target=walk, daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        done.set()
        thread.join()
        if telemetry:
            telemetry.close()
