"""What predictions on a testbed rest on: a profile that the suite measures, and a stack that one update is read for."""

from pathlib import Path

from ..command import runcast
from .cases import STAR, Numbers, update, write_cases
from .hosts import Bed, set_up
from .launch import execute, run_ranks
from .topology import FRAME_BYTES, PAYLOAD_BYTES, write_cluster

_SIZES = [1 << power for power in (16, 18, 20, 21, 22)]
_CASES = [f"collectives/{op} *bytes={size} *" for op in ("all_reduce", "all_gather") for size in _SIZES]
"""What is measured: exchanges between hosts by Gloo, each of which is a ring."""

_RUNS = 5


def calibrate(folder: Path) -> Numbers:
    """Measure four hosts on one switch: other topologies, sizes and algorithms are predicted from these numbers."""
    with set_up(STAR) as bed:
        profile = fit_profile(bed, folder)
        return Numbers(str(profile), str(read_stack(bed, str(profile), folder)))


def fit_profile(bed: Bed, folder: Path) -> Path:
    """Measure a testbed by the suite, and fit its profile."""
    samples, profile, cluster = folder / "samples.jsonl", folder / "profile.json", folder / "calibrated.toml"
    measure = ["-m", "runcast.calibrate", "run", "--rounds", "1", "--only", ",".join(_CASES), "--out", str(samples)]
    run_ranks(bed, measure, folder)
    write_cluster(bed.topology, cluster)
    headers = folder / "headers.toml"
    headers.write_text("schema = 2\n[parameters]\n" + "".join(map(_headers, ("nic", "leaf", "spine"))))
    fit = ("calibrate", "fit", samples, "--cluster", cluster, "--also", headers, "--out", profile)
    done = runcast(*fit)
    assert done.returncode == 0, done.stderr
    return profile


def _headers(link: str) -> str:
    """The share of a cable's rate that packet headers leave, which tc counts, too."""
    source = f"{PAYLOAD_BYTES} of {FRAME_BYTES} bytes: TCP with timestamps, MTU 1500"
    share = f'value = {PAYLOAD_BYTES / FRAME_BYTES:.4f}, spread = 0.01, provenance = "exact", source = "{source}"'
    return f'"link_fraction.{link}" = {{ {share} }}\n'


def read_stack(bed: Bed, profile: str, folder: Path) -> Path:
    """Run an update, stage by stage, and write what its steps on hosts take; its messages are not read.

    All hosts share the cores of one machine, so numbers of a quiet host are no use here.
    """
    case = update("4 hosts", "serial")
    ((_, wrong, of_op),) = execute(bed, write_cases([case], Numbers(profile), folder), folder, _RUNS)
    assert not wrong, wrong
    tensors, doublings = case.tables["model"]["tensors"], (bed.topology.hosts - 1).bit_length()
    found = {
        **{
            f"{kind}.s": of_op[kind]
            for kind in ("init_group", "destroy_group", "drop_handle", "free_buffers", "barrier")
        },
        "post_hook.bf16_s": of_op["post_hook"],
        "gather.tensor_s": 0.0,
        "gather.node_tensor_s": of_op["gather_metas"] / tensors,
        "allocate.tensor_s": of_op["allocate"] / tensors,
        "agree.latency_s": 0.0,
        "agree.doubling_s": of_op["agree"] / doublings,
    }
    stack, how = folder / "stack.toml", 'spread = 0.3, provenance = "measured", source = "an update on four hosts"'
    entries = "".join(f'"{name}" = {{ value = {seconds!r}, {how} }}\n' for name, seconds in found.items())
    head = 'schema = 2\nname = "testbed"\nbase = "execute-gloo"\nsource = "hosts of one machine"\ndate = "2026-11-26"\n'
    stack.write_text(f"{head}[parameters]\n{entries}")
    return stack
