"""Diffusion transformers: what a block computes beside a plain module, and what their configs say."""

import pytest
import torch
from runcast.simulator.base.errors import UserError
from runcast.simulator.models import active_params, from_hf_config, preset, total_params
from runcast.simulator.models.blocks import layer
from runcast.simulator.models.kernels import flop, input_gradient, weight_gradient
from runcast.simulator.models.shard import Shard
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

HEADS, DIM, IMAGE, TEXT, BATCH = 4, 8, 24, 8, 2
HIDDEN = HEADS * DIM
FLUX = {
    "_class_name": "FluxTransformer2DModel", "in_channels": 16, "num_layers": 1, "num_single_layers": 1,
    "num_attention_heads": HEADS, "attention_head_dim": DIM, "joint_attention_dim": 40, "pooled_projection_dim": 24,
}  # fmt: skip


class Double(torch.nn.Module):
    """A block in which image and text have weights of their own, and attend to each other."""

    def __init__(self):
        super().__init__()
        sizes = ((6, 1), (3, 1), (1, 1), (4, 1), (1, 4))
        self.sets = torch.nn.ModuleList(
            torch.nn.ModuleList(torch.nn.Linear(into * HIDDEN, out * HIDDEN, device="meta") for out, into in sizes)
            for _ in range(2)
        )

    def forward(self, image, text, vector):
        streams, heads = (image, text), []
        shifts = [of[0](vector).chunk(6, dim=-1) for of in self.sets]
        for of, stream, shift in zip(self.sets, streams, shifts, strict=True):
            heads.append(of[1](stream * shift[0][:, None]).unflatten(-1, (3, HEADS, DIM)))
        q, k, v = torch.cat(heads, dim=1).permute(2, 0, 3, 1, 4)
        seen = (torch.softmax(q @ k.transpose(-1, -2), dim=-1) @ v).transpose(1, 2).flatten(2)
        found = []
        for of, stream, own in zip(self.sets, streams, seen.split([IMAGE, TEXT], dim=1), strict=True):
            stream = stream + of[2](own)
            found.append(stream + of[4](functional.gelu(of[3](stream))))
        return torch.cat(found, dim=1)


def test_a_double_block_computes_what_a_plain_module_does():
    inputs = [torch.empty(BATCH, n, HIDDEN, device="meta", requires_grad=True) for n in (IMAGE, TEXT)]
    vector = torch.empty(BATCH, HIDDEN, device="meta", requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        Double()(*inputs, vector).sum().backward()
    kernels = layer(from_hf_config(FLUX), 0, Shard(BATCH, IMAGE + TEXT)).all
    learned = [weights for kernel in kernels if (weights := weight_gradient(kernel))]
    assert sum(map(flop, [*kernels, *map(input_gradient, kernels), *learned])) == counter.get_total_flops()


def test_a_token_passes_one_of_two_sets_of_weights():
    spec = preset("flux.1-dev")
    sets = 19 * (24 * spec.hidden_size**2)  # 19 double blocks: attention, network, modulation and their biases
    assert total_params(spec) - active_params(spec) == pytest.approx(sets * 18 / 24, rel=1e-3)


@pytest.mark.parametrize("key", ["num_layers", "num_attention_heads", "attention_head_dim", "in_channels"])
def test_a_size_that_is_missing_is_told(key):
    with pytest.raises(UserError, match="missing; a whole number"):
        from_hf_config({name: value for name, value in FLUX.items() if name != key})


def test_keys_of_diffusers_mean_something_where_a_user_writes_them():
    assert from_hf_config(FLUX, strict=set(FLUX)) == from_hf_config(FLUX)


@pytest.mark.parametrize(("name", "said"), [("WanTransformer3DModel", "'WanTransformer3DModel'"), ([], r"\[\]")])
def test_another_class_of_diffusers_is_refused_in_one_line(name, said):
    with pytest.raises(UserError, match=f"_class_name = {said}: not modelled; known are Flux"):
        from_hf_config({"_class_name": name, "num_layers": 40})
