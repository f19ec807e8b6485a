"""Keys that a config leaves out are as transformers sets them for its type (data/model_types.toml)."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.base.files import read_toml
from runcast.simulator.models import from_hf_config, total_params
from runcast.simulator.models.families import FAMILIES
from runcast.simulator.models.hf import _names
from runcast.simulator.models.keys import ALIASES
from runcast.simulator.models.type_defaults import SIZES

from .built import VERSION, read_models, transformers
from .type_defaults import FILE, page

TABLES = read_toml(FILE)
MISTRAL = {
    "model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "intermediate_size": 14336, "vocab_size": 32000,
}  # fmt: skip
CLIP = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
    "num_attention_heads": 16, "num_hidden_layers": 24, "patch_size": 14,
}  # fmt: skip


@pytest.mark.parametrize(
    "model", [each for each in read_models() if each.model_type in TABLES], ids=lambda model: model.model_type
)
def test_a_config_without_them_is_that_of_transformers(model):
    family, table = FAMILIES[model.model_type], TABLES[model.model_type]
    left_out = {key for key, value in table.items() if key not in _names(family, SIZES)}

    spec = from_hf_config({k: v for k, v in model.config.items() if k not in left_out or v != table[k]})

    assert replace(spec, assumptions=()) == replace(from_hf_config(model.config), assumptions=())


@pytest.mark.parametrize(
    ("config", "params"),
    [
        (MISTRAL, 7_241_732_096),
        ({"model_type": "llava_next",  # saved as what differs from Mistral's and CLIP's own
          "text_config": {"model_type": "mistral", "sliding_window": None, "vocab_size": 32064},
          "vision_config": CLIP}, 7_566_743_552),
        ({"model_type": "llava",
          "text_config": {"model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "num_hidden_layers": 40,
                          "sliding_window": None, "vocab_size": 131072},
          "vision_config": {"model_type": "pixtral", "head_dim": 64, "hidden_act": "silu", "image_size": 1024,
                            "patch_size": 16}}, 12_682_739_712),
    ],
)  # fmt: skip
def test_files_of_the_hub_that_are_a_difference_are_read(config, params):
    assert total_params(from_hf_config(config)) == params


def test_a_note_says_what_was_left_out():
    said = "not given, so as transformers sets it for mistral: num_key_value_heads = 8, sliding_window = 4096"

    assert from_hf_config(MISTRAL).assumptions[0] == said


@pytest.mark.parametrize("size", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_a_whole_config_without_a_size_is_refused(size):
    with pytest.raises(UserError, match=f"{size} = None: missing"):
        from_hf_config({key: value for key, value in MISTRAL.items() if key != size})


def test_what_a_config_says_is_nothing_is_not_filled():
    assert from_hf_config({**MISTRAL, "num_key_value_heads": None}).num_key_value_heads == 32


def test_no_family_repeats_what_the_file_says():
    names = {each: {name for key in family.defaults for name in (key, family.own.get(key, key), *ALIASES.get(key, ()))}
             for each, family in FAMILIES.items()}  # fmt: skip

    assert {each: said for each, known in TABLES.items() if (said := names.get(each, set()) & {*known})} == {}


@pytest.mark.slow
def test_the_file_is_that_of_transformers():
    if find_spec("transformers") is None or transformers().__version__ != VERSION:
        pytest.skip(f"transformers {VERSION} is not installed: pip install transformers=={VERSION}")

    assert FILE.read_text() == page()
