"""FlashAttention's kernels by a profile's own, where it has measured them; and engines by the kernels of serving."""

from math import prod

import pytest
from runcast.simulator.profile import load_profile
from runcast.simulator.systems.train_step.flash_attention import FLASH1, FLASH2, FLASH2_KERNELS, slower_by
from runcast.simulator.systems.train_step.prices import profile_of_layout

from .steps import resolved

LIBRARY, *KINDS = FLASH2_KERNELS
ONE_H200 = {"base": "h200-hgx", "gpus_per_node": 1}


def priced(attention: str) -> tuple[str, ...]:
    """The libraries by which attention is priced on H100, whose profile has several, forward and backward."""
    models = profile_of_layout(resolved(1, attention=attention)).models
    return tuple(next(iter(models[kind])) for kind in KINDS)


@pytest.mark.parametrize(
    ("attention", "libraries"),
    [("flash-1", (LIBRARY, LIBRARY)), ("flash-2", (LIBRARY, LIBRARY)), ("flash", ("vllm/0.24.0", "torch cudnn"))],
)
def test_a_step_takes_the_kernels_that_it_names(attention, libraries):
    assert priced(attention) == libraries


CASES = {
    ("h100-sxm", "flash"): (),
    ("h100-sxm", "flash-2"): (),
    ("h100-sxm", "flash-1"): (FLASH1,),
    ("h200-sxm", "flash-2"): (FLASH2,),
    ("h200-sxm", "flash-1"): (FLASH2, FLASH1),
    ("h200-sxm", "unfused"): (),
    ("a100-sxm", "flash"): (FLASH2,),  # faster there than the profile's kernels of serving
    ("a100-sxm", "flash-1"): (FLASH2, FLASH1),
    ("b200-sxm", "flash"): (),
}


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_what_was_not_measured_is_so_many_times_the_devices_own(case):
    name, attention = case
    assert slower_by(attention, load_profile(name)) == CASES[case]


@pytest.mark.parametrize(("attention", "names"), [("flash-2", (FLASH2,)), ("flash-1", (FLASH2, FLASH1))])
def test_attention_takes_the_product_of_its_factors(attention, names):
    own, other = (resolved(1, cluster=ONE_H200, attention=kernels) for kernels in ("flash", attention))
    factor = prod(own.profile.value(name) for name in names)
    assert attention_s(other) == pytest.approx(attention_s(own) * factor)


def attention_s(step):
    """Seconds of all attention kernels."""
    kernels = step.program.is_kind("attention", "attention_backward")
    return float(step.costs.uncontended_s[kernels].sum())


def test_engines_take_the_kernels_of_serving():
    profile = profile_of_layout(resolved(1, attention="flash-2"))
    assert next(iter(profile.as_served().models["attention.forward"])) == "vllm/0.24.0"
