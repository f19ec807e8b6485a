"""A profile of the hosts of a testbed: the suite measures them, as it measures any cluster, and the fit reads that."""

from pathlib import Path

from ..command import runcast
from .hosts import Testbed
from .launch import run_ranks

_SIZES = [1 << power for power in (10, 14, 18, 20, 22)]
CASES = (
    *(f"collectives/{op} *bytes={size} *" for op in ("all_reduce", "all_gather") for size in _SIZES),
    "copies/h2d bytes=*host=pinned,copies/d2d,overheads,reload/copy_per_tensor,reload/slice_and_copy_issue",
)
"""What the cases of the testbed rest on: exchanges between hosts, and what a host does of an update."""


def calibrate(bed: Testbed, folder: Path, limit_s: float = 180.0) -> Path:
    """Measure a testbed and fit its profile, which is written to a folder."""
    samples, profile = folder / "samples.jsonl", folder / "profile.json"
    measure = ["-m", "runcast.calibrate", "run", "--rounds", "1", "--only", ",".join(CASES), "--out", str(samples)]
    run_ranks(bed, measure, folder, limit_s)
    done = runcast("calibrate", "fit", samples, "--out", profile)
    assert done.returncode == 0, done.stderr
    return profile
