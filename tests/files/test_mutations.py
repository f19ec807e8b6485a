"""Files with faults in them: one short line for each fault, exit code 2, and no traceback, whatever is changed in them.

Each case is a file that is shipped, or like what people give us, in which a value, a key or some bytes are changed at
random, but always in the same way.
"""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ..command import runcast
from .mutations import mutate

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "data/scenarios"
STEP, UPDATE = SCENARIOS / "tiny-train-tp2-dp2.toml", SCENARIOS / "tiny-2ranks.toml"
TRAINING = (ROOT / "data/validation/training.csv").read_bytes().splitlines(keepends=True)
OWN = "cost_class,device,library,group,seconds,source,m,n,k\n" + "".join(
    f"gemm.bf16,H100 SXM,torch,g{i},{i}e-4,here,{1024 * i},4096,4096\n" for i in range(1, 5)
)
RECORDS = """\
{"group": "environment", "gpu": "NVIDIA H100 80GB HBM3", "ranks": 2}
{"group": "gemm", "case": "forward_NT", "params": {"m": 1024, "n": 4096, "k": 4096, "dtype": "bf16"}, "round": 0, \
"samples": [10.0, 11.0], "flop": 1e12, "bytes": 1e9, "wrong": 0, "cost_class": "gemm.bf16", "cache": "cold", \
"features": {"m": 1024, "n": 4096, "k": 4096}}
{"group": "collectives", "case": "all_reduce", "params": {"gpus": 2}, "round": 0, "samples": [100.0], "bytes": 1e6}
"""
SPANS = "rank,op,name,kind,start_s,end_s\n0,0,a,h2d,0.0,0.1\n1,0,a,h2d,0.0,0.1\n0,1,b,broadcast,0.1,0.2\n"
IMPORT = "plan import FILE --cluster dgx-h100 --nodes 8 -o out.toml --force"


def shipped(path: str, command: str) -> tuple[str, bytes, str]:
    """The name of a file like this one, its content, and the command that reads it."""
    return f"x{Path(path).suffix}", (ROOT / path).read_bytes(), command


def report() -> tuple[str, bytes, str]:
    """A report of a prediction."""
    return "x.json", runcast("simulate", UPDATE, "--json", "-").stdout.encode(), f"compare {UPDATE} FILE"


FILES: dict[str, Callable[[], tuple[str, bytes, str]]] = {
    **{
        name: lambda name=name: shipped(f"data/scenarios/{name}.toml", "simulate FILE")
        for name in (
            "tiny-2ranks", "tiny-colocated", "tiny-train-pp4", "tiny-train-moe-ep2", "run-diloco",
            "rl-colocated-qwen3-30b-8xh100", "collective-all-reduce-512xh100",
        )
    },
    "cluster": lambda: shipped("data/hardware/clusters/dgx-h100.toml", f"simulate {STEP} --set cluster=FILE"),
    "device": lambda: shipped(
        "data/hardware/devices/h100-sxm.toml", f"simulate {STEP} --set cluster={{base='dgx-h100',device='FILE'}}"
    ),
    "stack": lambda: shipped("data/stacks/torchtitan.toml", f"simulate {STEP} --set stack=FILE"),
    "profile": lambda: shipped("data/profiles/h20.json", f"simulate {UPDATE} --set profile=FILE"),
    "model": lambda: shipped("data/models/llama3-8b.json", f"simulate {UPDATE} --set model={{config='FILE'}}"),
    "report": report,
    "log": lambda: shipped("tests/traces/fixtures/megatron-llama3-70b.log", f"compare {STEP} FILE"),
    "shell recipe": lambda: shipped("tests/recipes/files/llama3-70b.sh", IMPORT),
    "yaml recipe": lambda: shipped("tests/recipes/files/axolotl-lora.yaml", IMPORT),
    "python recipe": lambda: shipped("tests/recipes/files/bridge/kimi_k2.py", IMPORT),
    "ledger": lambda: ("x.csv", b"".join(TRAINING[:3]), "validate --kind train_step --rows FILE"),
    "samples": lambda: ("x.csv", OWN.encode(), "calibrate check h100-sxm FILE"),
    "records": lambda: ("x.jsonl", RECORDS.encode(), "calibrate show FILE"),
    "records to fit": lambda: ("x.jsonl", RECORDS.encode(), "calibrate fit FILE -o out.json --base h100-sxm"),
    "spans": lambda: ("x.csv", SPANS.encode(), "compare FILE FILE"),
    "topology": lambda: shipped("data/samples/nvidia-smi-topo-h100.txt", "cluster import FILE -o out.toml --force"),
}  # fmt: skip
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def check(name: str, tries: range, folder: Path) -> None:
    """Change a file in several ways and hand it to its command."""
    file, content, command = FILES[name]()
    for number in tries:
        (folder / file).write_bytes(mutate(content, file, random.Random(f"{name} {number}")))
        done = runcast(*command.replace("FILE", file).split(" "), cwd=folder)
        longest = max(map(len, done.stderr.split("\n")))
        acts = ACTS.search(done.stderr + done.stdout)
        warned = "Warning" in done.stderr
        assert (done.returncode in (0, 2), longest <= 600, acts, warned) == (True, True, None, False), (number, done)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_read_or_refused(name, tmp_path):
    check(name, range(4), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_files_changed_in_many_ways_are_read_or_refused(name, tmp_path):
    check(name, range(4, 64), tmp_path)
