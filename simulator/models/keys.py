"""Keys: typed reading of a config; faults are collected, so that the user sees all of them at once."""

import re
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from types import UnionType
from typing import Any

from ..base.errors import UserError, did_you_mean, fault

_MAX_DIM = 2**31
EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
ALIASES = {
    **dict.fromkeys(EXPERT_KEYS, EXPERT_KEYS),
    "num_experts_per_tok": ("moe_topk", "moe_k", "moe_top_k", "top_k_experts", "num_experts_per_token"),
    "n_shared_experts": ("num_shared_experts", "moe_num_shared_experts"),
    "shared_expert_intermediate_size": ("shared_intermediate_size", "shared_experts_intermediate_size"),
    "first_k_dense_replace": ("num_dense_layers", "moe_layer_start_index"),
    "decoder_sparse_step": ("interleave_moe_layer_step", "moe_layer_interval"),
    "dense_intermediate_size": ("intermediate_size_mlp", "prefix_dense_intermediate_size"),
    "sliding_window": ("sliding_window_size",),
    "sliding_window_pattern": ("_sliding_window_pattern", "global_attn_every_n_layers"),
    "hidden_act": ("hidden_activation", "activation_function"),
    "qk_norm": ("use_qk_norm", "qk_layernorm"),
    "head_bias": ("lm_head_bias",),
}
"""Other names of a key, in the configs of several families."""
_OF_USE = {
    "num_labels",
    "num_beams",
    "num_beam_groups",
    "num_return_sequences",
    "num_logits_to_keep",
    "n_ctx",
    "n_positions",
}
"""Keys of how a model is used, whose names are like those of sizes."""
_OF_RUNNING = re.compile(
    r"^(_|return_|output_|scale_|rescale_|summary_|is_decoder$|trust_|torchscript|do_|early_|remove_|prefix_lm$)"
    r"|cache|fp32|float32|fp16|bf16|bfloat16|rope|rotary|ntk|logn|flash|kernel|scan|checkpointing|token|loss|router"
    r"|softmax|dropout|topk|normalize|precision|quant"
)
"""Switches of how a model runs or is scored, which change no matrix of it."""
_OF_SIZE = re.compile(r"^(n|num)_|_(size|dim|rank|width|heads|layers|experts|bias|norm|gate)$")


