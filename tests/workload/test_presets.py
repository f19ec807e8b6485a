"""The presets against the checkpoints behind published weight updates; published counts are in `test_published`."""

from math import prod

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.models import (
    active_params,
    from_hf_config,
    preset,
    preset_config,
    preset_names,
    total_params,
    weights,
)


@pytest.mark.parametrize(("name", "params"), [("glm-5", 753_864_139_008), ("glm-5.2", 753_329_940_480)])
def test_later_glm_stores_no_copies_in_its_mtp_layer(name, params):
    assert total_params(preset(name), mtp=True) == params
    assert total_params(preset(name)) == pytest.approx(744e9, rel=1e-3)  # report: 744 B


def test_glm_5_in_fp8_has_the_scales_of_the_published_files():
    elements = sum(prod(shape) for shape in weights(preset("glm-5"), fp8=True).shapes)
    assert elements == 753_910_024_032


def test_qwen3_5_is_its_checkpoint_without_the_vision_tower():
    """Qwen3.5-27B has 27,781,427,952 parameters in 1,199 tensors of 55,562,872,800 B."""
    tower_tensors, tower = 333, 460_730_096
    checkpoint = weights(preset("qwen3.5-27b"))
    assert total_params(preset("qwen3.5-27b"), mtp=True) + tower == 27_781_427_952
    assert len(checkpoint) + tower_tensors == 1_199
    assert checkpoint.total_bytes + 2 * tower == 55_562_872_800


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("deepseek-v3", 37.55),  # report: 37 B
        ("kimi-k2", 32.86),  # report: 32.6 B
        ("deepseek-v2", 21.38),  # report: 21 B
        ("mixtral-8x7b", 12.88),  # report: 13 B
        ("qwen3-30b-a3b", 3.35),  # card: 3.3 B
        ("qwen3-235b-a22b", 22.19),  # card: 22 B
        ("llama3-8b", 8.03),  # dense: all are active
    ],
)
def test_active_params_agree_with_the_reports(name, billions):
    assert active_params(preset(name)) == pytest.approx(billions * 1e9, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "n_tensors", "size"),
    [
        # The MTP layers are in: DeepSeek's layer 61 and GLM's layer 46, each with its copies of embedding and head.
        ("glm-4.5-air", 18_329, 220.9e9),
        ("qwen3-235b-a22b", 36_945, 470.2e9),
        ("qwen3-30b-a3b", 18_867, 61.06e9),  # published as about 61 GB
        ("glm-4.7-flash", 9_703, 62.44e9),
        ("glm-5", 59_870, 1507.7e9),
        ("glm-5.2", 59_585, 1506.7e9),
        ("moonlight-16b-a3b", 5_317, 31.92e9),
        ("deepseek-v3.1", 91_991, 688.6e9),
        # The Kimi-K2 files hold 139,644 tensors and 1,029,173,256,720 B: 61 more, one rotary buffer of 112 B per layer,
        # which is derived from the config and no weight.
        ("kimi-k2", 139_583, 1029.2e9),
    ],
)
def test_checkpoints_behind_the_published_weight_updates(name, n_tensors, size):
    checkpoint = weights(preset(name))
    assert len(checkpoint) == n_tensors
    assert checkpoint.total_bytes == pytest.approx(size, rel=1e-3)


@pytest.mark.parametrize(("name", "size"), [("glm-4.7-flash", 62_442_983_168), ("glm-5.2", 1_506_659_919_872)])
def test_glm_bytes_are_those_of_the_files(name, size):
    assert weights(preset(name)).total_bytes == size


def test_kimi_k2_bytes_are_those_of_the_files_without_rotary_buffers():
    assert weights(preset("kimi-k2")).total_bytes == 1_029_173_256_720 - 61 * 112


def test_deepseek_elements_by_dtype_are_the_published_ones():
    checkpoint = weights(preset("deepseek-v3"))
    size = {dtype: sum(checkpoint.nbytes[i] for i in _of(checkpoint, dtype)) for dtype in set(checkpoint.dtypes)}
    assert size == {
        "bfloat16": 2 * 3_918_786_560,
        "float8_e4m3fn": 680_571_043_840,
        "float32": 4 * 41_555_600,
    }


def _of(checkpoint, dtype):
    return [i for i, other in enumerate(checkpoint.dtypes) if other == dtype]


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_names_its_source_and_leaves_nothing_open(name):
    assert "/" in preset_config(name)["source"]
    assert preset(name).assumptions == ()
    assert preset(name).name == name


@pytest.mark.parametrize("name", ["kimi-k2", "Kimi K2", "KIMI_K2", "kimik2"])
def test_a_preset_is_found_however_it_is_spelt(name):
    assert preset(name) == preset("kimi-k2")


def test_dots_count_where_they_alone_tell_presets_apart():
    assert preset("GPT3 1.3B").name == "gpt3-1.3b"
    assert preset("gpt3_13b").name == "gpt3-13b"
    assert preset("qwen25-15b").name == "qwen2.5-1.5b"


def test_an_unknown_preset_suggests_a_near_miss():
    with pytest.raises(UserError, match=r"^s\.toml: preset = 'kimi-k3': unknown; did you mean kimi-k2\?$"):
        preset("kimi-k3", where="s.toml")


def test_overrides_cut_a_model_down():
    spec = preset("deepseek-v3", overrides={"num_hidden_layers": 4, "first_k_dense_replace": 1})
    assert [spec.is_moe(layer) for layer in range(4)] == [False, True, True, True]


def test_an_override_that_means_nothing_is_refused():
    with pytest.raises(UserError, match=r"num_hidden_layer = 4: .*did you mean num_hidden_layers\?"):
        preset("llama3-8b", overrides={"num_hidden_layer": 4})
    with pytest.raises(UserError, match="first_k_dense_replace = 1: means nothing"):
        preset("llama3-8b", overrides={"first_k_dense_replace": 1})


def test_a_preset_without_quantization_is_stored_in_its_dtype():
    config = preset_config("deepseek-v3") | {"quantization_config": None}
    assert set(weights(from_hf_config(config)).dtypes) == {"bfloat16", "float32"}
