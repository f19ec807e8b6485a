"""What `runcast validate` scores: tables of measured collectives and kernels, each row by its own device's profile."""

import pandas as pd

from ..profile import Profile, load_profile, profile_for
from ..samples import Samples
from .rows import predict_samples

KINDS: dict[str, tuple[str, ...]] = {
    "collective": ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"),
    "gemm": ("gemm",),
    "attention": ("attention",),
    "grouped_gemm": ("grouped_gemm",),
    "memory": ("memory",),
    "copy": ("copy", "nic"),
}
"""The families of cost classes that each kind of table may hold."""


def validate_samples(samples: Samples, kind: str, profile: str | None = None, where: str = "profile") -> pd.DataFrame:
    """The samples of one kind, predicted by this profile, or each by the shipped profile of its device.

    Raises:
        UserError: no such profile, or it cannot be read.
    """
    family = samples.table["cost_class"].str.partition(".")[0]
    table = samples.table[family.isin(KINDS[kind])]
    by_device = [(str(device), rows) for device, rows in table.groupby("device", sort=False)]
    parts = [_of_device(load_profile(profile or profile_for(name), where), rows) for name, rows in by_device]
    others = samples.table[~family.isin(KINDS[kind])].assign(reason=f"no {kind}")
    return pd.concat([*parts, *([others] if len(others) else [])], ignore_index=True)


def _of_device(profile: Profile, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a device that the profile is not made for are told so, not predicted."""
    device = str(rows["device"].iloc[0])
    if profile.devices and device not in profile.devices:
        reason = f"profile {profile.name} is made for {', '.join(profile.devices)}, not for {device}"
        return rows.assign(reason=reason, profile=profile.name)
    if profile.limits is None:
        return rows.assign(reason=f"no profile for {device}", profile="")
    return predict_samples(profile, rows).assign(profile=profile.name)
