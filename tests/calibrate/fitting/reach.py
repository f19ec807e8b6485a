"""Records of the whole suite as an imagined machine would write them, and which predictions rest on which case.

The machine is three nodes of eight H100. A case takes what `plan.call_s` expects of it; what else its record tells is
made so that the case says something: a victim loses a fifth, an awkward shape costs a third, clocks settle.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from runcast.calibrate.fitting.profile import Flags, fit_files
from runcast.calibrate.measure.case import Case, Facts
from runcast.calibrate.measure.cases import all_cases
from runcast.calibrate.measure.plan import call_s
from runcast.calibrate.measure.timing import Measurement
from runcast.simulator import engine
from runcast.simulator.base.arrays import Floats
from runcast.simulator.base.memo import Memo
from runcast.simulator.profile import load
from runcast.simulator.scenario import load_question, resolve
from runcast.simulator.systems.registry import SYSTEMS

FACTS = Facts(
    "cuda", tuple(tuple(range(8 * n, 8 * n + 8)) for n in range(3)), 80e9, 132, numa_nodes=2, collectives="nccl"
)
MACHINE = {"group": "environment", "gpu": "NVIDIA H100 80GB HBM3", "suite": 1}
SHIPPED = Path(__file__).parents[3] / "data/scenarios"
SLOWER = 1.5
_KERNELS = ("gemm", "attention", "membound", "moe", "compress")
_NODE_S = 2e-5  # that a message takes more for each further node
_WIRE = 3e10  # bytes/s that the suite expects of a wire
_H100 = 'cluster="dgx-h100"'
_SERVED = ("glm-4.5-air-8xh800", _H100, "model={preset='llama3-8b'}")
_TRAINERS = ("tiny-stage-heads", _H100)
_FEW = "model.overrides.num_hidden_layers=8"
_DENSE = ("train-llama3-8b-8xh100", _FEW)
_MOE = ("train-qwen3-30b-a3b-16xh100", _FEW)
_RUN = (
    "run-parameter-server-async", "run={steps=1}", "speed={}", "sync={mode='all_reduce'}", "precision.reduce=fp32",
)  # fmt: skip
_COMPRESSED = (
    *("'fp16'", "'int8'", "'int4'", "'sign'", "'low_rank', rank=4, rows=1024, columns=1024"),
    *(f"'{method}', density=0.01" for method in ("top_k", "threshold", "random", "block")),
)
SCENARIOS = {
    "served": (*_SERVED, "update.pipeline=three_stage"),
    "served by two": (
        "glm-4.5-air-8xh800", "cluster={base='dgx-h100', gpus_per_node=2}", "model={preset='llama3-8b'}",
        "update.inference={tp=2}", "update.pipeline=three_stage",
    ),
    "served over nodes": ("tiny-2ranks", _H100, "nodes=3", "update.pipeline=serial"),
    "plain loader": ("tiny-2ranks", _H100, "stack=execute-gloo"),
    "stage heads": (*_TRAINERS, "update.quantize=after"),
    "over nodes": (*_TRAINERS, "nodes=2", "update.method=relays", "update.trainer={gpus=8, tp=4, pp=2}",
                   "update.inference={gpus=8, tp=4}"),
    "chain": (*_TRAINERS, "update.method=chain"),
    "replicas": (*_TRAINERS, "update.method=replica_writes"),
    "colocated": ("tiny-colocated", _H100, "update.messages=tensor"),
    "dense": (*_DENSE, "nodes=3", "batch.global=48"),
    "fp8": (*_DENSE, "nodes=2", "parallel={tp=2, pp=2, zero=1}", "precision.compute=fp8"),
    "fp16": (*_DENSE, "precision.compute=fp16"),
    "tf32": (*_DENSE, "precision.compute=tf32", "batch.seq_len=2048"),
    "pipeline": (*_DENSE, "parallel={tp=2, pp=4, zero=1}", "batch.seq_len=2048"),
    "loss in passes": (*_DENSE, "stack=nanotron"),
    "offload": (_DENSE[0], "parallel={pp=4, zero=1}", "offload={activations=1.0}", "recompute={mode='none'}",
                "batch.global=32"),
    "awkward": (*_DENSE, "model.overrides={num_hidden_layers=8, hidden_size=4104, head_dim=120, vocab_size=50257}"),
    "experts": _MOE,
    "experts in 8 bits": (*_MOE, "precision.compute=fp8-block"),
    "experts over nodes": (*_MOE, "parallel={ep=16, pp=1, zero=1}", "batch.seq_len=1024"),
    **{f"run, {keys}": (*_RUN, f"compress={{method={keys}}}") for keys in _COMPRESSED},
}  # fmt: skip
"""Small predictions of three kinds, each a shipped scenario and changes; together they have every kind of op."""

_MOST = 24
"""Cases of one group that are kept: more of them say the same."""


def group_of(case: Case) -> str:
    """What a case is one of, whatever its size: `copies/h2d pinned`, `interference/gemm beside h2d`.

    Kernels of one class that several libraries have are one group, since the fastest counts, and so are awkward shapes
    of one parameter, since their median counts.
    """
    if case.family == "shapes" and case.name not in ("scores", "context"):
        return "shapes/attention" if case.name.startswith("attention") else "shapes/linear"
    told = [str(case.params[name]) for name in ("host", "layout") if name in case.params]
    told += [name for name in ("numa", "at_once") if name in case.params]
    told += [f"beside {case.params['beside']}"] if "beside" in case.params else []
    told += [case.params["dtype"]] if case.family == "gemm" else []
    return " ".join([f"{case.family}/{case.name}", *told])


def groups() -> dict[str, list[Case]]:
    """All cases of the suite by group, of each at most some, evenly over their order."""
    found: dict[str, list[Case]] = {}
    for case in all_cases(FACTS):
        found.setdefault(group_of(case), []).append(case)
    return {name: cases[:: -(-len(cases) // _MOST)] for name, cases in found.items()}


def record(case: Case, slower: float = 1.0) -> dict[str, Any]:
    """The record of a case, `slower` times as slow as the imagined machine."""
    usual = _usual_s(case)
    samples, more = (usual * slower,) * 3, dict[str, Any]()
    if case.family == "interference" and case.params["beside"] != "none":
        more = {"alone_s": usual / 1.25, "noise_alone_s": 1e-3, "noise_beside_s": 1.25e-3 * slower}
    if case.family == "shapes":
        heads = case.name.startswith("attention")  # that cost what their own size does, until they are slower
        share = case.params["head_dim"] / case.params["padded_head_dim"] if heads else 4 / 3
        more = {"padded_s": usual / share}
    if case.family == "sustained":
        samples = (usual,) * 20 + (1.25 * usual * slower,) * 40
        samples = tuple(one * 0.2 / usual for one in samples)
    return case.record(0, Measurement(samples, 0, more))


def _usual_s(case: Case) -> float:
    """What a case takes: NVLink carries ten times what the suite expects of any wire, and copies read and write."""
    expected, nodes = call_s(case, FACTS), case.params.get("nodes", 1)
    if case.over == "wire":
        return expected + _NODE_S * (nodes - 1) if nodes > 1 else expected - 0.9 * case.bytes / _WIRE
    return 2 * expected if case.name == "d2d" else expected


def fit(folder: Path, name: str, records: Iterable[Mapping[str, Any]], base: str) -> str:
    """Fit a profile to records; returns its file."""
    raw, out = folder / f"{name}.jsonl", folder / f"{name}.json"
    raw.write_text("".join(json.dumps(line) + "\n" for line in (MACHINE, *records)))
    with patch("runcast.calibrate.fitting.fit.cross_validate", no_errors):
        fit_files([raw], Flags(out, None, "dgx-h100", name, (), base, 0.0, "made", None))
    return str(out)


def no_errors(_class: object, _x: object, seconds: Floats, *_rest: object) -> tuple[Floats, str]:
    """In place of `cross_validate`, which takes most of a fit and moves no seconds."""
    return np.zeros(len(seconds)), "nothing"


@dataclass(frozen=True)
class Reach:
    """Fits of the imagined machine in a folder, and what scenarios take by them."""

    folder: Path
    scenarios: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: SCENARIOS)
    _before: dict[str, float] = field(default_factory=dict)
    _order: list[str] = field(default_factory=list)

    @cached_property
    def groups(self) -> dict[str, list[Case]]:
        return groups()

    @cached_property
    def base(self) -> str:
        """The profile of all cases."""
        cases = [case for cases in self.groups.values() for case in cases]
        return fit(self.folder, "base", map(record, cases), "generic")

    def moves(self, *slow: str) -> str | None:
        """A scenario that takes another time after the cases of these groups took longer; None if all take their time.

        What a group moved, the next group is likely to move: it is asked first.
        """
        profile, memo = fit(self.folder, "slow", self._records(slow), self.base), Memo()
        with patch.object(load, "load_profile", cache(load.load_profile)):  # all scenarios read the same few files
            for name in self._order or list(self.scenarios):
                if name not in self._before:
                    self._before[name] = self.seconds(name, self.base, Memo())
                if self.seconds(name, profile, memo) != self._before[name]:
                    self._order[:] = [name, *(other for other in self.scenarios if other != name)]
                    return name
        return None

    def _records(self, slow: Collection[str]) -> Iterator[dict[str, Any]]:
        """Those of some groups, slower, and those that a fit joins with them; kernels are fitted class by class."""
        firsts = [self.groups[group][0] for group in slow]
        fits = {(first.family, first.cost_class if first.family in _KERNELS else None) for first in firsts}
        for name, cases in self.groups.items():
            for case in cases:
                if not fits.isdisjoint({(case.family, None), (case.family, case.cost_class)}):
                    yield record(case, SLOWER if name in slow else 1.0)

    def seconds(self, name: str, profile: str, memo: Memo) -> float:
        """What a scenario takes with a profile; `memo` is one of this profile."""
        scenario, *changes = self.scenarios[name]
        path = str(SHIPPED / f"{scenario}.toml")
        resolved = resolve(load_question(path, [*changes, f"profile={profile!r}"]), path, memo)
        if resolved.scenario.kind == "run":
            return float(SYSTEMS["run"].predict(resolved).report.wall_s)
        return engine.simulate(resolved.program, resolved.costs).makespan_s
