"""torchtitan's recipes as its repository has them since 2026: functions of a `config_registry.py`, read and not run.

A recipe becomes the same keys as a config in TOML or JSON. Sizes of a flavor that is no preset come from a table of
flavors (`llama3_configs`), in the same file or in the `__init__.py` beside it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ...base.errors import UserError
from ...base.files import read_text, read_toml
from .arguments import loose
from .python_recipes import Call, PythonFile, Unread
from .python_values import merge

_REGISTRY = "model_registry"
_MODES = {"selectiveac": "selective", "fullac": "full", "memorybudgetac": "memory_budget"}
_DEFAULTS = {"local_batch_size": 8, "seq_len": 2048}
"""Of torchtitan's TrainingConfig; newer ones count tokens."""
_TOKENS = "num_tokens_per_microbatch_per_dp_rank"


def is_registry(text: str) -> bool:
    """Whether a Python file holds recipes of torchtitan."""
    return re.search(rf"\btorchtitan\b|\b{_REGISTRY}\(", text) is not None


class Registry:
    """A recipe of a registry: its keys, and where its sizes may be found."""

    def __init__(self, text: str, where: str, recipe: str | None):
        self.where = where
        self.file = PythonFile(text, where)
        self.recipe = self.file.choose(recipe)
        self.base: Registry | None = None
        found = self.file.call(self.recipe)
        if isinstance(found, Call) and (origin := self._origin(found)) is not None:
            self.base = self._open(origin.name)
            found = merge(merge(self.base.config, origin), found)
        if not isinstance(found, Call) or not found.keys:
            raise UserError(f"{where}: {self.recipe} is not plain, and is not run; give the config that a run saves")
        if "generator" in found.keys:
            raise UserError(f"{where}: {self.recipe}: reinforcement learning inside torchtitan is not read")
        self.config: Call = found

    def _origin(self, found: Call) -> Call | None:
        """The recipe of another file that a recipe changes, or hands to a function that converts it."""
        if found.is_class:
            return None
        return next((value for value in found.values if isinstance(value, Call)), found)

    def _open(self, name: str) -> "Registry":
        """The recipe of another file from which this one is made."""
        module = self.file.imports.get(name, "")
        path = Path(*module.split(".")).with_suffix(".py") if module else Path(".py")
        folders = Path(self.where).resolve().parents
        beside = next((folder / path for folder in folders if (folder / path).is_file()), None)
        if beside is None or module.startswith("."):
            raise UserError(f"{self.where}: {self.recipe} is made from {name}() of another file; give that one")
        return Registry(read_text(beside), str(beside), name)

    @property
    def notes(self) -> list[str]:
        """What was left out, a line each."""
        lines = [f"{line}: not plain, and not read" for line in self.file.unread]
        if "muon" in str(self.config.keys.get("optimizer")).lower():
            lines.append("optimizer: AdamW's states and step are assumed, not Muon's")
        loader = self.config.keys.get("dataloader")
        if isinstance(loader, Call) and "MM" in loader.name:
            lines.append(f"dataloader = {loader.name}: what images take")
        return lines

    @property
    def family(self) -> str:
        """The family that the folder's `__init__.py`, the folder or the recipe names; empty where none does."""
        named = [loose(text) for text in (Path(self.where).resolve().parent.name, self.recipe)]
        if self.base is not None:
            return self.base.family
        spec = re.search(r'ModelSpec\(\s*name="(\w+)"', self._beside())
        known = sorted(_families(), key=len, reverse=True)
        found = (family for text in named for family in known if loose(family) in text)
        return spec[1] if spec else next(found, "")

    def table(self) -> dict[str, Any]:
        """The recipe as sections of a config."""
        table = self.config.table()
        spec = self.config.keys.get("model_spec")
        table.pop("model_spec", None)
        given = spec if isinstance(spec, Call) else Call("")
        training = table.setdefault("training", {})
        if _TOKENS not in training:
            table["training"] = _DEFAULTS | training
        table["model"] = {"name": self.family, "flavor": self._flavor(given), **self._of_model(given)}
        table["activation_checkpoint"] = self._recompute()
        return table

    def sizes(self, flavor: str) -> dict[str, Any]:
        """Keys of a Hugging Face config by the table of flavors; nothing where there is none."""
        for text in (None, self._beside()):
            file = self.file if text is None else PythonFile(text, self.where)
            for name in file.names:
                table = file.lookup(name) if name.endswith("configs") else None
                if isinstance(table, Mapping) and flavor in table:
                    return _config_keys(_model(file, table[flavor]), self.family)
        return self.base.sizes(flavor) if self.base else {}

    def _beside(self) -> str:
        beside = Path(self.where).with_name("__init__.py")
        return read_text(beside) if beside.is_file() and beside != Path(self.where) else ""

    def _flavor(self, spec: Call) -> str:
        flavor = spec.values[0] if spec.values else spec.keys.get("flavor")
        return flavor if isinstance(flavor, str) else "`model_spec`"

    def _of_model(self, spec: Call) -> dict[str, Any]:
        """Keys of the model's registry, and converters from wherever a release has them."""
        own = {key: value for key, value in spec.table().items() if key not in ("converters", "quantization", "flavor")}
        holders = (spec.keys.get("converters"), spec.keys.get("quantization"), self.config.keys.get("model_converters"))
        calls = [call for holder in holders for call in _converters(holder)]
        inside = {key: value for call in calls for key, value in call.table().items()}
        return own | inside | ({"converters": [_short(call.name) for call in calls]} if calls else {})

    def _recompute(self) -> dict[str, Any]:
        """Selective by operation where nothing is said, as by default."""
        given = self.config.keys.get("activation_checkpoint", Call("SelectiveAC.Config"))
        if given is None:
            return {"mode": "none"}
        name = loose(given.name.removesuffix(".Config")) if isinstance(given, Call) else ""
        keys = given.table() if isinstance(given, Call) else {}
        return {"mode": _MODES.get(name, "selective"), **keys}


