"""Models that Megatron-LM's arguments cannot say are refused, whatever they have."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.recipes.shape_flags import flags_of
from runcast.simulator.models import preset


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("qwen2.5-vl-7b", "towers"), ("llava-1.5-7b", "towers"), ("mistral-small-3.1-24b", "towers"),
        ("whisper-large-v3", "attention to an encoder"), ("t5-11b", "attention to an encoder"),
        ("bert-large", "attention to later tokens"), ("flux.1-dev", "vectors that scale and shift"),
    ],
)  # fmt: skip
def test_a_model_with_what_no_argument_says_is_refused(name, feature):
    with pytest.raises(UserError, match=f"{name} has {feature}, which no argument says"):
        flags_of(preset(name), 4096)
