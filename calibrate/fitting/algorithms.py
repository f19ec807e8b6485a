"""What algorithms of collectives reach between nodes, from samples whose log forces them.

A closed form says how many bytes go over which hops, and in how many steps. Two numbers of an algorithm are fitted:
`share`, the part of the rate between nodes that it reaches, to rows that are mostly bytes; `steps`, what a step waits
over what the profile's curves say of one, to rows that are mostly latency. Where no rows are, the number is not told.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from math import exp, log
from statistics import median, pstdev

import pandas as pd
from scipy.optimize import brentq

from ...simulator.answers.validate.forced import NEAREST
from ...simulator.base.errors import UserError
from ...simulator.collectives import Machines
from ...simulator.collectives.algorithms import algorithms
from ...simulator.collectives.algorithms.hops import ClusterNet, Formula
from ...simulator.collectives.algorithms.messages import Algorithm
from ...simulator.collectives.algorithms.shares import names_of
from ...simulator.hardware import cluster, limits
from ...simulator.profile import Parameter, Profile, load_network, load_stack
from ...simulator.profile.parameters import bounds
from .owners import Entry, entry

_BYTES, _LATENCY = 0.1, 0.5
"""Part of the time that is latency: at most of rows that tell a share, at least of rows that tell steps."""

_LEAST = 0.02
"""Spread below which repeats of one collective do not lie (docs/profiles.md)."""

_RATE_SLACK = 0.05
"""Relative; how far the NICs of a sample may be from those of the cluster."""

_NETWORK = ".network"


@dataclass(frozen=True)
class _Case:
    """A sample: what a closed form needs to know of it."""

    gpus: int
    nodes: int
    bytes: float
    seconds: float


def algorithm_entries(forced: pd.DataFrame, mine: Profile, machine: str) -> tuple[dict[str, Entry], list[str]]:
    """Parameters of each algorithm that rows force, and in words what was found and what is not told.

    `mine` is the profile whose curves and rates the closed forms take, `machine` the cluster that was measured.
    """
    found, said = dict[str, Entry](), list[str]()
    for (op, name), rows in _by_algorithm(forced):
        known, who = algorithms(op).get(name), f"{op} by {', '.join(sorted(set(rows['algorithm'])))}"
        if known is None:
            said.append(f"{who}: no closed form is known ({len(rows)} rows)")
            continue
        cases, left = _cases(rows, machine)
        try:
            entries, words = _Forms(known, mine, machine).fit(cases) if cases else ({}, [])
        except UserError as error:
            entries, words = {}, [f"{who}: {line}" for line in error.faults]
        found |= entries
        said += [*(f"{who}: {reason}" for reason in left), *words]
    return found, said


def _by_algorithm(forced: pd.DataFrame) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
    """Rows by op and by the algorithm of ours that is nearest to the one that they name."""
    if forced.empty:
        return
    op, nearest = forced["cost_class"].str.removesuffix(_NETWORK), forced["algorithm"].map(_nearest)
    for (kind, name), rows in forced.groupby([op, nearest], sort=True):
        yield (str(kind), str(name)), rows


def _nearest(name: str) -> str:
    known = {theirs.lower(): ours for theirs, ours in NEAREST.items()}
    return known.get(name.lower(), name)


def _cases(rows: pd.DataFrame, machine: str) -> tuple[list[_Case], list[str]]:
    """The rows that whole nodes of the cluster ran, and why others are left out."""
    one = cluster(machine, 1)
    known = limits(one)
    rate = known.nics * known.nic_bytes_per_s
    nics = rows["network_bytes_per_s"].fillna(rate) if "network_bytes_per_s" in rows else pd.Series(rate, rows.index)
    why, network = pd.Series("", rows.index), one.fabric.network
    on = rows["network"].fillna("") if "network" in rows else why
    for reason, holds in {
        "inside one node, where no rate between nodes is": ~rows["cost_class"].str.endswith(_NETWORK),
        f"not on whole nodes of {one.n_gpus} GPUs": rows["gpus"] != rows["nodes"] * one.n_gpus,
        f"NICs of other rates than those of {machine}": (nics / rate - 1).abs() > _RATE_SLACK,
        f"on another network than the {network} of {machine}": ~on.isin(["", network]),
    }.items():
        why = why.where((why != "") | ~holds, reason)
    kept = rows[why == ""]
    numbers = kept[["gpus", "nodes", "bytes", "seconds"]].to_numpy(float).tolist()
    cases = [_Case(int(gpus), int(nodes), size, seconds) for gpus, nodes, size, seconds in numbers]
    return cases, [f"{reason} ({count} rows)" for reason, count in why[why != ""].value_counts().items()]


class _Forms:
    """The closed forms of one algorithm on a cluster, with numbers of the algorithm to be found."""

    def __init__(self, algorithm: Algorithm, mine: Profile, machine: str):
        self._algorithm = algorithm
        self._cluster = cache(partial(cluster, machine))
        network = cluster(machine, 1).fabric.network
        self._profile = mine.join(load_network(network)).join(load_stack("generic"))

    def fit(self, cases: list[_Case]) -> tuple[dict[str, Entry], list[str]]:
        """Its parameters, and what was found and what is not told.

        Raises:
            UserError: the cluster cannot run the algorithm.
        """
        forms = {case: self._at(case, 1.0, 1.0) for case in cases}
        part = {case: form.latency_s / form.seconds for case, form in forms.items()}
        large = [case for case in cases if part[case] <= _BYTES]
        small = [case for case in cases if part[case] >= _LATENCY]
        share, of_steps = names_of(self._algorithm)
        entries, said = self._one(share, large, lambda case, value: self._at(case, value, 1.0))
        reached = entries[share]["value"] if share in entries else 1.0
        steps, words = self._one(of_steps, small, lambda case, value: self._at(case, reached, value))
        return entries | steps, said + words

    def _one(
        self, parameter: str, cases: list[_Case], at: Callable[[_Case, float], Formula]
    ) -> tuple[dict[str, Entry], list[str]]:
        """A parameter by the median of its rows; none where they do not tell it."""
        low, high, _ = bounds(parameter) or (0.01, 1.0, "")
        which = "almost all bytes" if parameter.endswith("share") else "mostly latency"
        if not cases:
            return {}, [f"{parameter}: not told: no row is {which}"]

        def misses(value: float) -> list[float]:
            return [log(at(case, value).seconds / case.seconds) for case in cases]

        ends = [median(misses(low)), median(misses(high))]
        if ends[0] * ends[1] >= 0:
            return {}, [f"{parameter}: not told: {_other_reason(parameter)}"]
        value = exp(brentq(lambda logs: median(misses(exp(logs))), log(low), log(high), xtol=1e-5))
        spread = max(pstdev(misses(value)), _LEAST)
        source = f"closed form over {len(cases)} rows that are {which} and force it"
        found = entry(value, spread, "fitted" if len(cases) > 1 else "measured", source)
        return {parameter: found}, [f"{parameter} = {found['value']:g} ({len(cases)} rows, ±{spread:.0%})"]

    def _at(self, case: _Case, share: float, steps: float) -> Formula:
        """The closed form of a sample with these numbers."""
        numbers = zip(names_of(self._algorithm), (share, steps), strict=True)
        own = {name: Parameter(value, 0.0, "exact", "to be fitted") for name, value in numbers}
        profile = replace(self._profile, parameters={**self._profile.parameters, **own})
        net = ClusterNet(Machines(self._cluster(case.nodes), profile), range(case.gpus), self._algorithm.op)
        if reason := self._algorithm.refuses(net.group()):
            raise UserError(reason)
        return net.formula(self._algorithm, case.bytes)


def _other_reason(parameter: str) -> str:
    if parameter.endswith("share"):
        return "links inside nodes set the pace, or rows are out of reach"
    return "rows are out of reach of any latency"