def _short(name: str) -> str:
    """`quantize.Float8LinearConverter.Config` as `float8linear`."""
    return name.removesuffix(".Config").rpartition(".")[2].removesuffix("Converter").lower()


def _converters(holder: Any) -> Iterator[Call]:
    """Converters in a list, or in a container that holds one."""
    if isinstance(holder, Call):
        holder = holder.keys.get("converters", [])
    yield from (call for call in (holder if isinstance(holder, list) else []) if isinstance(call, Call))


def _model(file: PythonFile, value: Any) -> Any:
    """A flavor's entry: the model itself, or the function that makes it."""
    return file.call(value.text) if isinstance(value, Unread) and file.defines(value.text) else value


@cache
def _table() -> dict[str, Any]:
    return read_toml(files("runcast.data") / "recipes" / "torchtitan_models.toml")


def _families() -> dict[str, dict[str, Any]]:
    families: dict[str, dict[str, Any]] = _table()["families"]
    return families


def flavor_preset(family: str, flavor: str) -> str | None:
    """The preset whose shape a flavor of a family has, where its name does not tell."""
    found: str | None = _families().get(family, {}).get("presets", {}).get(flavor)
    return found


def _config_keys(model: Any, family: str) -> dict[str, Any]:
    """Sizes of a model as keys of a Hugging Face config of the family; nothing where some are missing."""
    if not isinstance(model, Call) or "config" not in _families().get(family, {}):
        return {}
    said = dict(_sizes(model))
    if "hidden_dim" not in said and "multiple_of" in said and "dim" in said:
        said["hidden_dim"] = _ffn(said["dim"], said["multiple_of"], said.get("ffn_dim_multiplier"))
    known = _table()["sizes"]
    sizes = {key: said[name] for key, names in known.items() for name in names if name in said}
    mixture = "num_experts" in said and "mixture" in _families()[family]
    config = _families()[family]["mixture" if mixture else "config"]
    found = {**config, **sizes} | ({config["experts_key"]: said["num_experts"]} if mixture else {})
    found.pop("experts_key", None)
    if found.get("q_lora_rank") == 0:
        found["q_lora_rank"] = None
    needed = {"hidden_size", "num_hidden_layers", "num_attention_heads"}
    return found if needed <= found.keys() and ("intermediate_size" in found or mixture) else {}


def _sizes(model: Call) -> Iterator[tuple[str, Any]]:
    """Numbers by their names, from the innermost call to the outermost, so that the outermost counts."""
    parts: list[Call] = [model]
    for part in parts:
        parts += [value for value in part.keys.values() if isinstance(value, Call)]
    for part in reversed(parts):
        for name, value in part.keys.items():
            if isinstance(value, Call) and value.name.endswith("compute_ffn_hidden_dim") and value.values:
                yield (
                    name,
                    _ffn(value.values[0], value.keys.get("multiple_of", 1), value.keys.get("ffn_dim_multiplier")),
                )
            elif isinstance(value, int | float):
                yield name, value


def _ffn(dim: int, multiple_of: int, multiplier: float | None) -> int:
    """Llama's width of a feed-forward network: two thirds of four times dim, rounded up to a multiple."""
    width = int(int(8 * dim / 3) * (multiplier or 1))
    return -(-width // multiple_of) * multiple_of
