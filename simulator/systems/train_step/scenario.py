"""What a scenario file of kind train_step may say: one pydantic model per table, a description per field."""

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from ...collectives import MEASURED
from ...models.shard import PRODUCTS
from ...profile import AttentionKernels
from ..lengths import check_lognormal
from ..tables import Algorithms, Model, OnCluster, Seconds, Size, SlowNodes, Table, Time


def _whole(of: str, such_as: int, word: str = "") -> BeforeValidator:
    """Says of what a key is a number, as a size with its unit is what one may expect; or a word that it may be too."""

    def checked(value: Any) -> Any:
        if word and value == word:
            return value
        if type(value) is not int or (word and value < 1):
            raise ValueError(f"expected a whole number of {of}, such as {such_as}" + (f", or {word!r}" if word else ""))
        return value

    return BeforeValidator(checked)


_LAYERS = re.compile(r"all|[0-9]{1,6}(-[0-9]{0,6})?(,[0-9]{1,6}(-[0-9]{0,6})?)*")
Sequences = Annotated[PositiveInt, _whole("sequences", 8)]
Tokens = Annotated[PositiveInt, Field(le=2**31), _whole("tokens", 8192)]
Bucket = Annotated[PositiveInt | Literal["tensor"], _whole("elements", 40_000_000, "tensor")]
Part = Literal["core_attn", "layernorm", "mla_up_proj", "activation", "moe_act", "mlp", "moe", "shared_experts"]


class Parallel(Table):
    """How the model and the batch lie on the GPUs; dp follows from the GPUs."""

    tp: PositiveInt = Field(1, description="tensor-parallel size")
    cp: PositiveInt = Field(1, description="context-parallel size")
    pp: PositiveInt = Field(1, description="pipeline-parallel size")
    dp: PositiveInt | None = Field(None, description="data-parallel size (default: the GPUs over tp, cp and pp)")
    ep: PositiveInt = Field(1, description="expert-parallel size")
    etp: PositiveInt | None = Field(None, description="tensor-parallel size of experts (default: tp)")
    sequence_parallel: bool = Field(True, description="whether norms and residuals are sharded over tp")
    cp_type: Literal["ring", "all_gather", "ulysses"] = Field("ring", description="how context parallelism exchanges")
    zero: Literal[0, 1, 2, 3] = Field(1, description="what is sharded over dp: 1 optimizer, 2 gradients, 3 weights")
    shard: PositiveInt | None = Field(None, description="zero 3: ranks over which weights are sharded (default: all)")
    prefetch: NonNegativeInt = Field(1, description="zero 3: units whose weights are gathered ahead")
    prefetch_backward: NonNegativeInt | None = Field(
        None, description="the same in backwards; 0 is FSDP's BACKWARD_POST (default: as prefetch)"
    )
    reshard: bool = Field(
        True,
        description="zero 3: whether weights are dropped after forwards; after backwards whose gradients are reduced "
        "they are, but in a pipeline",
    )
    sync_each_microbatch: bool = Field(True, description="zero 2, 3: whether gradients are reduced each micro-batch")
    order: str = Field("tp-cp-ep-dp-pp", description="axes from the nearest ranks to the farthest")
    tp_2d: bool = Field(False, description="whether the tp = q x q ranks are a grid whose products are SUMMA's")
    pad_vocab: PositiveInt = Field(1, le=10**6, description="the vocabulary is padded to a multiple of this, times tp")
    shard_embedding: bool = Field(False, description="whether rows of the token embedding are split over dp and cp")
    layers: tuple[NonNegativeInt, ...] | None = Field(None, description="layers per stage, in model order")
    embedding_as_layer: bool = Field(False, description="whether embedding and head count as layers in the split")

    @property
    def ahead_in_backward(self) -> int:
        """Units whose weights are gathered ahead in backwards."""
        return self.prefetch if self.prefetch_backward is None else self.prefetch_backward


