"""Mixers: the sizes of what replaces attention in some layers, one record per kind.

A mixer's parameters and kernels are in a file of its own; `blocks` joins the two. Configs are read by `hybrid`.
"""

from dataclasses import dataclass
from typing import ClassVar


class _Mixer:
    """What a mixer has unless it says otherwise.

    `architecture` is its entry in data/architectures.toml. With `beside_attention` its layers have attention as well.
    `unsplit` says why neither tensor nor context parallelism can split it (empty: they can). `swaps_heads`:
    context-parallel ranks exchange their tokens of all heads for all tokens of some heads.
    """

    architecture = ""
    beside_attention = False
    unsplit = ""
    swaps_heads = False


@dataclass(frozen=True)
class _Heads(_Mixer):
    """A mixer whose heads of q, k and v, or of what takes their place, are as many and as wide."""

    num_heads: int
    head_dim: int
    unit: ClassVar[str] = "heads of linear attention"

    @property
    def split_units(self) -> tuple[tuple[int, str], ...]:
        """How many units of what tensor parallelism splits."""
        return ((self.num_heads, self.unit),)

    @property
    def width(self) -> int:
        """Width of all heads of one projection."""
        return self.num_heads * self.head_dim


@dataclass(frozen=True)
class LinearAttention(_Mixer):
    """Gated DeltaNet, which replaces attention in `layers`."""

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    layers: frozenset[int]
    architecture = "delta"

    @property
    def split_units(self) -> tuple[tuple[int, str], ...]:
        """How many units of what tensor parallelism splits."""
        return tuple((heads, "heads of linear attention") for heads in (self.num_key_heads, self.num_value_heads))

    @property
    def value_width(self) -> int:
        """Width of all heads of v, which the output projection reads."""
        return self.num_value_heads * self.value_head_dim

    @property
    def qkv_width(self) -> int:
        """Width of all heads of q, k and v, over which the convolution runs."""
        return 2 * self.num_key_heads * self.key_head_dim + self.value_width


@dataclass(frozen=True)
class Mamba2(_Mixer):
    """Mamba-2, a state-space layer (arXiv 2405.21060), in `layers` in place of attention, or `beside_attention`.

    The state of a head is `head_dim` x `state_size`. Heads of a group share B and C, as query heads share keys in GQA.
    The scan treats `chunk_size` tokens together. `gated_norm`: the output has a norm of each group, and is not only
    multiplied by its gate.
    """

    num_heads: int
    head_dim: int
    state_size: int
    num_groups: int
    conv_kernel: int
    chunk_size: int
    layers: frozenset[int]
    conv_bias: bool = True
    proj_bias: bool = False
    gated_norm: bool = True
    beside_attention: bool = False
    architecture = "state-space"
    swaps_heads = True

    @property
    def split_units(self) -> tuple[tuple[int, str], ...]:
        """How many units of what tensor parallelism splits."""
        return (self.num_heads, "heads of Mamba-2"), (self.num_groups, "groups of heads of Mamba-2")

    @property
    def projected_width(self) -> int:
        """Width of the input projection: gate, x, B, C and the step of each head."""
        return 2 * (self.inner_width + self.group_width) + self.num_heads

    @property
    def inner_width(self) -> int:
        """Width of all heads, which the output projection reads."""
        return self.num_heads * self.head_dim

    @property
    def group_width(self) -> int:
        """Width of B, and of C, over all groups."""
        return self.num_groups * self.state_size


@dataclass(frozen=True)
class Mamba(_Mixer):
    """Mamba-1, a state-space layer (arXiv 2312.00752), in `layers` in place of attention.

    Each of `inner_width` channels has a state of `state_size`. `step_rank` is the rank of the step's projection.
    `inner_norms` (Jamba): norms of the step, of B and of C.
    """

    inner_width: int
    state_size: int
    step_rank: int
    conv_kernel: int
    layers: frozenset[int]
    conv_bias: bool = True
    proj_bias: bool = False
    inner_norms: bool = False
    architecture = "state-space"
    split_units = ()
    unsplit = "its ranks would have to add up steps, B and C of all channels, which is not modelled"


@dataclass(frozen=True)
class ShortConvolution(_Mixer):
    """The gated short convolution of LFM2 (arXiv 2511.23404), in `layers` in place of attention; `width` channels."""

    width: int
    conv_kernel: int
    layers: frozenset[int]
    bias: bool = False

    @property
    def split_units(self) -> tuple[tuple[int, str], ...]:
        """How many units of what tensor parallelism splits."""
        return ((self.width, "channels of the short convolution"),)


@dataclass(frozen=True)
class KimiDelta(_Heads):
    """Kimi Delta Attention (arXiv 2510.26692), in `layers` in place of attention."""

    conv_kernel: int
    layers: frozenset[int]
    architecture = "delta"


@dataclass(frozen=True)
class Rwkv7(_Heads):
    """Time mixing of RWKV-7 (arXiv 2503.14456), in `layers` in place of attention.

    Heads of `head_dim` are together as wide as the model. `ranks` of decay (w), step (a), value (v) and gate (g).
    """

    ranks: tuple[tuple[str, int], ...]
    layers: frozenset[int]
    architecture = "state-space"
    unit = "heads of RWKV-7"


@dataclass(frozen=True)
class Lightning(_Heads):
    """Lightning Attention (arXiv 2501.08313), in `layers` in place of attention; `block_size` tokens go together."""

    block_size: int
    layers: frozenset[int]


Mixer = LinearAttention | Mamba2 | Mamba | ShortConvolution | KimiDelta | Rwkv7 | Lightning
