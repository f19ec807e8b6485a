"""torchtitan's recipes as its repository has them since 2026: functions of a `config_registry.py`, read and not run.

A recipe becomes the same keys as a config in TOML or JSON. Sizes of a flavor that is no preset come from a table of
flavors (`llama3_configs`), in the same file or in the `__init__.py` beside it.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

from ...base.errors import UserError
from ...base.files import read_toml
from .arguments import Computed, loose
from .python_files import PythonFile
from .python_operations import merge
from .python_recipe import PythonRecipe
from .python_values import POSITIONAL, TARGET, is_class
from .tables import check_size

_REGISTRY, _SPEC = "model_registry", "model_spec"
_MODES = {"selectiveac": "selective", "fullac": "full", "memorybudgetac": "memory_budget"}
_MOST_PARTS = 10_000
_OF_MODEL = ("converters", "quantization", "flavor", TARGET, POSITIONAL)
"""What a call of the model's registry has beside sizes."""


class Registry:
    """A recipe of a registry: its keys, and where its sizes may be found."""

    def __init__(self, text: str, where: str, recipe: str | None, parameters: Mapping[str, str]):
        self.python = PythonRecipe("torchtitan", text, where, answers={_REGISTRY: self._note_model})
        self.where, self.recipe = where, self.python.choose(recipe)
        self._named_in: PythonFile | None = None
        found = self._base(self.python.read(self.recipe, parameters))
        check_size(found, where)
        if not found.keys() - {TARGET, POSITIONAL}:
            raise UserError(f"{where}: {self.recipe} is not plain, and is not run; give the config that a run saves")
        if "generator" in found:
            raise UserError(f"{where}: {self.recipe}: reinforcement learning inside torchtitan is not read")
        self.config: dict[str, Any] = found

    def _note_model(self, file: PythonFile, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """A call of the registry of models stays one; the file that it stands in says the family and the sizes."""
        self._named_in = file
        return {TARGET: _REGISTRY, POSITIONAL: list(given), **named}

    def _base(self, found: dict[str, Any]) -> dict[str, Any]:
        """A recipe with what it has from the one that a function of another file converts."""
        chain = [found]
        while not _is_object(chain[-1]):
            base = next((value for value in chain[-1].get(POSITIONAL, ()) if isinstance(value, dict)), None)
            if base is None:
                made = f"{self.recipe} is made from {_target(chain[-1])}()"
                raise UserError(f"{self.where}: {made} of another file; give that one")
            chain.append(base)
        whole = deepcopy(chain.pop())
        for changed in reversed(chain):
            merge(whole, {key: value for key, value in changed.items() if key not in (TARGET, POSITIONAL)})
        return whole

    @property
    def notes(self) -> list[str]:
        """What takes time and is not modelled, a line each."""
        lines = []
        if "muon" in str(self.config.get("optimizer")).lower():
            lines.append("optimizer: AdamW's states and step are assumed, not Muon's")
        if "MM" in (name := _target(self.config.get("dataloader"))):
            lines.append(f"dataloader = {name}: what images take")
        spec = self.config.get(_SPEC)
        computed = [one for one in self._holders(spec if isinstance(spec, dict) else {}) if isinstance(one, Computed)]
        return lines + [
            f"converters = {one}: only running the file tells; GEMMs are as without them" for one in computed
        ]

    @property
    def family(self) -> str:
        """The family that the folder, its `__init__.py`, the import of its registry or the recipe names; else empty."""
        file = self._named_in
        texts = [self.recipe]
        if file is not None:
            beside = "".join(ast.unparse(one.tree) for one in self.python.with_package(file)[1:])
            if spec := re.search(r"ModelSpec\(name='(\w+)'", beside):
                return spec[1]
            origin = file.imports.get(_REGISTRY)
            texts = [file.path.parent.name, origin.module if origin else "", self.recipe]
        known = sorted(_families(), key=len, reverse=True)
        return next((family for text in texts for family in known if loose(family) in loose(text)), "")

    def table(self) -> dict[str, Any]:
        """The recipe as sections of a config."""
        given = self.config.get(_SPEC)
        spec = given if isinstance(given, dict) else {}
        skipped = (_SPEC, TARGET, POSITIONAL)
        table: dict[str, Any] = {key: _plain(value) for key, value in self.config.items() if key not in skipped}
        table["model"] = {"name": self.family, "flavor": _flavor(spec), **self._of_model(spec)}
        table["activation_checkpoint"] = self._recompute()
        return table

    def sizes(self, flavor: str) -> dict[str, Any]:
        """Keys of a Hugging Face config by the table of flavors; nothing where there is none."""
        for file in self.python.with_package(self._named_in) if self._named_in else ():
            for name in (one for one in file.constants if one.endswith("configs")):
                table = self.python.look_up(name, file)
                if isinstance(table, Mapping) and flavor in table:
                    model = table[flavor]
                    is_function = isinstance(model, Computed) and model.text in file.functions
                    return _config_keys(self.python.look_up(model.text, file) if is_function else model, self.family)
        return {}

    def _of_model(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Keys of the model's registry, and converters from wherever a release has them."""
        own = {key: _plain(value) for key, value in spec.items() if key not in _OF_MODEL}
        calls = [call for holder in self._holders(spec) for call in _converters(holder)]
        keys = [plain for call in calls if isinstance(plain := _plain(call), dict)]
        inside = {key: value for table in keys for key, value in table.items()}
        return own | inside | ({"converters": [_short(_target(call)) for call in calls]} if calls else {})

    def _holders(self, spec: Mapping[str, Any]) -> list[Any]:
        """What may hold converters."""
        return [spec.get("converters"), spec.get("quantization"), self.config.get("model_converters")]

    def _recompute(self) -> dict[str, Any]:
        """Selective by operation where nothing is said, as by default."""
        given = self.config.get("activation_checkpoint", {})
        keys = _plain(given)
        if not isinstance(keys, dict):
            return {"mode": "none" if keys is None else keys}
        return {"mode": _MODES.get(loose(_target(given).removesuffix(".Config")), "selective"), **keys}


def _target(value: Any) -> str:
    """The name of what a call makes; empty for what is no call."""
    return str(value.get(TARGET, "")) if isinstance(value, Mapping) else ""


def _is_object(value: Any) -> bool:
    """Whether a table is an object of a class, or has no name."""
    return not _target(value) or is_class(_target(value))


def _plain(value: Any) -> Any:
    """A value as literals and tables; what a function of another file returns is computed."""
    if isinstance(value, Mapping):
        keys = {str(key): _plain(one) for key, one in value.items() if key not in (TARGET, POSITIONAL)}
        return keys if keys or (_is_object(value) and POSITIONAL not in value) else Computed(f"{_target(value)}(...)")
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _flavor(spec: Mapping[str, Any]) -> Any:
    found = next(iter(spec.get(POSITIONAL, ())), spec.get("flavor"))
    return found if isinstance(found, str) else Computed(_SPEC)


def _short(name: str) -> str:
    """`quantize.Float8LinearConverter.Config` as `float8linear`."""
    return name.removesuffix(".Config").rpartition(".")[2].removesuffix("Converter").lower()


def _converters(holder: Any) -> Iterator[Mapping[str, Any]]:
    """Converters in a list, or in a container that holds one."""
    if isinstance(holder, Mapping):
        holder = holder.get("converters", [])
    yield from (call for call in (holder if isinstance(holder, list) else []) if isinstance(call, Mapping))


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


def flavor_of(name: str) -> tuple[str, str] | None:
    """The family and the flavor with the shape of a preset; None where torchtitan has none."""
    for family, known in _families().items():
        called = {flavor: loose(family + flavor) for flavor in known.get("flavors", ())}
        told = {flavor: loose(shape) for flavor, shape in known.get("presets", {}).items()}
        for flavor, shape in (called | told).items():
            if shape == loose(name):
                return family, flavor
    return None


def _config_keys(model: Any, family: str) -> dict[str, Any]:
    """Sizes of a model as keys of a Hugging Face config of the family; nothing where some are missing."""
    if "config" not in _families().get(family, {}):
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


def _call(value: Any) -> Mapping[str, Any] | None:
    """A call as a table, whether its result is known or not."""
    found = value.call if isinstance(value, Computed) else value
    return found if isinstance(found, Mapping) else None


def _sizes(model: Any) -> Iterator[tuple[str, Any]]:
    """Numbers by their names, from the innermost call to the outermost, so that the outermost counts."""
    parts = [call] if (call := _call(model)) else []
    for part in islice(parts, _MOST_PARTS):
        parts += [inner for value in part.values() if (inner := _call(value))]
    for part in reversed(parts):
        for name, value in part.items():
            number = _ffn_width(_call(value) or {}) or value
            if isinstance(number, int | float):
                yield name, number


def _ffn_width(call: Mapping[str, Any]) -> int | None:
    """What a call of Llama's rule for the width of a feed-forward network returns; None for another call."""
    if not _target(call).endswith("compute_ffn_hidden_dim"):
        return None
    dim, multiple_of = next(iter(call.get(POSITIONAL, ())), None), call.get("multiple_of", 1)
    factor = call.get("ffn_dim_multiplier")
    if isinstance(dim, int) and isinstance(multiple_of, int) and isinstance(factor, int | float | None):
        return _ffn(dim, multiple_of, factor)
    return None


def _ffn(dim: int, multiple_of: int, multiplier: float | None) -> int:
    """Llama's width of a feed-forward network: two thirds of four times dim, rounded up to a multiple."""
    width = int(int(8 * dim / 3) * (multiplier or 1))
    return -(-width // multiple_of) * multiple_of
