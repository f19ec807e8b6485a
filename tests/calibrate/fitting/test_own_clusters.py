"""A cluster's own all-reduces below 128 GPUs, fitted over the shipped profile, tell those of 128 and more.

No curve of size and count brings the two clusters of B200 in the ledger below 10 %: they differ by a quarter at like
points. What they have of their own shows in their smaller runs. docs/collectives.md has the numbers.
"""

from importlib.resources import files

import pandas as pd
import pytest
from runcast.calibrate.fitting.profile import Flags, fit_files
from runcast.simulator.answers.validate import predict_samples
from runcast.simulator.formats.samples import read_samples
from runcast.simulator.profile import load_profile

HEADER = "cost_class,device,library,group,seconds,bytes,gpus,nodes,network_bytes_per_s"
B200 = [("b200x8_slinky", "b200-sxm", "dgx-b200"), ("b200x8_use3a", "b200-sxm", "dgx-b200")]
H100 = [("h100x8_azure", "h100-sxm", "dgx-h100"), ("p5_efa", "h100-sxm", "p5-h100-efa")]


def healthy(system):
    """All-reduces of a cluster whose log forces nothing."""
    with (files("runcast.data") / "validation/collectives.csv").open() as file:
        ledger = pd.read_csv(file)
    mine = ledger[(ledger["system"] == system) & (ledger["op"] == "all_reduce") & (ledger["algorithm"] == "default")]
    return mine[~mine["network"].str.contains("degraded")]


def write(path, rows):
    lines = [
        f"all_reduce,{row.gpu},nccl,{row.n_gpus},{row.time_us * 1e-6!r},{row.bytes},{row.n_gpus},{row.n_nodes},400e9"
        for row in rows.itertuples()
    ]
    path.write_text("\n".join([HEADER, *lines]) + "\n")
    return path


def errors_beyond(system, base, machine, at):
    """Errors on 128 GPUs and more of the profile that `runcast calibrate fit --base` makes of fewer."""
    rows = healthy(system)
    small = write(at / f"{system}.csv", rows[rows["n_gpus"] < 128])
    large = write(at / f"{system}-large.csv", rows[rows["n_gpus"] >= 128])
    fit_files([small], Flags(at / f"{system}.json", None, machine, None, (), base, None, "its own", None))
    return predict_samples(load_profile(str(at / f"{system}.json")), read_samples([large]).table)["signed_error"]


@pytest.mark.parametrize(("clusters", "rows", "median", "p90"), [(B200, 6, 0.010, 0.029), (H100, 22, 0.113, 0.287)])
def test_counts_below_128_gpus_tell_those_beyond(clusters, rows, median, p90, tmp_path):
    found = pd.concat([errors_beyond(*one, tmp_path) for one in clusters]).abs()

    assert (len(found), found.median(), found.quantile(0.9)) == (
        rows, pytest.approx(median, abs=6e-4), pytest.approx(p90, abs=6e-4),
    )  # fmt: skip
