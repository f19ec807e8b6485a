"""Models of transformers: their parameters are those of the models that transformers builds.

built.jsonl has the counts; what needs transformers itself is slow and skips where it is not installed. To run that:
`pip install transformers` beside torch, in an environment of its own, and `pytest tests/workload/test_built.py`.
"""

from importlib.util import find_spec

import pytest
from runcast.simulator.models import from_hf_config, total_params
from runcast.simulator.models.families import REFUSED_KEYS, REFUSED_TYPES
from runcast.simulator.predict import simulate
from runcast.simulator.systems.train_step.scenario import TrainScenario

from .built import (
    N_CAUSAL,
    N_DECODERS,
    N_READ_DECODERS,
    OTHERS,
    ROOT,
    VERSION,
    Built,
    build_all,
    causal_types,
    decoder_types,
    read_models,
    reason,
    transformers,
)
from .models_page import page

by_type = pytest.mark.parametrize("model", read_models(), ids=lambda model: model.model_type)


def off(model):
    """By how much the count of parameters differs; 0 if transformers cannot build the model."""
    count = total_params(from_hf_config(model.config))
    return abs(count / model.params - 1) if model.params else 0


@by_type
def test_parameters_are_those_of_the_model_that_transformers_builds(model):
    assert off(model) < 1e-3


def check_step(model):
    """A step takes longer than its FLOP at peak, and holds the states of its parameters."""
    scenario = TrainScenario.model_validate({
        "kind": "train_step", "cluster": "dgx-h100", "model": {"config": model.config}, "parallel": {"zero": 3},
        "batch": {"global": 8, "seq_len": 1024},
    })  # fmt: skip
    report = simulate(scenario).report
    states = 16 * total_params(from_hf_config(model.config)) / 8
    assert report.step_time_s > report.model_flop / (8 * report.peak_flop_per_s)
    assert report.peak.peak_bytes > states


@pytest.mark.parametrize("model", read_models()[::4], ids=lambda model: model.model_type)
def test_a_step_has_a_time_and_memory(model):
    check_step(model)


@pytest.mark.slow
@by_type
def test_a_step_of_each_type_has_a_time_and_memory(model):
    check_step(model)


@pytest.fixture(scope="module")
def models() -> list[Built]:
    if find_spec("transformers") is None:
        pytest.skip("transformers is not installed: pip install transformers")
    return build_all()


@pytest.mark.slow
def test_the_types_that_are_read_are_those_of_the_file(models):
    read = [each.model_type for each in models if not reason(each.config)]
    assert read == [each.model_type for each in read_models()]


@pytest.mark.slow
def test_models_of_today_have_the_parameters_that_we_count(models):
    read = [each for each in models if not reason(each.config)]
    assert {each.model_type: off(each) for each in read if off(each) >= 1e-3} == {}


@pytest.mark.slow
def test_the_page_has_the_reason_of_each_type_that_is_not_read(models):
    refused = {each.model_type: reason(each.config) for each in models if reason(each.config)}
    listed = {each: why for why, types in REFUSED_TYPES.items() for each in types}
    rows = {why: line for line in page().splitlines() for why in REFUSED_TYPES if line.startswith(f"| {why} |")}
    by_type = {each: why for each, why in refused.items() if each in listed}
    assert [
        each for each, why in by_type.items() if listed[each] not in why or f"`{each}`" not in rows[listed[each]]
    ] == []
    assert [each for each in {*refused} - {*by_type} if not any(why in refused[each] for why in REFUSED_KEYS)] == []


@pytest.mark.slow
def test_the_numbers_of_types_are_those_of_the_release(models):
    if transformers().__version__ != VERSION:
        pytest.skip(f"the numbers are those of transformers {VERSION}")
    read = {each.model_type for each in read_models()}
    assert (len(causal_types()), len(decoder_types())) == (N_CAUSAL, N_DECODERS)
    assert len(read & {*decoder_types()}) == N_READ_DECODERS


def test_the_readme_says_how_many_types_are_read():
    count = len([model for model in read_models() if model.model_type not in OTHERS])
    assert f"({count} of the {N_CAUSAL} types of" in (ROOT / "README.md").read_text()
