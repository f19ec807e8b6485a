"""docs/models.md as it must be: `python -m tests.workload.models_page > docs/models.md`; a test compares it."""

from runcast.simulator.models import active_params, preset, total_params
from runcast.simulator.models.composites import COMPOSITES
from runcast.simulator.models.families import FAMILIES, REFUSED_KEYS, REFUSED_TYPES

from .built import N_CAUSAL, N_DECODERS, N_READ_DECODERS, OTHERS, VERSION, read_models
from .published import PUBLISHED, Figure, counted

HEAD = """# Models

A model is a preset by name, a preset with `overrides`, or a Hugging Face config.json ([scenario.md](scenario.md) has
the keys). This page says which configs are read, and lists the presets beside the parameter counts that others
published. `python -m tests.workload.models_page` writes it; a test compares it.

## What a model says

| of | what a spec tells apart |
|---|---|
| attention | heads of q and of k, v, and their widths; MLA; biases on q, k, v and on the output; sinks |
| beside attention | norms of heads (weights: one set, a set for each head, or none); gates; short convolutions |
| attention by layer | windows; chunks; indexers of MLA (`index_loss`: they learn); compressed attention; no attention |
| sizes by layer | `per_layer_config`, lists of sizes, keys that begin with `swa_`, layers that share keys and values |
| in place of attention | Gated DeltaNet, Kimi Delta Attention, Mamba, Mamba-2, RWKV-7, Lightning, convolutions |
| layers of one part | by a pattern such as `M-M*E`: `M` Mamba-2, `-` an FFN, `*` attention, `E` experts |
| positions | `rotary`, `learned` (as many as `position_embeddings`), `alibi`, `none` |
| FFN | width, biases, `gated_ffn`, and `hidden_act`: silu, the GELUs, relu, relu2 (squared), xielu |
| norms | `norm` is `rms` or `layer`; `norm_bias`; `embedding_norm` after the embedding; norms without weights |
| norms per layer | two (one if a layer has one part); four with `sandwich_norms`, then without `pre_norms` two behind |
| residual | `parallel_residual`: attention and FFN read the same input, with `shared_norm` one norm; several streams |
| MoE | experts, top k, width, shared experts, latents, and which layers route; the others are dense |
| beside the stack | tied or untied head, `head_bias`, MTP layers, embeddings of each layer's own |
| encoders | attention to later tokens too; types of tokens; widths of embeddings and logits of their own |
| towers | layers before the stack for images, sounds or an encoder's text, with what they read and a projector |

Keys go by Llama's names or by the family's own (`n_embd`, `n_layer`, `d_model`, `ffn_dim`, `attn_config.alibi`); where
a config has both, Llama's counts, so `overrides = { num_hidden_layers = 8 }` cuts down any preset. The keys of the
table are read beside those of Hugging Face, so a variant without a config of its own is a preset with overrides:

```toml
[model]
preset = "gpt3-175b"
overrides = { vocab_size = 51200 }  # as Megatron pads it with tp = 8
```

A key that a config leaves out is as transformers sets it for its `model_type`
([data/model_types.toml](../data/model_types.toml)), and a note says so; the Hub's `text_config` and `vision_config`
often hold only what differs. The sizes of a whole model (`hidden_size`, `num_hidden_layers`, `num_attention_heads`,
`intermediate_size`, `vocab_size`) have to be there, as has everything of a type that transformers does not have.

Tensors are named as in the checkpoint of Llama, Mistral, Qwen, DeepSeek, GLM, Gemma and GPT-OSS; those of most other
families get Llama's names, state-space layers Bamba's. q, k and v are one tensor where the family stores one.

Of features that make no difference to time and memory nothing is read: soft caps, scales of embeddings, logits and
residuals, kinds of rotary positions, how a router scores. DiffLlama and Doge are priced as Llama with the same sizes.

## What is not read

"""
MIDDLE = """
A `model_type` that is neither known nor refused is read as llama-like if all of its keys that look like sizes, and all
switches that are on, but those of how it runs, are read: the report says so among the assumptions, and its layers may
take 9 % more or less, as 125 known types would. With others it is refused, in one line that names them.
Without model_type a config is Llama's. With
`unknown = "approximate"` in `[model]` what is refused is priced as if its layers were Llama's of the same sizes, and a
model of several media as its text alone; the report says what is not modelled, and the interval is wider.

## Encoders and towers

| | how it is modelled |
|---|---|
| attention to later tokens | whole squares of scores; a ring of context parallelism has no half blocks |
| norms of BERT | behind each part (`sandwich_norms` without `pre_norms`) |
| an encoder before a decoder | a tower before the stack; its tokens are `[towers.encoder]`'s, or `seq_len` |
| attention to an encoder | keys and values of the tower's tokens; a layer of the decoder counts as two in `layers` |
| a tower of images or sounds | layers of its own sizes; each input attends to itself; a projector follows |
| windows in a tower | a patch sees as many patches as a window has |
| several tiles of an image | as many `inputs` |
| tensor parallelism | as in the stack; it must divide the tower's heads |
| context parallelism | whole inputs, spread over the ranks; refused for attention to an encoder |
| pipeline stages | towers of images and sounds lie on the first one; `parallel.layers` counts their layers first |
| sends | inside a tower its states, behind it the projector's output; encoders' output goes on to all stages |
| `frozen` | no gradients but the projector's, no optimizer states; nothing kept, computed again, sent back |
| `[freeze]` | the same of the stack's layers, embedding and head; gradients pass frozen layers to what learns before |

Images have the size that the config fixes, else 1,024 patches, unless `[towers.vision]` says it
([training.md](training.md)). Tokens that a tower gives are part of `seq_len`. BigBird's sparse blocks are priced as
whole attention, LLaVA's last layer, whose output nothing reads, like the others. The token embedding lies on the first
stage.

## Diffusion transformers

The config of a transformer as diffusers writes it (`_class_name`) is read of FLUX, Stable Diffusion 3, Qwen-Image and
DiT. `batch.seq_len` counts patches of the latent image and, where they go through the same layers, tokens of the
prompt: 4,096 and 512 for FLUX at 1024 x 1024 pixels. Tokens see each other in both directions. Vectors that scale,
shift and gate (adaLN) are GEMMs of one row for each sequence, and a pass over the tokens. Text and image have weights
of their own where the model has, at the FLOP of one set. The text encoders and the autoencoder are not part of the
step: their outputs are taken as computed before.

## State-space layers

| | Mamba-2 | Mamba-1 | short convolution |
|---|---|---|---|
| projections | GEMMs | GEMMs | GEMMs |
| scan | GEMMs of all chunks, and states over memory | one kernel, by bytes or exponentials | none |
| convolution, gates, norms | over memory | over memory | over memory |
| FLOP of the scan per token | `2 Q (G N + H P) + 4 H P N` | 0: none are GEMMs | 0 |
| backward | twice the forward: both operands of each GEMM | the same | the same |
| runs again | convolution, C B^T, states | convolution, step | nothing |
| kept | projections; outputs of scan and norm | projections; outputs of scan and gate | what each kernel reads |
| tensor parallelism | heads and groups | refused | channels |
| context parallelism | two all-to-alls, as in Megatron-LM | refused | divided; tokens that pass are not counted |

Q is the chunk's length, H heads of width P, G groups, N the state of a channel (arXiv 2405.21060, section 6). A test
compares the FLOP with those that torch counts of a scan in chunks. Pipeline stages hold
their own layers, each with its own time and memory. Gated DeltaNet, Kimi Delta Attention and RWKV-7 are delta rules in
chunks. For a token and head they take `2 C (3 K + 2 V) + 6 K V` operations, with chunks of C tokens, keys of K and
values of V (arXiv 2412.06464, section 3.3), and RWKV-7 more, as its state forgets along vectors of its own; these are
compared with torch's count, too.

The GEMMs of chunks are inside kernels that also compute exponentials, masks and sums. In Triton these reach about as
many FLOP/s on each SM of an H100 (Mamba-2) as of a GB200 (delta rule), 0.8 TFLOP/s, a tenth of what GEMMs reach on
GB200. That is the rate of such GEMMs (`scan.sm_flop_per_s`), unless GEMMs by themselves take longer. The forward of
Mamba-2's scan on H100 is then predicted 13 % longer to 4 % shorter than measured (vllm-project/vllm, pull request
27299), that of the delta rule on GB200 6 to 7 % shorter (flashinfer-ai/flashinfer, pull request 3902). Nobody published
times of backwards on several GPUs; steps of Mamba-2 1.3B take 2.33 times as long on A100 as on H200, and 3.52 times as
long as on GB200 (state-spaces/mamba, issue 904), where 2.44 and 3.90 are predicted. So these models have an error of
their own (`state-space`, `delta` in `data/architectures.toml`).

Mamba-1's scan takes an exponential for each element of a state. An SM computes 16 of them in a clock, which no faster
memory raises (`scan.sm_exp_per_s`, 2.7e10), so it is bound by them from A100 to B200, most on H20 and B200. The kernel
was never timed.

Limits: of RWKV-7's element-wise work only token shift and gate are priced. B300 computes twice as many exponentials in
a clock, which is not in the rate above.

## Attention to picked tokens

DeepSeek-V3.2 and GLM-5 attend to 2,048 tokens that an indexer picks for each one, DeepSeek-V4 to a window of tokens
and to entries for several. Their kernels gather keys from all over memory, and the backward adds up gradients by
atomics. Authors published which rates these kernels reach, and here they reach no more, per SM
(`attention.sparse_sm_flop_per_s`, `attention.sparse_backward_sm_flop_per_s`):

| | forward | backward, five GEMMs counted |
|---|--:|--:|
| Hopper | 4.8 TFLOP/s (FlashMLA: 640 on H800) | 0.81 (TileLang: 100 on H800, 115 on H200) |
| Blackwell | 7.1 (FlashMLA, FlashAttention: 784 to 1450) | 5.0 (cuDNN: 684, FlashAttention: 820) |

The indexer's scores are GEMMs and its pick is a pass over memory; nobody published what those take in training. Other
GPUs take the rate of Hopper, per SM.

FLOP of small models of 94 types of transformers, these architectures, sparse and compressed latent attention, an
encoder-decoder and a vision tower among them, are those that torch counts while transformers runs their forward
(tests/workload/counted.py); where fused kernels compute in another way, the difference is computed, too.

Published steps of such models, which no fit has read, are on [a page of their own](unseen-models.md).

## What is in a layer, and how to add an attention

`simulator/models/blocks.py` says what is in a layer. Each part lists its parameters beside its kernels, in a file of
its own: `attention.py`, `mla.py`, `linear_attention.py`, `mamba2.py`, `mlp.py` and others. A parameter is one record
(`parameters.py`): name, shape, the dimension that tensor parallelism cuts and in which units, the GEMM that reads it,
whether experts have it and whether FP8 checkpoints quantize it. The tensors of the checkpoint, the counts below, what
a rank holds, which gradients ranks add up, and the shapes of GEMMs follow from these records.

A new attention is:

1. its sizes: a record in `mixers.py`;
2. a file like `mamba2.py`: `parameters`, the table, and `kernels`, in the order of the forward. `gemm` of `shard.py`
   takes shapes from the table, so no size is written twice; and a line in `_MIXERS` of `blocks.py`;
3. the keys that it is read from in `hybrid.py`, and the model types that have it in `hybrids.py`;
4. a preset in `data/models` and its published count in `tests/workload/published.py`, which a test compares.

A new `model_type` is one line of a table: `llamas.py`, `mixtures.py` (experts), `gpts.py`, `hybrids.py`, `encoders.py`
or `encoder_decoders.py`; of a model with a tower one in `composites.py`, and one in `vision.py` if the tower is new. It
says what the code fixes (`design`, a spec without sizes), which keys have other names (`own`; names that several
families use are in `ALIASES` of `keys.py`), and defaults that no class of transformers declares. Layers that differ
from others in size are `variants` of the model: each is the config read once more with the keys of these layers
(`layer_keys.py`). Where transformers is installed, `python -m tests.workload.built` writes the counts that tests
compare, and `python -m tests.workload.type_defaults` what transformers declares.

## Presets

*total* and *active* are what runcast counts: every parameter once, embedding and head included, a tied one once, MTP
layers left out. Sources count differently, so *published* is compared with what *they counted*. Counts with all digits
are equal to the last one. Others are what rounding ours, or cutting it off, gives; *off* is by how much ours differs.

"""

