"""FlashAttention's kernels by a profile's own, where it has measured them; and engines by the kernels of serving."""

from math import prod

import pytest
from runcast.simulator.profile import ATTENTION, ATTENTION_OF, load_profile, load_stack
from runcast.simulator.systems.train_step.flash_attention import FLASH1, FLASH2, FLASH2_KERNELS, slower_by
from runcast.simulator.systems.train_step.prices import profile_of_layout

from .steps import resolved

OF_FLASH, OF_FLASH2 = ATTENTION_OF["flash"], ATTENTION_OF["flash-2"]
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
    own, other = (
        resolved(1, cluster=ONE_H200, attention=kernels).restate({ATTENTION: 1.0}) for kernels in ("flash", attention)
    )
    factor = prod(own.profile.value(name) for name in names)
    assert attention_s(other) == pytest.approx(attention_s(own) * factor)


def test_a_step_takes_the_factor_of_the_kernels_that_it_names():
    own, slow = (resolved(1, attention="flash").restate({OF_FLASH: factor, OF_FLASH2: 9.0}) for factor in (1.0, 2.0))
    assert attention_s(slow) == pytest.approx(2 * attention_s(own))


def test_a_file_says_of_all_attention_what_it_says_of_no_kernels_alone(tmp_path):
    entry = 'spread = 0.1, provenance = "assumed", source = "a test"'
    said = f'"{ATTENTION}" = {{ value = 1.5, {entry} }}\n"{OF_FLASH2}" = {{ value = 1.2, {entry} }}\n'
    (tmp_path / "mine.toml").write_text(f'schema = 2\nbase = "llm-foundry"\n[parameters]\n{said}')
    mine = load_stack(str(tmp_path / "mine.toml"))
    found = {kernels: mine.value(name) for kernels, name in ATTENTION_OF.items()}
    assert found == {"flash": 1.5, "flash-2": 1.2, "flash-1": 1.5}


def attention_s(step):
    """Seconds of all attention kernels."""
    kernels = step.program.is_kind("attention", "attention_backward")
    return float(step.costs.uncontended_s[kernels].sum())


def test_engines_take_the_kernels_of_serving():
    profile = profile_of_layout(resolved(1, attention="flash-2"))
    assert next(iter(profile.as_served().models["attention.forward"])) == "vllm/0.24.0"
