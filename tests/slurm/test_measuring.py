"""The line that docs/measuring.md tells Slurm's users, submitted as it stands there, for some of the cases.

tests/measure/test_end_to_end.py measures all of them.
"""

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="measuring needs the [calibrate] extra")

from runcast.calibrate.measure.records import read_records

pytestmark = pytest.mark.slow

GROUPS = ("collectives", "copies", "gemm", "overheads")
DOCS = Path(__file__).parents[2] / "docs/measuring.md"


def test_the_documented_line_measures_on_every_task(slurm, tmp_path):
    (line,) = re.findall(r"^sbatch .*--wrap .*$", DOCS.read_text(), re.MULTILINE)
    words = [word for word in shlex.split(line)[1:] if not word.startswith("--gpus")]  # this Slurm has no GPUs
    some = " ".join(f"--only {group}" for group in GROUPS)
    words = [word.replace("--quick", f"--quick --rounds 1 {some}") for word in words]
    job = slurm.sbatch(*words, cwd=tmp_path, timeout_s=240)
    assert (job.state, job.exit) == ("COMPLETED", "0:0"), job
    records = read_records(tmp_path / "samples.jsonl")
    assert records[0]["nodes"] == [[0, 1, 2, 3]]
    assert {record["group"] for record in records} - {"environment"} == set(GROUPS)
    assert [record for record in records if "error" in record] == []
