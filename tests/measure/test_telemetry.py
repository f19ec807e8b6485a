import re
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

import torch
from runcast.calibrate.measure import telemetry
from runcast.calibrate.measure.telemetry import Telemetry, identities, sample

UUID, PCI = "GPU-12345678-aaaa-bbbb-cccc-000000000002", "00000000:4F:00.0"
NOBODY = "GPU-00000000-0000-0000-0000-000000000000"
READS = re.compile(r"nvml(Init_v2|Shutdown|DeviceGet\w+)")


class Driver:
    """A compiled stand-in for the driver's library, and what was called of it."""

    def __init__(self, folder, monkeypatch, *options):
        self.log = folder / "called.txt"
        self.log.touch()
        monkeypatch.setenv("FAKE_NVML_LOG", str(self.log))
        self.library = str(folder / f"libnvidia-ml{len(options)}.so.1")
        source = Path(__file__).parent / "fake_nvml.c"
        subprocess.run(["gcc", "-shared", "-fPIC", *options, "-o", self.library, str(source)], check=True)

    @property
    def called(self):
        return self.log.read_text().split()


@pytest.fixture
def driver(tmp_path, monkeypatch):
    if not shutil.which("gcc"):
        pytest.skip("needs Debian package gcc")
    return lambda *options: Driver(tmp_path, monkeypatch, *options)


def test_what_it_reads(driver):
    found = Telemetry.find(UUID, "", driver().library).read()
    assert abs(found.pop("at_s") - time.monotonic()) < 60
    assert found == {
        "sm_hz": 1755e6,
        "memory_hz": 2619e6,
        "power_w": 612.5,
        "power_limit_w": None,  # this driver does not answer
        "temperature_c": 61,
        "held_back": ["power cap", "software thermal"],
        "busy": 1.0,
        "memory_busy": 0.37,
    }


def test_an_older_driver_has_other_names_and_fewer(driver):
    found = Telemetry.find(UUID, "", driver("-DOLD_DRIVER").library).read()
    assert found["held_back"] == ["hardware slowdown"]
    assert found["busy"] is None


def test_found_by_pci_address_where_the_uuid_is_unknown(driver):
    fake = driver()
    assert Telemetry.find("", PCI, fake.library).read()["sm_hz"] == 1755e6
    assert Telemetry.find(NOBODY, PCI, fake.library) is not None


def test_nothing_of_an_unknown_gpu_or_without_a_driver(driver):
    fake = driver()
    assert Telemetry.find(NOBODY, "00000000:01:00.0", fake.library) is None
    assert fake.called[-1] == "nvmlShutdown"
    assert Telemetry.find(UUID, PCI, "libnvidia-ml-that-is-not-there.so.1") is None
    assert Telemetry.find_device(torch.device("cpu")) is None


def test_nothing_but_reading_is_ever_called(driver):
    fake = driver()
    with sample(Telemetry.find(UUID, PCI, fake.library), every_s=0.01):
        time.sleep(0.05)
    assert "nvmlDeviceGetClockInfo" in fake.called
    assert fake.called[-1] == "nvmlShutdown"
    assert not [name for name in fake.called if not READS.fullmatch(name)]
    named = re.findall(r"\bnvml[A-Z]\w*(?=[\"(])", Path(telemetry.__file__).read_text())
    assert len(named) >= 10
    assert not [name for name in named if not READS.fullmatch(name)]


def test_a_sampler_reads_all_the_time(driver):
    with sample(Telemetry.find(UUID, PCI, driver().library), every_s=0.01) as readings:
        start = time.monotonic()
        deadline = start + 20
        while len(readings) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
    times = [reading["at_s"] - start for reading in readings]
    assert len(times) >= 5
    assert times == sorted(times)
    count = len(readings)
    time.sleep(0.05)
    assert len(readings) == count


def test_a_sampler_without_telemetry_reads_nothing():
    with sample(None) as readings:
        pass
    assert readings == []


def test_names_of_a_torch_device():
    known = SimpleNamespace(
        uuid="12345678-aaaa-bbbb-cccc-000000000002", pci_domain_id=0, pci_bus_id=0x4F, pci_device_id=0
    )
    assert identities(known) == (UUID, PCI)
    assert identities(SimpleNamespace()) == ("", "")
    assert identities(SimpleNamespace(uuid="MIG-1"))[0] == "MIG-1"