class Keys:
    """A config and the faults found in it so far.

    A method that meets a fault notes it and returns a harmless value; `check` raises if there was any. `None` counts as
    missing, as in Hugging Face configs. `own` maps keys to other names in this config (`a.b`: key b in table a); what
    it lacks may go by one of ALIASES. `defaults` are the values of keys that are not there under any name, and
    `of_type` those of transformers, by their names there; `filled` has those that were read. `overrides` are keys that
    a user wrote.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        where: str,
        own: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
        overrides: Collection[str] = (),
        of_type: Mapping[str, Any] | None = None,
    ):
        self.config = config
        self.where = where
        self.own = own or {}
        self.defaults = defaults or {}
        self.of_type = of_type or {}
        self.faults: list[str] = []
        self.asked: set[str] = set()
        self.filled: dict[str, Any] = {}
        self.overrides = frozenset(overrides)
        for outer in sorted({name.partition(".")[0] for name in self.own.values() if "." in name}):
            if not isinstance(config.get(outer, {}), Mapping | None):
                self.fault(outer, "an object")

    def get(self, key: str) -> Any:
        """The raw value, None where the key is missing and has no default."""
        name = self._name(key)
        self.asked |= {key, name.partition(".")[0]}
        if any(map(self._is_given, self._names(key))):
            return self._at(name)
        if key in self.defaults:
            self.filled[name] = self.defaults[key]
            return self.defaults[key]
        if known := next((each for each in self._names(key) if each in self.of_type), None):
            self.filled[known] = self.of_type[known]
            return self.of_type[known]
        return None

    def _is_given(self, name: str) -> bool:
        """Whether the config has the key, even without a value."""
        outer, _, inner = name.partition(".")
        table = self.config.get(outer)
        return inner in table if inner and isinstance(table, Mapping) else not inner and outer in self.config

    def _names(self, key: str) -> tuple[str, ...]:
        return (key, self.own.get(key, key), *ALIASES.get(key, ()))

    def _name(self, key: str) -> str:
        return next((name for name in self._names(key) if self._at(name) is not None), self.own.get(key, key))

    def change(self, changes: Mapping[str, Any]) -> "Keys":
        """The keys of a config in which these keys have other values; faults and keys asked for add up in both."""
        other = copy(self)
        other.config = {**self.config, **changes}
        return other

    def table(
        self, name: str, own: Mapping[str, str], defaults: Mapping[str, Any], of_type: Mapping[str, Any] | None = None
    ) -> "Keys":
        """The keys of a table of the config (without a name: of the config itself) by other names; faults add up."""
        other = copy(self)
        other.own, other.defaults, other.filled = own, defaults, {}
        other.of_type = self.of_type if of_type is None else of_type
        if name:
            self.asked.add(name)
            value = self.config.get(name)
            if not isinstance(value, Mapping):
                self.fault(name, "an object")
            other.config, other.asked = value if isinstance(value, Mapping) else {}, set()
            other.where = f"{self.where}: {name}"
        return other

    def _at(self, name: str) -> Any:
        outer, _, inner = name.partition(".")
        value = self.config.get(outer)
        if not inner:
            return value
        return value.get(inner) if isinstance(value, Mapping) else None

    def may_cut(self) -> bool:
        """Whether a user wrote the number of layers, so that patterns and lists of the config may be longer."""
        return self._name("num_hidden_layers") in self.overrides

    def has(self, key: str) -> bool:
        """Whether the key is present with a value."""
        return self.get(key) is not None

    def fault(self, key: str, allowed: str) -> None:
        """Note a fault of this key's value."""
        name = self._name(key)
        line = fault(self.where, name, self.get(key), allowed)
        if line not in self.faults:
            self.faults.append(line)

    def expect(self, ok: bool, key: str, allowed: str) -> None:
        """Note that this key does not fit others, unless an earlier fault may be the cause."""
        if not ok and not self.faults:
            self.fault(key, allowed)

    def whole(self, key: str, default: int | None = None, minimum: int = 1, maximum: int = _MAX_DIM) -> int:
        """A whole number in a range; required when there is no default."""
        if not self.has(key) and default is not None:
            return default
        value = self.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum:
            return value
        missing = "" if self.has(key) else "missing; "
        self.fault(key, f"{missing}a whole number from {minimum} to {maximum}")
        return 1

    def optional(self, key: str) -> int | None:
        """A positive whole number, or None where the key is missing."""
        return self.whole(key) if self.has(key) else None

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        return bool(self._typed(key, bool, "true or false", default))

    def text(self, key: str, default: str) -> str:
        """A text."""
        return str(self._typed(key, str, "a text", default))

    def one_of(self, key: str, known: Collection[str], default: str) -> str:
        """One of the known texts."""
        value = self.text(key, default)
        if value not in known:
            self.fault(key, f"one of {', '.join(known)}")
        return value

    def sequence(self, key: str) -> list[Any]:
        """A list, empty where the key is missing."""
        return list(self._typed(key, list | tuple, "a list", ()))

    def _typed(self, key: str, kind: type | UnionType, allowed: str, default: Any) -> Any:
        value = self.get(key)
        if value is not None and not isinstance(value, kind):
            self.fault(key, allowed)
        return value if isinstance(value, kind) else default

    def refuse_unread(self, names: Iterable[str]) -> None:
        """Note a fault for each of these keys that was not read; a near miss is suggested."""
        for key in sorted(set(names) - self.asked):
            near = did_you_mean(key, sorted(self.asked), most=1)
            self.fault(key, "means nothing for this model" + (f"; {near}" if near else ""))

    def unread_sizes(self) -> list[str]:
        """Keys that were not read, though their names and values are those of sizes or of parts of a model."""
        present = [key for key, value in self.config.items() if isinstance(value, int) and value]
        parts = [key for key in present if self.config[key] is True and not _OF_RUNNING.search(key)]
        known = self.asked | _OF_USE | {other for key in self.asked for other in ALIASES.get(key, ())}
        return sorted({*filter(_OF_SIZE.search, present), *parts} - known)

    def check(self) -> None:
        """Raise UserError if any fault was noted."""
        if self.faults:
            raise UserError(*self.faults)
