"""The registry of op kinds: what there is to know of a kind of op, once.

Programs name their ops' kinds; this says of each how it is priced (its form: `costs` has a function for each), which
phase of a report it is part of, what disturbs it and what it disturbs, what its gradients are, and how it is drawn.
What a rank does for it when a Program is executed lives with its executors (`calibrate/execute`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

PRODUCT, ATTENTION, EXPERTS, MEMORY = "product", "attention", "experts", "memory"
EXCHANGE, COPY, HOST_WORK, PASS = "exchange", "copy", "host work", "pass"
"""Forms that several kinds share; the others are those of one kind, whose name they have."""


@dataclass(frozen=True)
class OpKind:
    """One kind of op.

    `form` says how it is priced. Of a training step: `phase` is what it is part of ("": its lane says), `family`
    whose interference it takes and makes, `model` what of a profile prices it, `own` what does so where it was
    measured (its name, if not given), `input_gradient` and `weight_gradient` the kinds that give those, with bytes
    per byte of the forward for memory-bound kernels, `reads_input` whether its backward reads the input and not the
    output, `besides` a parameter of host work beside it, `sm_rate` one of what an SM does in a second at most: FLOP of
    GEMMs inside a kernel that does other work, too, or exponentials, the second entry of the op's shape. Of a weight
    update: `step` is the phase of its report, `work` the parameters of host work that add up, each times that entry of
    the op's shape or once (None), `traffic` the bytes that a pass moves per byte of the op, and `per_tensor` whether
    each tensor has a launch of its own. `minor` ops only prepare, synchronise or clean up, and are drawn as one;
    `colour` is that of a kind in charts of updates.
    """

    name: str
    form: str
    phase: str = ""
    family: str = ""
    model: str = ""
    own: str = ""
    input_gradient: str = ""
    input_traffic: float = 1.0
    weight_gradient: str = ""
    reads_input: bool = False
    besides: str = ""
    sm_rate: str = ""
    step: str = ""
    work: Mapping[str, int | None] = field(default_factory=dict)
    traffic: float = 0.0
    per_tensor: bool = False
    minor: bool = False
    colour: str = ""


def _kernel(
    name: str, form: str = MEMORY, phase: str = "", model: str | None = None, back: str = "", traffic: float = 1.0,
    weights: str = "", besides: str = "", own: str = "", reads_input: bool = False, sm_rate: str = "",
) -> OpKind:  # fmt: skip
    """A kernel; `back` gives the gradient of its input, and moves so many bytes per byte of the forward."""
    own_phase, family = {
        MEMORY: ("memory", "memory"), PRODUCT: ("gemm", "gemm"), ATTENTION: ("attention", "attention"),
        EXPERTS: ("experts", "gemm"),
    }[form]  # fmt: skip
    return OpKind(
        name, form, phase or own_phase, family, name if model is None else model, own, input_gradient=back,
        input_traffic=traffic, weight_gradient=weights, reads_input=reads_input, besides=besides, sm_rate=sm_rate,
    )  # fmt: skip


def _of_update(name: str, step: str, form: str = "", *, minor: bool = False, colour: str = "") -> OpKind:
    return OpKind(name, form or name, step=step, minor=minor, colour=colour)


def _host_work(name: str, step: str, *, once: str = "", each: str = "", minor: bool = False) -> OpKind:
    """Work of host threads alone: a parameter once, and another times the first entry of the shape."""
    work = ({once: None} if once else {}) | ({each: 0} if each else {})
    return OpKind(name, HOST_WORK, step=step, work=work, minor=minor)


def _pass(name: str, step: str, traffic: float, *, per_tensor: bool, own: str = "") -> OpKind:
    return OpKind(name, PASS, step=step, traffic=traffic, per_tensor=per_tensor, own=own)


_KINDS = (
    # Kernels of a training step
    _kernel("gemm", PRODUCT, model="", back="dgrad", weights="wgrad"),
    _kernel("dgrad", PRODUCT, model=".dgrad"),
    _kernel("wgrad", PRODUCT, model=".wgrad"),
    _kernel("scan_gemm", PRODUCT, model="", back="scan_dgrad", sm_rate="scan.sm_flop_per_s"),  # of all chunks of a scan
    _kernel("scan_dgrad", PRODUCT, model=".dgrad", sm_rate="scan.sm_flop_per_s"),
    _kernel("attention", ATTENTION, model="forward", back="attention_backward"),
    _kernel("attention_backward", ATTENTION, model="backward"),
    _kernel(
        "sparse_attention",
        ATTENTION,
        model="forward",
        back="sparse_attention_backward",
        sm_rate="attention.sparse_sm_flop_per_s",
    ),
    _kernel(
        "sparse_attention_backward", ATTENTION, model="backward", sm_rate="attention.sparse_backward_sm_flop_per_s"
    ),
    _kernel("experts", EXPERTS, model="", back="experts_dgrad", weights="experts_wgrad"),
    _kernel("experts_dgrad", EXPERTS, model="dgrad"),
    _kernel("experts_wgrad", EXPERTS, model="wgrad"),
    _kernel("rms_norm", back="rms_norm_backward", traffic=1.5, reads_input=True),  # x, dy -> dx
    _kernel("rms_norm_backward"),
    _kernel("swiglu", back="swiglu_backward", traffic=10 / 6, reads_input=True),  # gate, up, dy -> both gradients
    _kernel("swiglu_backward"),
    _kernel("gelu", model="copy", back="gelu_backward", traffic=1.5, reads_input=True),
    _kernel("gelu_backward", model="residual_add"),
    _kernel("residual_add", back="residual_add"),  # gradients of two branches meet
    _kernel("rope", model="copy", back="rope"),
    _kernel("permute", back="permute"),
    _kernel("combine", model="permute", own="unpermute", back="permute"),
    _kernel("route", model="residual_add", back="route"),
    _kernel("gate", model="residual_add", back="gate", traffic=1.5),
    _kernel("scan", model="residual_add", back="scan", traffic=2.0),
    _kernel("selective_scan", model="residual_add", back="selective_scan", traffic=2.0, sm_rate="scan.sm_exp_per_s"),
    _kernel("embed", model="permute", back="embed_backward", traffic=2.5),  # read-modify-write of fp32 rows
    _kernel("embed_backward", model="permute"),
    _kernel("softmax", model="residual_add", back="softmax_backward", traffic=1.2),  # y, dy -> dx, scale and mask
    _kernel("softmax_backward", model="residual_add"),
    _kernel("cross_entropy", phase="loss", back="cross_entropy_backward", traffic=2.0),
    _kernel("cross_entropy_backward", phase="loss", model="residual_add"),
    # one by one: softmax x gradient, cast back
    _kernel("loss_passes", phase="loss", model="residual_add", back="loss_passes_backward", traffic=14 / 38),
    _kernel("loss_passes_backward", phase="loss", model="residual_add"),
    _kernel("adamw", phase="optimizer", besides="optimizer.s"),
    _kernel("grad_norm", phase="optimizer", model="residual_add"),
    _kernel("memory"),  # of a trace: bound by memory
    _kernel("other"),  # of a trace: nothing is known of it
    # Whole actions, at the coarser level
    OpKind("actions", "actions", phase="coarse", family="actions"),
    OpKind("hosts", "actions", family="issue"),
    OpKind("issue", "issue", family="issue", besides="layer.s"),
    OpKind("idle", "idle", phase="memory", family="idle"),  # an action without work
    OpKind("host_adam", "host_adam", phase="optimizer", family="host_adam"),
    OpKind("cycle", "cycle", family="cycle"),
    # Host work of a weight update
    _host_work("init_group", "init", once="init_group.s", each="init_group.rank_s", minor=True),
    _host_work("open_handle", "init", once="open_handle.s"),
    _host_work("wait_worker", "sync", once="wait_worker.s", minor=True),
    _host_work("sync", "sync", once="sync.s"),
    _host_work("send_meta", "sync", once="send_meta.s", each="send_meta.tensor_s", minor=True),
    _host_work("drop_handle", "release", once="drop_handle.s"),
    _host_work("free_buffers", "release", once="free_buffers.s"),
    _host_work("barrier", "release", once="barrier.s", minor=True),
    _host_work("destroy_group", "release", once="destroy_group.s"),
    _host_work("pause", "calls", once="pause.s", minor=True),
    _host_work("begin", "calls", once="begin.s", minor=True),
    _host_work("resume", "calls", once="resume.s", minor=True),
    _host_work("register_tensors", "init", each="register.tensor_s", minor=True),
    _host_work("export_handles", "export", each="handle.export_s"),
    _host_work("open_handles", "reload", each="handle.open_s"),
    _host_work("hold", "reload"),
    # What else a weight update does
    _of_update("gather_metas", "gather"),
    _of_update("allocate", "init", minor=True),
    _of_update("register", "init"),
    _of_update("unregister", "release", "register"),
    OpKind("h2d", COPY, family="h2d", step="h2d"),
    OpKind("d2h", COPY, family="d2h"),
    _of_update("read", "h2d"),
    _of_update("copy", "broadcast", "device copy", colour="#56B4E9"),
    _of_update("agree", "sync"),
    _of_update("reload", "reload", colour="#009E73"),
    _of_update("post_hook", "post_hook", minor=True),
    _of_update("gather", "export", colour="#CC79A7"),
    _of_update("replicate", "export", colour="#0072B2"),
    _of_update("write", "write", colour="#D55E00"),
    _of_update("forward", "write", colour="#D55E00"),
    _of_update("exchange", "write", "pairs", colour="#D55E00"),
    _of_update("stage_in", "export"),
    _pass("quantize", "export", 1.5, per_tensor=True, own="quantize_tiles"),
    _pass("encode", "export", 3.0, per_tensor=True),
    _pass("apply", "reload", 2.0, per_tensor=True),
    _pass("flatten", "export", 2.0, per_tensor=False, own="copy"),
    _of_update("fs_write", "write"),
    _of_update("fs_read", "write"),
    # Exchanges between ranks, as nccl-tests names them; an update asks of broadcasts last what crosses their links
    *(OpKind(name, EXCHANGE, family=name) for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")),
    OpKind("broadcast", EXCHANGE, family="broadcast", step="broadcast", colour="#D55E00"),
    *(OpKind(name, EXCHANGE, family=name) for name in ("reduce", "send_recv")),
)

KINDS: Mapping[str, OpKind] = {kind.name: kind for kind in _KINDS}


def op_kind(name: str) -> OpKind:
    """The record of a kind of op; a KeyError if it is unknown."""
    if name not in KINDS:
        raise KeyError(f"no kind of op is called {name!r}; they are listed in simulator/base/op_kinds.py")
    return KINDS[name]


def kinds_of_form(*forms: str) -> tuple[str, ...]:
    """The kinds that are priced in one of these forms."""
    return tuple(kind.name for kind in _KINDS if kind.form in forms)
