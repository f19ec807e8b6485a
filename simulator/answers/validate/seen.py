"""Whether a profile was fitted on the very file that it is held against."""

from collections.abc import Mapping
from typing import Any

from ...profile import Errors, Model, Profile, load_profile, profile_names


def fitted_on(profile: Profile, sha256: str) -> Profile | None:
    """The profile, or a shipped one of the same device that it rests on, if it was fitted on this file."""
    if any(_is(entry, sha256) for entry in _samples(profile)):
        return profile
    base = profile.about.get("base")
    if base not in profile_names():
        return None
    below = load_profile(base)
    return fitted_on(below, sha256) if set(below.devices) & set(profile.devices) else None


def held_out(profile: Profile, kind: str, library: str) -> Errors | None:
    """The errors of a model on rows that its fit had not seen; None if it is of another device, or has none."""
    model = profile.models.get(kind, {}).get(library)
    if isinstance(model, Model) and model.wider == 0 and model.held_out.rows:
        return model.held_out
    return None


def _samples(profile: Profile) -> list[Any]:
    found = profile.about.get("samples")
    return found if isinstance(found, list) else []


def _is(entry: Any, sha256: str) -> bool:
    """A file of which the fit used no row was not seen."""
    return isinstance(entry, Mapping) and entry.get("sha256") == sha256 and entry.get("rows") != 0
