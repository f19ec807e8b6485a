"""What `runcast validate` scores: tables of measured collectives and kernels, each row by its own device's profile."""

from collections.abc import Mapping

import pandas as pd

from ...base.errors import UserError
from ...base.op_kinds import EXCHANGE, of_form
from ...profile import Profile, load_profile, profile_for
from .rows import predict_samples, unpredicted

KINDS: dict[str, tuple[str, ...]] = {
    "collective": of_form(EXCHANGE),
    "gemm": ("gemm",),
    "attention": ("attention",),
    "grouped_gemm": ("grouped_gemm",),
    "memory": ("memory",),
    "copy": ("copy", "nic"),
}
"""The families of cost classes that each kind of table may hold."""


def profiles_of(table: pd.DataFrame, given: Profile | None = None) -> dict[str, Profile]:
    """The given profile, or the shipped one of each device in the table."""
    return {str(device): given or load_profile(profile_for(str(device))) for device in table["device"].unique()}


def validate_samples(table: pd.DataFrame, kind: str, profiles: Mapping[str, Profile], file: str) -> pd.DataFrame:
    """The rows in their order, predicted where they are of this kind, else with a reason.

    Raises:
        UserError: no row is of this kind.
    """
    family = table["cost_class"].str.partition(".")[0]
    mine = family.isin(KINDS[kind])
    if not mine.any():
        raise UserError(f"{file}: holds no rows of --kind {kind}; its rows are of {', '.join(family.unique())}")
    groups = table[mine].groupby("device", sort=False)
    parts = [_of_device(profiles[str(device)], str(device), rows) for device, rows in groups]
    others = [unpredicted(row, f"{name} is not of --kind {kind}") for name, row in table[~mine].groupby("cost_class")]
    return pd.concat([*parts, *(rows.assign(profile="") for rows in others)]).sort_index()


def _of_device(profile: Profile, device: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a device that the profile is not made for are told so, not predicted."""
    if profile.devices and device not in profile.devices:
        reason = f"profile {profile.name} is made for {', '.join(profile.devices)}, not for {device}"
        found = unpredicted(rows, reason)
    elif profile.limits is None:
        found = unpredicted(rows, f"no profile for {device}: {profile.name} does not know its rates")
    else:
        found = predict_samples(profile, rows).set_index(rows.index)
    return found.assign(profile=profile.name)