_READ = """transformers {} has {} types with a causal language model: {} text decoders, and encoders, encoder-decoders
and models with towers. {} are read, {} of them text decoders, and with them {} types without a causal language model,
such as T5 and LLaVA. Their parameters are those of the models that transformers builds, to 0.1 %
(`tests/workload/test_built.py` compares them).

Models with towers are read of {}.

"""


def page() -> str:
    """The page as text."""
    return "".join([HEAD, _refused(), MIDDLE, _table()])


def _refused() -> str:
    reasons = dict.fromkeys([*REFUSED_TYPES, *REFUSED_KEYS])
    cells = [(why, _code(REFUSED_TYPES.get(why, ())), _code(REFUSED_KEYS.get(why, ()))) for why in reasons]
    rows = [f"| {' | '.join(row)} |\n" for row in cells]
    known = f"Known `model_type`s are {_code(sorted(FAMILIES))}.\n\n"
    others = len([model for model in read_models() if model.model_type in OTHERS])
    known += _READ.format(
        VERSION, N_CAUSAL, N_DECODERS, len(read_models()) - others, N_READ_DECODERS, others, _code(sorted(COMPOSITES))
    )
    head = "Refused are, by `model_type`, or by a key that tells, unless the `model_type` is one that has it:\n\n"
    head += "| what | `model_type` | key |\n|---|---|---|\n"
    return known + head + "".join(rows)


def _code(names) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table() -> str:
    head = "| preset | total | active | published | they counted | off | published active | counted | source |\n"
    return head + "|---|--:|--:|--:|---|--:|--:|---|---|\n" + "".join(map(_row, PUBLISHED))


def _row(row) -> str:
    spec = preset(row.preset)
    off = counted(spec, row)[0] / Figure.of(row.total).value - 1
    cells = [f"`{row.preset}`", f"{total_params(spec):,}", f"{active_params(spec):,}", row.total, row.counted]
    cells += [f"{100 * off:+.2f} %" if off else "0", row.active, row.active_counted if row.active else "", row.source]
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    print(page(), end="")
