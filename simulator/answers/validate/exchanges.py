"""Exchanges between nodes as steps and updates price them: corrected for their network, no faster than inside a node.

What prices them on the links of a cluster is `collectives`; here there are samples, with features alone.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...base.errors import UserError
from ...collectives import Networks
from ...profile import Estimate, Profile, load_network
from ...profile.forms import BUS_FACTOR, cost_class

_BETWEEN = ".network"


def estimate_sample(
    profile: Profile, kind: str, features: Mapping[str, np.ndarray], library: str | None, network: str = ""
) -> Estimate:
    """As `Profile.estimate`, of samples measured on a `network` (blank: that of the profile).

    A collective over several nodes takes at least as long as its part inside one of them.

    Raises:
        UserError: as `Profile.estimate`; there is no such kind of network.
    """
    between = _on(profile, kind, features, network) if network else profile.estimate(kind, features, library=library)
    op = kind.removesuffix(_BETWEEN)
    if op == kind or op not in BUS_FACTOR:
        return between
    return _slower(between, _inside(profile, op, features))


def _on(profile: Profile, kind: str, features: Mapping[str, np.ndarray], network: str) -> Estimate:
    """The estimate on another network than the measured one, sample by sample."""
    assert profile.limits is not None
    there = replace(profile, parameters={**profile.parameters, **load_network(network).parameters})
    of, priced = cost_class(kind), Networks(there, profile.limits)
    assert of is not None
    columns = of.columns(features, profile.limits)
    rows = [{name: float(columns[name][i]) for name in of.names} for i in range(len(columns["bytes"]))]
    found = [priced.estimate(kind, row) for row in rows]
    parts = ([getattr(one, field) for one in found] for field in ("seconds", "spread", "provenance"))
    return Estimate(*map(np.concatenate, parts))


def _inside(profile: Profile, op: str, features: Mapping[str, np.ndarray]) -> Estimate | None:
    """The part of a collective inside a node; None where a node holds one GPU, or nothing is known of it."""
    near = features["gpus"] / features["nodes"]
    if (near < 2).any() or profile.limits is None or not profile.limits.link_bytes_per_s:
        return None
    share = near / features["gpus"] if op == "all_to_all" else 1.0
    try:
        return profile.estimate(op, {"bytes": features["bytes"] * share, "gpus": near})
    except UserError:
        return None


def _slower(one: Estimate, other: Estimate | None) -> Estimate:
    if other is None:
        return one
    later = other.seconds > one.seconds
    fields = ("seconds", "spread", "provenance")
    return Estimate(*(np.where(later, getattr(other, name), getattr(one, name)) for name in fields))
