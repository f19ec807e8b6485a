"""FlashAttention-2 by a profile's own kernels, where it has measured them; and engines by the kernels of serving."""

from dataclasses import replace

import pytest
from runcast.simulator.profile import Model, Profile, load_profile
from runcast.simulator.systems.train_step.flash2 import FLASH2_KERNELS, measures_flash2
from runcast.simulator.systems.train_step.prices import profile_of_layout

from .steps import resolved

LIBRARY, *KINDS = FLASH2_KERNELS


def measured(profile: Profile) -> Profile:
    """The profile with models of the device's own attention, and of FlashAttention-2's, in both directions."""
    own = profile.model("attention.forward")
    assert isinstance(own, Model)
    variants = {kind: {"torch cudnn": own, LIBRARY: replace(own, library=LIBRARY)} for kind in KINDS}
    return replace(profile, models={**profile.models, **variants})


def priced(attention: str, profile: Profile) -> tuple[str, ...]:
    """The libraries by which attention is priced, forward and backward."""
    step = resolved(1, attention=attention)
    vars(step)["profile"] = profile
    return tuple(next(iter(profile_of_layout(step).models[kind])) for kind in KINDS)


@pytest.fixture(scope="module")
def own():
    return measured(resolved(1).profile)


@pytest.mark.parametrize(("attention", "library"), [("flash-2", LIBRARY), ("flash", "torch cudnn")])
def test_a_step_takes_the_kernels_that_it_names(own, attention, library):
    assert priced(attention, own) == (library, library)


def test_what_was_not_measured_is_so_many_times_the_devices_own():
    profile = load_profile("h100-sxm")
    assert not measures_flash2(profile)
    assert profile["attention.flash2_factor"].value > 1


def test_engines_take_the_kernels_of_serving(own):
    variants = own.models["attention.forward"]
    both = replace(own, models={**own.models, "attention.forward": {**variants, "vllm/0.24.0": variants[LIBRARY]}})
    assert next(iter(both.as_served().models["attention.forward"])) == "vllm/0.24.0"
    assert next(iter(own.as_served().models["attention.forward"])) == "torch cudnn"
