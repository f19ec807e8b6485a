"""NeMo 2.0's classes of models: as presets, and those of encoders as arguments of the programs that train such."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes import parse_recipe
from runcast.simulator.models import from_hf_config, total_params

RECIPE = """\
_target_: nemo.collections.llm.api.pretrain
model:
  _target_: nemo.collections.llm.{model}
  config: {{_target_: nemo.collections.llm.{config}}}
trainer:
  devices: 8
  strategy:
    _target_: nemo.lightning.pytorch.strategies.megatron_strategy.MegatronStrategy
    tensor_model_parallel_size: 1
    pipeline_model_parallel_size: {pp}
data: {{seq_length: 512, {data}global_batch_size: 64, micro_batch_size: 1}}
"""


def read(config, model="gpt.model.base.GPTModel", pp=1, data=""):
    return parse_recipe(RECIPE.format(config=config, model=model, pp=pp, data=data), "recipe.yaml", "dgx-h100")


@pytest.mark.parametrize(
    ("config", "preset"),
    [
        ("gpt.model.nemotron.Nemotron3Config4B", "minitron-4b"),
        ("gpt.model.nemotron.Nemotron3Config8B", "nemotron-3-8b"),
        ("gpt.model.nemotron.Nemotron3Config22B", "nemotron-3-22b"),
        ("gpt.model.ssm.NemotronHConfig4B", "nemotron-h-4b"),
        ("gpt.model.ssm.NVIDIAMambaConfig8B", "nvidia-mamba2-8b"),
        ("gpt.model.ssm.NVIDIAMambaHybridConfig8B", "nvidia-mamba2-hybrid-8b"),
        ("gpt.model.llama.Llama4Experts16Config", "llama4-scout-text"),
        ("bert.model.bert.HuggingFaceBertBaseConfig", "bert-base"),
    ],
)
def test_a_class_is_its_preset(config, preset):
    assert read(config).table["model"] == {"preset": preset}


def test_starcoder_of_nemo_has_an_output_matrix_of_its_own():
    model = read("gpt.model.starcoder.StarcoderConfig15B").table["model"]
    assert model == {"preset": "starcoder-15b", "overrides": {"tie_word_embeddings": False}}


def test_a_t5_has_a_text_for_each_of_its_stacks():
    recipe = read("t5.model.t5.T5Config220M", "t5.model.t5.T5Model", data="seq_length_dec: 128, ")
    spec = from_hf_config(recipe.config)
    assert (recipe.table["batch"]["seq_len"], recipe.table["towers"]) == (128, {"encoder": {"tokens": 512}})
    assert total_params(spec) == pytest.approx(220e6, rel=0.01)
    assert "vocab_size = 28996: that of BertWordPieceCase" in recipe.assumed


@pytest.mark.parametrize(("size", "layers", "params"), [("Base", 12, 109e6), ("Large", 24, 335e6)])
def test_a_bert_of_megatron_has_no_types_of_tokens(size, layers, params):
    recipe = read(f"bert.model.bert.MegatronBert{size}Config", "bert.model.bert.BertModel")
    assert (recipe.config["model_type"], recipe.config["type_vocab_size"]) == ("megatron-bert", 0)
    spec = from_hf_config(recipe.config)
    assert (spec.num_hidden_layers, total_params(spec)) == (layers, pytest.approx(params, rel=0.01))


def test_a_t5_over_several_stages_is_refused():
    with pytest.raises(UserError, match="how stages divide an encoder and a decoder is not read"):
        read("t5.model.t5.T5Config3B", "t5.model.t5.T5Model", pp=2)
