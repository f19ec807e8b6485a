"""Profiles and software stacks: what cost models read, each number with its source, provenance and spread.

A Profile belongs to a device: fitted models of its kernels and collectives, and what its links and copies really
reach. A stack belongs to software (what one tensor, one handle, one synchronisation costs). Both are files of one form,
and the only thing that measuring and predicting share.
"""

from .entries import SCHEMA, write_limits, write_models
from .load import (
    SIBLING_WIDER,
    Names,
    check_complete,
    check_devices,
    check_stack,
    choose_profiles,
    devices_of,
    fitted_parameters,
    load_architecture,
    load_network,
    load_numbers,
    load_profile,
    load_stack,
    own_values,
    profile_files,
    profile_for,
    profile_names,
    profile_notes,
    read_profile,
    shipped_base,
    stack_chain,
    stack_defaults,
    stack_names,
    without_profile,
)  # fmt: skip
from .model import Z90, Band, Entry, Errors, Estimate, Model, Ratio, Stated, errors_of
from .parameters import (
    ATTENTION,
    ATTENTION_OF,
    FACTORS,
    FACTORS_OF_TYPES,
    MEASURED_ON,
    PARAMETERS,
    PROVENANCE,
    READ_OFF,
    TP_EXPOSED,
    AttentionKernels,
    Parameter,
    bounds,
    meaning_of,
    parameters,
    say_of_all_kernels,
)
from .profile import SERVING, Profile

__all__ = [
    "ATTENTION", "ATTENTION_OF", "FACTORS", "FACTORS_OF_TYPES", "MEASURED_ON", "PARAMETERS", "PROVENANCE",
    "READ_OFF", "SCHEMA", "SERVING", "SIBLING_WIDER", "TP_EXPOSED", "Z90", "AttentionKernels", "Band", "Entry",
    "Errors", "Estimate", "Model", "Names", "Parameter", "Profile", "Ratio", "Stated", "bounds", "check_complete",
    "check_devices", "check_stack", "choose_profiles", "devices_of", "errors_of", "fitted_parameters",
    "load_architecture", "load_network", "load_numbers", "load_profile", "load_stack", "meaning_of", "own_values",
    "parameters", "profile_files", "profile_for", "profile_names", "profile_notes", "read_profile",
    "say_of_all_kernels", "shipped_base", "stack_chain", "stack_defaults", "stack_names", "without_profile",
    "write_limits", "write_models",
]  # fmt: skip