class Schedule(Table):
    """The order of a pipeline."""

    name: str = Field("1f1b", description="gpipe, 1f1b, interleaved, interleaved-overlap, zb-h1, … dualpipe-v")
    vpp: PositiveInt | None = Field(None, description="chunks per pipeline rank (default: 1, or what the name fixes)")
    group: PositiveInt | None = Field(None, description="interleaved: micro-batches per group (default: pp)")
    file: str | None = Field(None, min_length=1, description="instead of a name: a file of one's own schedule, as text")
    passes: PositiveInt = Field(1, description="how often a step fills and empties the pipeline, as torchtitan may")

    @model_serializer(mode="wrap")
    def _without_defaults(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what was added later and is left at its default, so that older hashes stay valid."""
        later = {"file": None, "passes": 1}
        return {key: value for key, value in plain(self).items() if key not in later or value != later[key]}


class Documents(Table):
    """Texts that are packed into sequences; tokens attend to those of their own text."""

    mean: Annotated[float, Field(ge=1, le=2**31)] = Field(description="mean length in tokens")
    p99: Annotated[float, Field(ge=1, le=2**31)] | None = Field(
        None, description="99th percentile of the lengths, which are then lognormal (default: all are equal)"
    )

    @model_validator(mode="after")
    def _tail(self) -> "Documents":
        if self.p99 is not None:
            check_lognormal(self.mean, self.p99)
        return self


class Batch(Table):
    """What one step trains on; sizes in sequences."""

    global_: Sequences = Field(alias="global", description="sequences per step, over all ranks")
    micro: Sequences = Field(1, description="sequences per micro-batch")
    seq_len: Tokens = Field(description="tokens per sequence")
    documents: Documents | None = Field(
        None, description="texts that a sequence is packed of, in full (default: one as long as it)"
    )
    split: Literal["even", "proportional"] = Field(
        "even", description="whether replicas on unequal machines get equal numbers of sequences, or by their speed"
    )


Stored = Literal["bf16", "fp8", "e5m6"]


class Activations(Table):
    """Types in which inputs of modules lie from the forward to the backward: 8 bits and 12 have scales beside."""

    attn_proj: Stored | None = Field(None, description="of the product behind attention, whose backward reads it too")
    mlp_act: Stored | None = Field(None, description="of the activation of dense networks")
    expert_fc1: Stored | None = Field(None, description="of the first product of experts")
    moe_act: Stored | None = Field(None, description="of the activation of experts, the shared ones too")


class Precision(Table):
    """The data types of computation and of kept tensors."""

    compute: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp8-block", "mxfp8", "nvfp4"] = Field(
        "bf16", description="type of matrix products"
    )
    gradients: Literal["fp32", "bf16"] = Field("fp32", description="type in which gradients are kept")
    reduce: Literal["fp32", "bf16"] | None = Field(None, description="type in which they travel (default: gradients')")
    moments: Literal["fp32", "bf16", "fp8"] = Field("fp32", description="type of the optimizer's moments")
    master: bool = Field(True, description="whether the optimizer keeps weights in fp32")
    weights: Literal["fp8", "bf16"] = Field(
        "bf16", description="8-bit compute: weights of layers that are held, fp8 (copies alone) or bf16 (beside copies)"
    )
    dispatch: Literal["bf16", "fp8"] = Field(
        "bf16", description="type in which tokens go to experts, and the gradients of what those gave"
    )
    activations: Activations = Field(
        default=Activations(), description="types in which inputs are kept (default: as products read them, or bf16)"
    )


class Recompute(Table):
    """What the backward computes again instead of keeping it."""

    mode: Literal["none", "selective", "full"] = Field("none", description="how much")
    modules: tuple[Part, ...] = Field(("core_attn",), description="selective: which parts of a layer")
    layers: PositiveInt | None = Field(
        None, description="full: layers per chunk that are recomputed (default: all, MTP layers too)"
    )
    early_stop: bool = Field(
        False, description="full: whether dense layers stop before their last product (PyTorch 2.1, not reentrant)"
    )


class Offload(Table):
    """What lies in host memory meanwhile."""

    activations: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="share of what layers keep")
    slots: PositiveInt = Field(2, description="activations: layers that are staged on the device in each direction")
    optimizer: bool = Field(False, description="whether the optimizer's states and its step are on the host")


class Fusion(Table):
    """Gradients wait for the tick of a coordinator and travel together, as in Horovod."""

    cycle: Seconds = Field(1e-3, description="time from one tick to the next")
    threshold: Size = Field(64 * 2**20, description="most bytes that travel together")


class Overlap(Table):
    """Which communication runs beside computation."""

    dp: bool = Field(True, description="gradients are reduced beside the last backward")
    params: bool = Field(True, description="zero 1, 2: new weights are gathered beside the first forward")
    tp: bool = Field(False, description="tensor-parallel collectives run beside their products")
    tp_exposed: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="tp: share of each exchange's bytes that runs before or behind its products nevertheless"
    )
    pp: bool = Field(True, description="sends between stages, if there are several, do not hold the compute lane")
    wgrad: bool = Field(False, description="weight gradients are held back to run beside communication")
    fusion: Fusion | None = Field(None, description="zero 0: gradients wait for a coordinator's tick and travel fused")


class Experts(Table):
    """How tokens go to experts."""

    routing: Literal["balanced", "zipf", "histogram"] = Field("balanced", description="how tokens spread")
    zipf: Annotated[float, Field(gt=0, le=4)] = Field(1.0, description="zipf: the exponent")
    histogram: tuple[Annotated[float, Field(ge=0)], ...] = Field((), description="histogram: share of each expert")
    dispatcher: Literal["alltoall", "deepep"] = Field(
        "alltoall", description="a copy of a token per expert, or one per rank and one between nodes (DeepEP)"
    )
    nodes_per_token: PositiveInt | None = Field(None, description="deepep: most nodes that one token is sent to")
    capacity: Annotated[float, Field(gt=0)] | None = Field(None, description="capacity factor; tokens beyond drop")


class Memory(Table):
    """What software keeps in device memory beyond what its kernels need."""

    gathered: bool = Field(
        False, description="whether inputs gathered over tp stay, whole, for weights' gradients: none is gathered again"
    )
    gate: bool = Field(
        False,
        description="whether a dense gate's activation is an op of its own and stays, beside the product made of it; "
        "and rotary positions take a pass for each op",
    )
    gradients: Annotated[float, Field(ge=0, le=8)] = Field(
        0.0, description="zero 0, 1: bytes per weight of gradients as made and copied, beside those that are kept"
    )
    buckets: bool = Field(False, description="zero 0: whether gradients travel in buckets that stay allocated")
    fresh: bool = Field(False, description="whether gradients are dropped after a step, and made by the next backward")
    repeated: bool = Field(False, description="whether keys and values are kept once per query head (repeat_kv)")
    norms: Annotated[float, Field(ge=0, le=16)] = Field(
        0.0, description="bytes that RMSNorm keeps of each element beside its input and output (4: op by op in fp32)"
    )
    logits: Annotated[float, Field(ge=0, le=64)] | None = Field(
        None,
        description="bytes per logit at the loss (default: fp32 and the computing type; passes: fp32 once more; "
        "0: by parts, never all of them)",
    )

    @property
    def softmax_bytes(self) -> float:
        """Bytes per logit that the loss keeps for its backward: its softmax, in fp32 where all logits are held."""
        return 4.0 if self.logits is None else min(self.logits, 4.0)


class Lora(Table):
    """Adapters are trained, the base is frozen."""

    rank: PositiveInt = Field(16, description="rank of the adapters")
    targets: tuple[str, ...] = Field(
        PRODUCTS,
        description="what has an adapter: products (qkv, proj, up, down), as in Megatron-Core, or modules of the "
        "model (q_proj, gate_proj, ...), as in PEFT, of which all-linear is all",
    )
    base: Literal["nf4", "nf4-double"] | None = Field(
        None,
        description="4 bits in which frozen matrices of layers lie (QLoRA), with scales in 32 bits or quantized, too "
        "(default: 16 bits)",
    )

    @model_validator(mode="after")
    def _something(self) -> "Lora":
        if not self.targets:
            raise ValueError("targets: expected at least one product or module, or no [lora]")
        return self


class Freeze(Table):
    """What of the model's own stack has no gradients; towers say so by themselves."""

    layers: int | str = Field(
        0,
        description='the first so many layers; below 0 all but the last so many; or "all", or numbers from 0 on: '
        '"4-7,12", "4-" (to the last)',
    )
    embedding: bool = Field(False, description="whether the token embedding is frozen")
    head: bool = Field(False, description="whether the last norm and the output matrix are")

    @field_validator("layers", mode="before")
    @classmethod
    def _check_layers(cls, value: Any) -> Any:
        if type(value) is not int and not (isinstance(value, str) and _LAYERS.fullmatch(value)):
            raise ValueError("expected how many of the first, numbers such as 4-7,12 (from 0 on), or all")
        return value


class Run(Table):
    """The whole run that the step is of."""

    tokens: Annotated[float, Field(gt=0, le=1e18)] = Field(description="tokens to train on")
    gpu_mtbf: Time | None = Field(
        None, description="mean time between failures that stop the run, of one GPU (default: nothing fails)"
    )
    checkpoint: Time | None = Field(None, description="with gpu_mtbf: how long training stands for a checkpoint")
    restart: Seconds | None = Field(
        None, description="with gpu_mtbf: from a failure until training goes on, at its last checkpoint"
    )
    interval: Time | None = Field(
        None,
        description="with gpu_mtbf: work between two checkpoints, made to divide the run "
        "(default: what makes the run shortest)",
    )

    @model_validator(mode="after")
    def _failures(self) -> "Run":
        given = [key for key in ("checkpoint", "restart", "interval") if getattr(self, key) is not None]
        if self.gpu_mtbf is None and given:
            raise ValueError(f"{' and '.join(given)} without gpu_mtbf: nothing fails")
        if self.gpu_mtbf is not None and (self.checkpoint is None or self.restart is None):
            raise ValueError("gpu_mtbf needs checkpoint and restart")
        return self


class Execute(Table):
    """How `runcast execute` runs the step; predictions take no notice of it."""

    scale: PositiveInt = Field(
        1, description="widths, vocabulary and sequences are this many times smaller where the step is executed"
    )


class Tower(Table):
    """What a tower of the model reads: images, sounds, or an encoder's text."""

    inputs: NonNegativeInt | None = Field(
        None, description="inputs of each sequence, such as images (default: 1); 0: the tower is not there"
    )
    tokens: Tokens | None = Field(
        None, description="tokens of an input inside the tower (default: the config's, or an encoder's: seq_len)"
    )
    frozen: bool = Field(
        False, description="whether it has no gradients; its projector does, unless adapters are trained"
    )
    frozen_projector: bool = Field(False, description="with frozen: whether its projector has none either")

    @model_validator(mode="after")
    def _freezes_both(self) -> "Tower":
        if self.frozen_projector and not self.frozen:
            raise ValueError("frozen_projector goes with frozen = true")
        return self


class Collectives(Algorithms):
    """By which algorithms ranks exchange. Measured: as fitted curves say, whatever the library chose there."""

    all_reduce: str = Field(
        MEASURED, description="sums of gradients, or of tensor parallelism: measured, ring, tree, …"
    )
    all_gather: str = Field(MEASURED, description="parameters, or sequences: measured, ring, …")
    reduce_scatter: str = Field(MEASURED, description="gradients, or sequences: measured, ring, …")
    all_to_all: str = Field(MEASURED, description="tokens of experts, or heads: measured, direct, hierarchical, …")


class Trained(OnCluster):
    """How a model is trained on a cluster. A run may leave out the model and its batch, and give the step's time."""

    stack: str = Field("generic", description="software stack")
    model: Model | None = Field(None, description="what is trained")
    parallel: Parallel = Field(default=Parallel(), description="how it lies on the GPUs")
    schedule: Schedule = Field(default=Schedule(), description="the order of the pipeline")
    batch: Batch | None = Field(None, description="what one step trains on")
    towers: dict[str, Tower] = Field(
        default_factory=dict, description="what the model's towers read, by name, such as vision or encoder"
    )
    precision: Precision = Field(default=Precision(), description="types")
    recompute: Recompute = Field(default=Recompute(), description="what is computed again")
    offload: Offload = Field(default=Offload(), description="what lies in host memory")
    overlap: Overlap = Field(default=Overlap(), description="what runs beside what")
    experts: Experts = Field(default=Experts(), description="how tokens go to experts")
    attention: AttentionKernels = Field(
        "flash",
        description="the device's fused kernels, FlashAttention-2's, FlashAttention's first ones, "
        "or separate ones for scores and softmax",
    )
    attention_dropout: bool = Field(True, description="unfused: whether scores have dropout")
    loss: Literal["fused", "passes"] = Field("fused", description="one kernel, or one pass over logits after another")
    collectives: Collectives = Field(default=Collectives(), description="by which algorithms ranks exchange")
    memory: Memory = Field(default=Memory(), description="what software keeps beyond what its kernels need")
    lora: Lora | None = Field(None, description="adapters instead of full fine-tuning")
    freeze: Freeze | None = Field(None, description="what of the model is not trained (default: all is)")
    bucket: Bucket | None = Field(
        None, description="elements of a gradient bucket, or one of each tensor (default: the stack's)"
    )
    level: Literal["kernels", "coarse"] = Field("kernels", description="one op per kernel, or one per pipeline action")
    slow: SlowNodes = ()


class TrainScenario(Trained):
    """One training step."""

    kind: Literal["train_step"] = Field(description="what is simulated")
    model: Model = Field(description="what is trained")
    batch: Batch = Field(description="what one step trains on")
    run: Run | None = Field(None, description="how long, and for how much, the whole run goes")
    execute: Execute = Field(default=Execute(), description="how runcast execute runs it")
