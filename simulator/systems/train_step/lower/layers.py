"""Layers as ops: the kernels of a layer with the exchanges between them, for forward, backward and weight gradients.

Each method writes one part of a layer. It takes and returns the list of ops that the next op waits for. The parts are
those that an overlapped pair interleaves: attention with its norms and routing, dispatch, experts or dense network,
combine. Backward parts mirror them. Separate methods write weight gradients, so that a schedule can hold them back;
they also write the gather of an input that they need again.

Bytes are those of nccl-tests: everything that is gathered or reduced; what one rank sends in an all-to-all.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from ....models.blocks import Layer
from ....models.kernels import WEIGHTLESS, Kernel, Kernels, input_gradient, weight_gradient
from ....models.shard import ADAPTER
from ....models.sparse_mla import LEARNING
from ....models.states import recomputation
from .context import ContextWriter
from .piece import PieceWriter
from .plan import TrainPlan

After = list[int]
Core = Callable[[Kernels, Sequence[int]], After]
Input = tuple[str, int]  # (part, layer): an input that weight gradients read
_OWN = ("proj", "out_proj", "down", "head_transform", "altup_unembed_projections")  # what they read is not gathered
_LATENTS = ("q_down", "kv_down", "gate_down")  # what latent attention gathers instead of hidden states


class LayerWriter:
    """Writes parts of layers.

    `with_weights`: weight gradients follow in the same action, so their inputs can be gathered while input gradients
    are computed.
    """

    def __init__(self, plan: TrainPlan, writer: PieceWriter, with_weights: bool = False):
        self.plan, self.w, self._with_weights = plan, writer, with_weights
        self.spec, self.shard = plan.spec, plan.shard
        self._inputs: dict[Input, After] = {}
        self._groups = plan.groups
        self._context = ContextWriter(plan, writer)
        self._line = self.shard.tp > 1 and self.shard.side == 1  # a grid exchanges inside GEMMs: see `summa`

    def layer(self, number: int) -> Layer:
        """Begin a layer: later ops belong to it. Returns its kernels."""
        self.w.layer = number
        self.spec, self.shard = self.plan.view(number)
        self._context.spec, self._context.shard = self.spec, self.shard
        return self.plan.layer(number)

    def _end(self) -> None:
        """Begin the embedding, or with the layer's number set a head: later ops are of the model's own tokens."""
        self.spec, self.shard = self.plan.spec, self.plan.shard

    # Forward

    def attention(self, number: int, after: Sequence[int], again: bool = False) -> After:
        """Write norm, attention, the norm after it, and routing if there are experts.

        What an indexer learns by runs where gradients are on: not `again` (Megatron-LM, dsa.py).
        """
        layer = self.layer(number)
        kernels = tuple(kernel for kernel in layer.attention if not again or kernel.name not in LEARNING)
        began = len(self.w)
        done = self.w.compute(layer.before, after)
        inward = self._inward(layer) + self._bytes_of_index(layer)
        done = self._between(self._core, kernels, inward, "forward", done)
        done = self.w.compute(layer.mlp_in, done)
        self.w.mark("weights", began)
        return done

    def dispatch(self, number: int, after: Sequence[int]) -> After:
        """Write the dispatch of tokens to their experts."""
        return self._to_experts(self.layer(number), after, "dispatch", self.shard.dispatch_bytes)

    def mlp(self, number: int, after: Sequence[int]) -> After:
        """Write experts and shared experts, or the dense network."""
        layer = self.layer(number)
        done = self.w.compute(layer.experts, self._over_etp(layer, "all_gather", after))
        done = self._over_etp(layer, "reduce_scatter", done)
        return self._between(self._plain, layer.mlp, self._hidden, "forward", done) if layer.mlp else done

    def combine(self, number: int, after: Sequence[int]) -> After:
        """Write the combine: outputs of experts go back to the ranks of their tokens."""
        return self._to_experts(self.layer(number), after, "combine")

    def add_up(self, number: int, after: Sequence[int]) -> After:
        """Write the sum of the experts' outputs, and the residual."""
        return self.w.compute(self.layer(number).after, after)

    def forward(self, number: int, after: Sequence[int], again: bool = False) -> After:
        """Write the forward of a whole layer."""
        after = self.attention(number, after, again)
        for part in (self.dispatch, self.mlp, self.combine, self.add_up):
            after = part(number, after)
        return list(after)

    # Backward: input gradients

    def add_up_back(self, number: int, after: Sequence[int]) -> After:
        """Write the gradients of the experts' outputs. If these outputs were dropped, recompute them first."""
        layer = self.layer(number)
        if layer.experts and "moe" in self.plan.again.parts:
            after = self._experts_again(layer, after)
        return self.w.compute(gradients(layer.after), after)

    def combine_back(self, number: int, after: Sequence[int]) -> After:
        """Write the exchange of these gradients to the experts."""
        return self._to_experts(self.layer(number), after, "combine_back", self.shard.dispatch_bytes)

    def mlp_back(self, number: int, after: Sequence[int]) -> After:
        """Write the backward of the dense network or the experts, after recomputation of dropped activations."""
        layer = self.layer(number)
        if not (layer.experts and "moe" in self.plan.again.parts):
            after = self.w.compute(self._again(layer, layer.mlp_in), after)
            after = self._once_more(layer, layer.mlp, self._hidden, after)
            after = self.w.compute(self._again(layer, layer.experts), after)
        if layer.mlp:
            ahead = self._ahead("mlp", number, layer.mlp)
            after = self._between(self._plain, gradients(layer.mlp), self._hidden, "backward", after, ahead)
        done = self._over_etp(layer, "all_gather", after)
        return self._over_etp(layer, "reduce_scatter", self.w.compute(gradients(layer.experts), done))

    def dispatch_back(self, number: int, after: Sequence[int]) -> After:
        """Write the exchange of the tokens' gradients back to their ranks."""
        return self._to_experts(self.layer(number), after, "dispatch_back")

    def attention_back(self, number: int, after: Sequence[int]) -> After:
        """Write the backward of routing, norms and attention."""
        layer = self.layer(number)
        done = self.w.compute(gradients(layer.mlp_in), after)
        done = self.w.compute(self._again(layer, layer.before), done)
        done = self._once_more(layer, layer.attention, self._inward(layer), done)
        ahead, inward = self._ahead("attention", number, layer.attention), self._inward(layer)
        done = self._between(self._core_back, gradients(layer.attention), inward, "backward", done, ahead)
        return self.w.compute(gradients(layer.before), done)

    # Backward: weight gradients

    def mlp_weights(self, number: int) -> None:
        """Write the weight gradients of experts and dense network, and of what follows them."""
        layer = self.layer(number)
        self._weights(layer.after)
        self._weights(layer.mlp, "mlp", number, self._hidden)
        self._weights(layer.experts)

    def attention_weights(self, number: int) -> None:
        """Write the weight gradients of projections and router."""
        layer = self.layer(number)
        self._weights((*layer.mlp_in, *layer.before))
        self._weights(layer.attention, "attention", number, self._inward(layer))

    def backward(self, number: int, after: Sequence[int], weights: bool = True) -> After:
        """Write the backward of a whole layer; weight gradients follow the input gradients and delay none of them."""
        done = self.mlp_back(number, self.combine_back(number, self.add_up_back(number, after)))
        if weights:
            self.mlp_weights(number)
        done = self.attention_back(number, self.dispatch_back(number, done))
        if weights:
            self.attention_weights(number)
        return done

    # Recomputation

    def forward_again(self, number: int, after: Sequence[int]) -> After:
        """Recompute a layer, or with early stop up to its last GEMM (torch.utils.checkpoint.set_checkpoint_early_stop).

        A layer with routing weights or a norm at its end runs to the end, because their gradients need more.
        """
        layer = self.layer(number)
        if not self.plan.again.early_stop or any(kernel.kind != "residual_add" for kernel in layer.after):
            return self.forward(number, after, again=True)
        kernels, core, inward = layer.mlp, self._plain, self._hidden
        if not kernels:
            kernels, core, inward = layer.attention, self._core, self._inward(layer)
        last = [kernel.name for kernel in kernels if kernel.kind == "gemm"][-1]
        read = tuple(takewhile(lambda kernel: kernel.name != last, kernels))
        done = self.attention(number, after, again=True) if layer.mlp else self.w.compute(layer.before, after)
        gathers = self.shard.tp > 1 and self.shard.sequence_parallel
        return core(read, self._tp("all_gather", inward, done) if gathers else done)

    def _experts_again(self, layer: Layer, after: Sequence[int]) -> After:
        """Recompute routing, experts and their exchanges."""
        done = self.w.compute(self._again(layer, layer.mlp_in), after)
        done = self._to_experts(layer, done, "dispatch again", self.shard.dispatch_bytes)
        done = self.w.compute(self._again(layer, layer.experts), self._over_etp(layer, "all_gather", done))
        done = self._over_etp(layer, "reduce_scatter", done)
        done = self._to_experts(layer, self._once_more(layer, layer.mlp, self._hidden, done), "combine again")
        return self.w.compute(self._again(layer, layer.after), done)

    def _once_more(self, layer: Layer, kernels: Kernels, inward: float, after: Sequence[int]) -> After:
        """Recompute dropped outputs of a tensor-parallel part; its GEMMs need their tokens gathered again.

        A network that is recomputed as a whole also exchanges its output again (tensor_parallel.checkpoint of
        Megatron-LM calls it once more).
        """
        again = self._again(layer, kernels)
        if any(kernel.name == "down" for kernel in again):
            return self._between(self._core, again, inward, "forward", after)
        reads = any(k.kind == "gemm" and k.part not in WEIGHTLESS for k in again)  # those of attention read kept inputs
        gathers = self.shard.tp > 1 and self.shard.sequence_parallel and reads
        return self._core(again, self._tp("all_gather", inward, after) if gathers else after)

    def _again(self, layer: Layer, kernels: Kernels) -> Kernels:
        """The kernels among these whose output was not kept; for experts it may be only the activation."""
        parts = self.plan.again.parts
        again = recomputation(layer, "selective", parts) if parts else ()
        inside = {id(kernel) for kernel in layer.all}
        ours, of_experts = {id(kernel) for kernel in kernels}, set(layer.experts) & set(kernels)
        return tuple(k for k in again if id(k) in ours or (of_experts and id(k) not in inside))

    # Embedding and head

    def embed(self, kernels: Kernels, after: Sequence[int]) -> After:
        """Write the embedding: look up own tokens; a sharded embedding also exchanges rows with peers."""
        self._end()
        lookup, *norm = kernels
        done = self.w.compute(norm, self._rows("rows of tokens", self.w.compute([lookup], after)))
        return self.scatter(done)

    def embed_back(self, kernels: Kernels, after: Sequence[int]) -> After:
        """Write the backward of `embed`: gradients of rows go to the owners of the rows, which sum them."""
        self._end()
        *norm, lookup = gradients(kernels)
        done = self.w.compute(norm, self.collect(after))
        return self.w.compute([lookup], self._rows("gradients of rows", done))

    def _rows(self, name: str, after: Sequence[int]) -> After:
        """Write the exchange of a sharded embedding: a rank sends a row for each token of its peers that it holds."""
        if not self.plan.shard_embedding:
            return list(after)
        size = -(-self.shard.tokens // self.shard.tp) * self.spec.hidden_size * self.shard.wide
        return [self.w.op("all_to_all", "rows", after, name=name, size_bytes=size, group=self._groups["dp_cp"])]

    def scatter(self, after: Sequence[int]) -> After:
        """Write the sum over the vocabulary's parts: reduce-scatter with sequence parallelism, else all-reduce."""
        kind = "reduce_scatter" if self.shard.sequence_parallel else "all_reduce"
        return self._tp(kind, self._hidden, after) if self._line else list(after)

    def collect(self, after: Sequence[int]) -> After:
        """Write the backward of `scatter`."""
        gathers = self.shard.tp > 1 and self.shard.sequence_parallel
        return self._tp("all_gather", self._hidden, after) if gathers else list(after)

    def loss(self, number: int, kernels: Kernels, after: Sequence[int]) -> After:
        """Write norm, logits of this rank's vocabulary, and the loss, with an all-reduce of three numbers per token."""
        self._end()
        self.w.layer = number
        own, of_vocabulary = _split_head(kernels)
        done = self.collect(self.w.compute(own, after))
        done = self.w.compute(of_vocabulary, done)
        return self._tp("all_reduce", 3.0 * 4 * self.shard.tokens, done) if self._line else done

    def loss_back(self, number: int, kernels: Kernels, after: Sequence[int]) -> After:
        """Write the backward from the loss to the last hidden states."""
        self._end()
        self.w.layer = number
        own, of_vocabulary = _split_head(kernels)
        ahead = self._ahead("head", number, kernels)
        kernels = gradients(of_vocabulary)
        first = next(i for i, kernel in enumerate(kernels) if _reads_gathered(kernel))
        done = self._plain(kernels[:first], after)
        done = self._compute_beside_gather(self._plain, kernels[first:], self._hidden, done, ahead)
        return self.w.compute(gradients(own), self.scatter(done))

    def loss_weights(self, number: int, kernels: Kernels) -> None:
        """Write the weight gradients of the logits."""
        self._end()
        self.w.layer = number
        self._weights(kernels, "head", number, self._hidden)

    def plain_weights(self, kernels: Kernels) -> None:
        """Write the weight gradients of GEMMs without exchanges."""
        self._weights(kernels)

    # Tensor parallelism

    @property
    def _hidden(self) -> float:
        """Bytes of the hidden states of a whole tensor-parallel group."""
        return float(self.shard.tokens * self.spec.hidden_size * self.shard.wide)

    def _inward(self, layer: Layer) -> float:
        """Bytes that ranks gather before attention: hidden states, or their latents with MLA."""
        latents = sum(k.shape[1] for k in layer.before if k.kind == "gemm" and k.name in _LATENTS)
        return float(self.shard.tokens * latents * self.shard.wide) if latents else self._hidden

    def _bytes_of_index(self, layer: Layer) -> float:
        """Bytes that an indexer gathers for itself; it keeps them, and no gradient goes back (Megatron-LM, dsa.py)."""
        widths = [kernel.shape[2] for kernel in layer.attention if kernel.name in ("index_keys", "index_queries")]
        return float(self.shard.tokens * sum(widths) * self.shard.wide)

    def _between(
        self, core: Core, kernels: Kernels, inward: float, way: str, after: Sequence[int], ahead: Input | None = None
    ) -> After:
        """Write kernels of a tensor-parallel group with the exchanges before and after them.

        With sequence parallelism: all-gather before, reduce-scatter after; the backward exchanges the two. Without it:
        all-reduce after. With overlap, the exposed share of each exchange stays there and the rest runs beside the
        GEMMs; the next op waits for both.
        """
        outward = self._hidden
        before, behind = (inward, outward) if way == "forward" else (outward, inward)
        if not self._line or not kernels:
            return list(core(kernels, after))
        if not self.shard.sequence_parallel:
            return self._tp("all_reduce", behind, core(kernels, after))
        if self.plan.overlap_tp:
            exposed = round(self.plan.tp_exposed * before), round(self.plan.tp_exposed * behind)
            gathered = self._part("all_gather", exposed[0], after)
            beside = self._part("all_gather", before - exposed[0], gathered)
            beside = self._part("reduce_scatter", behind - exposed[1], beside)
            return self._part("reduce_scatter", exposed[1], [*beside, *core(kernels, gathered)])
        gathered = self._tp("all_gather", before, after)
        if ahead is None:
            return self._tp("reduce_scatter", behind, core(kernels, gathered))
        first = next(i for i, kernel in enumerate(kernels) if _reads_gathered(kernel))
        done = self._compute_beside_gather(core, kernels[first:], behind, core(kernels[:first], gathered), ahead)
        return self._tp("reduce_scatter", behind, done)

    def _part(self, kind: str, size_bytes: float, after: Sequence[int]) -> After:
        """Write a part of an exchange, unless it is empty."""
        return self._tp(kind, size_bytes, after) if size_bytes else list(after)

    def _tp(self, kind: str, size_bytes: float, after: Sequence[int]) -> After:
        return [self.w.op(kind, "tp", after, name=f"tp {kind}", size_bytes=size_bytes, group=self._groups["tp"])]

    def _ahead(self, part: str, number: int, kernels: Kernels) -> Input | None:
        """The input that weight gradients need gathered while the input gradients of the same GEMMs run, or None."""
        return (part, number) if self._with_weights and self._gathers_again(kernels) else None

    def _gathers_again(self, kernels: Kernels) -> bool:
        """Whether weight gradients need tokens of other ranks, which sequence parallelism does not keep by itself."""
        learns = any(weight_gradient(kernel) for kernel in kernels if _reads_gathered(kernel))
        return self._line and self.shard.sequence_parallel and learns and not self.shard.keeps_gathered

    def _compute_beside_gather(
        self, core: Core, kernels: Kernels, size_bytes: float, after: Sequence[int], ahead: Input | None
    ) -> After:
        """Write input gradients of GEMMs and, beside them, the gather for weight gradients, as Megatron-LM does."""
        if ahead is not None:
            self._inputs[ahead] = self._tp("all_gather", size_bytes, after)
        return list(core(kernels, after))

    def _weights(self, kernels: Kernels, part: str = "", number: int = -1, gathered: float = 0.0) -> None:
        """Write weight gradients: first those with local inputs, then those that read gathered tokens."""
        learned = [(kernel, weights) for kernel in reversed(kernels) if (weights := weight_gradient(kernel))]
        inputs = self._inputs.pop((part, number), [])
        if part and not inputs and self._gathers_again(kernels):
            inputs = self._tp("all_gather", gathered, ())
        self.w.compute([weights for kernel, weights in learned if not _reads_gathered(kernel)])
        self.w.compute([weights for kernel, weights in learned if _reads_gathered(kernel)], inputs)

    def _plain(self, kernels: Kernels, after: Sequence[int]) -> After:
        return self.w.compute(kernels, after)

    def _core(self, kernels: Kernels, after: Sequence[int]) -> After:
        return self._context.write(kernels, after, 1.0)

    def _core_back(self, kernels: Kernels, after: Sequence[int]) -> After:
        return self._context.write(kernels, after, 2.0)

    # Experts

    def _to_experts(self, layer: Layer, after: Sequence[int], name: str, each: float = 0) -> After:
        """Write an exchange of tokens between expert-parallel ranks; `each` is bytes per element (0: activations')."""
        if not layer.experts or self.shard.ep == 1:
            return list(after)
        copies = self._copies * (each or self.shard.wide)
        sent, remote = copies * self.plan.rank_share, self.plan.remote_share
        shape = () if remote is None else (round(copies * remote),)
        return [self.w.op("all_to_all", "ep", after, name=name, size_bytes=sent, shape=shape, group=self._groups["ep"])]

    @property
    def _copies(self) -> float:
        """Elements of the copies of one rank's tokens, one copy per chosen expert."""
        moe = self.spec.moe
        assert moe is not None
        return self.shard.own_tokens * moe.num_experts_per_tok * self.spec.expert_hidden * self.shard.load

    def _over_etp(self, layer: Layer, kind: str, after: Sequence[int]) -> After:
        """Write an exchange between ranks that shard the same experts: gather of tokens, or reduction of outputs."""
        if not layer.experts or self.shard.etp == 1:
            return list(after)
        size = self._copies * self.shard.wide * self.shard.etp
        return [self.w.op(kind, "etp", after, name=f"etp {kind}", size_bytes=size, group=self._groups["etp"])]


def gradients(kernels: Kernels) -> Kernels:
    """The input gradients of kernels, in reverse order, each behind its kernel if the backward runs that again."""
    found: list[Kernel] = []
    for kernel in reversed(kernels):
        if not kernel.passes:
            continue
        found += [replace(kernel, keeps=())] * kernel.again + [input_gradient(kernel)]
    return tuple(found)


def _split_head(kernels: Kernels) -> tuple[Kernels, Kernels]:
    """The kernels of a head on a rank's own tokens, and those on its part of the vocabulary."""
    first = next(place for place, kernel in enumerate(kernels) if kernel.name == "logits")
    return kernels[:first], kernels[first:]


def _reads_gathered(kernel: Kernel) -> bool:
    """Whether a kernel is a GEMM (or its input gradient) outside attention that reads gathered tokens."""
    name = kernel.name.removesuffix("_dgrad").partition(ADAPTER)[0]
    return kernel.kind in ("gemm", "dgrad") and kernel.part not in WEIGHTLESS and name not in _OWN
