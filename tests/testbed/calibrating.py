"""What predictions on a testbed rest on: a profile that the suite measures, and a stack that one update is read for.

Of hosts that compute the profile has kernels, too, which all hosts measure at once: they share caches and memory.
"""

from collections.abc import Sequence
from pathlib import Path

from ..command import runcast
from .cases import STAR, Numbers, p2p_update, update, write_cases
from .hosts import Bed, set_up
from .launch import execute, run_alone, run_ranks
from .topology import FRAME_BYTES, PAYLOAD_BYTES, write_cluster

_SIZES = [1 << power for power in (16, 18, 20, 21, 22)]
_CASES = [f"collectives/{op} *bytes={size} *" for op in ("all_reduce", "all_gather") for size in _SIZES]
"""What is measured: exchanges between hosts by Gloo, each of which is a ring."""

_OF_STEPS = [
    f"{op} *nodes=* *bytes={1 << power} *"
    for op in ("collectives/all_reduce", "collectives/all_gather", "send_recv/one_way")
    for power in (18, 20, 22)
]
"""The same for steps, and messages of stages."""

_RUNS = 5


def calibrate(folder: Path, share: float = 0.0) -> Numbers:
    """Measure four hosts on one switch: other topologies, sizes and algorithms are predicted from these numbers.

    With a share of a core each, hosts are measured that compute, and no update.
    """
    with set_up(STAR.with_share(share)) as bed:
        samples = [measure_exchanges(bed, _OF_STEPS if share else _CASES, folder)]
        if share:
            samples += measure_kernels(bed, folder)
        profile = str(fit_profile(bed, samples, folder))
    return Numbers(profile) if share else Numbers(profile, str(read_stack(profile, folder)))


def measure_exchanges(bed: Bed, cases: Sequence[str], folder: Path) -> Path:
    """Exchanges between all hosts by the suite; its records."""
    samples = folder / "exchanges.jsonl"
    run_ranks(bed, [*_MEASURE, "1", "--only", ",".join(cases), "--out", str(samples)], folder)
    return samples


def measure_kernels(bed: Bed, folder: Path) -> list[Path]:
    """Kernels by the suite on each host, on all at once, each in an order of its own; its records.

    A minute apart the same products differ by 15 % on a machine that others use, too: hence two rounds.
    """
    samples = [folder / f"kernels{host}.jsonl" for host in range(bed.topology.hosts)]
    measure = [*_MEASURE, "2", "--cases", "tests.testbed.kernels", "--only", "steps"]
    run_alone(bed, [[*measure, "--seed", str(host), "--out", str(path)] for host, path in enumerate(samples)], folder,
              _KERNELS_S)  # fmt: skip
    return samples


_MEASURE = ("-m", "runcast.calibrate", "run", "--rounds")
_KERNELS_S = 400.0


def fit_profile(bed: Bed, samples: Sequence[Path], folder: Path) -> Path:
    """Fit the profile of a testbed."""
    profile, cluster, headers = folder / "profile.json", folder / "calibrated.toml", folder / "headers.toml"
    write_cluster(bed.topology, cluster)
    headers.write_text("schema = 2\n[parameters]\n" + "".join(map(_headers, ("nic", "leaf", "spine"))))
    machine = ["--cluster", cluster.name, "--also", headers.name]  # a profile keeps what is said here
    done = runcast("calibrate", "fit", *map(Path.resolve, samples), *machine, "--out", profile.name, cwd=folder)
    assert done.returncode == 0, done.stderr
    return profile


def _headers(link: str) -> str:
    """The share of a cable's rate that packet headers leave, which tc counts, too."""
    source = f"{PAYLOAD_BYTES} of {FRAME_BYTES} bytes: TCP with timestamps, MTU 1500"
    share = f'value = {PAYLOAD_BYTES / FRAME_BYTES:.4f}, spread = 0.01, provenance = "exact", source = "{source}"'
    return f'"link_fraction.{link}" = {{ {share} }}\n'


def read_stack(profile: str, folder: Path) -> Path:
    """Run an update, stage by stage, and one that reads memory of other hosts; write what their steps on hosts take.

    Their messages are not read, and are short on fast cables. All hosts share the cores of one machine, so numbers of a
    quiet host are no use here.
    """
    case, reads = update("4 fast hosts", "serial"), p2p_update("4 fast hosts", 4)
    cases = write_cases([case, reads], Numbers(profile), folder)
    with set_up(case.where) as bed:
        (_, wrong, of_op), (_, wrong_too, of_reads) = execute(bed, cases, folder, _RUNS)
    assert not wrong + wrong_too
    tensors, doublings = case.tables["model"]["tensors"], (case.where.hosts - 1).bit_length()
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
        **{f"{kind}.s": of_reads[kind] for kind in ("register", "unregister")},
        "register.byte_s": 0.0,
        "unregister.byte_s": 0.0,
        "register.tensor_s": 0.0,
        "rdma.nic_fraction": PAYLOAD_BYTES / FRAME_BYTES,
    }
    stack, how = folder / "stack.toml", 'spread = 0.3, provenance = "measured", source = "an update on four hosts"'
    entries = "".join(f'"{name}" = {{ value = {seconds!r}, {how} }}\n' for name, seconds in found.items())
    head = 'schema = 2\nname = "testbed"\nbase = "execute-gloo"\nsource = "hosts of one machine"\ndate = "2026-11-26"\n'
    stack.write_text(f"{head}[parameters]\n{entries}")
    return stack
