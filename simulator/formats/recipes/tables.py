"""Files of trainers on Hugging Face models, YAML or JSON: read as plain tables, and their keys as arguments.

A key goes by its whole name, with dots: `zero_optimization.stage`. YAML is read by PyYAML's safe loader, which makes
plain values only.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...base.errors import UserError
from .arguments import Arguments, names_of, read_leaves

_MOST_VALUES = 100_000


def read_table(text: str, where: str) -> dict[str, Any]:
    """The table that a YAML or JSON file holds.

    A UserError of one line if it is neither, holds no table, or too many values.
    """
    table = _load_json(text, where) if Path(where).suffix == ".json" else _load_yaml(text, where)
    if not isinstance(table, Mapping):
        raise UserError(f"{where}: holds no keys; expected a table of them")
    check_size(table, where)
    return {str(key): value for key, value in table.items()}


def _load_json(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: is not JSON: {' '.join(str(error).split())[:100]}") from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A table, of whose keys none is there twice (DeepSpeed's runtime/config_utils.py refuses that, too)."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is there twice")
    return table


def _load_yaml(text: str, where: str) -> Any:
    import yaml

    try:
        return yaml.load(text, Loader=_loader())
    except yaml.constructor.ConstructorError as error:
        if tag := re.search(r"tag '(!(?:include|reference))'", str(error)):
            raise UserError(f"{where}: is put together of other files ({tag[1]}): give what they make") from None
        raise UserError(f"{where}: is not YAML: {' '.join(str(error).split())[:100]}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{where}: is not YAML: {' '.join(str(error).split())[:100]}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: cannot be read as YAML: {' '.join(str(error).split())[:100]}") from None


@cache
def _loader() -> type:
    """PyYAML's safe loader, which also reads 1e-5 and 5e8 as numbers, as JSON does."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )
    return Loader


def check_size(table: Mapping[str, Any], where: str) -> None:
    """Refuse what a few lines with anchors, or a product of lists, can blow up; a UserError of one line."""
    left: list[Any] = [table]
    for _ in range(_MOST_VALUES):
        if not left:
            return
        value = left.pop()
        left += value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    raise UserError(f"{where}: holds more than {_MOST_VALUES:,} values; expected a recipe")


def to_arguments(table: Mapping[str, Any], form: str, where: str) -> Arguments:
    """The keys of a table as arguments, by the names that this form knows."""
    return Arguments(read_leaves(table, _whole_name), names_of(form), where)


def _whole_name(place: str, key: str) -> str:
    """A key of `fsdp_config` goes without the prefix that it may have: `fsdp_config.fsdp_version`."""
    return place.lower().replace("fsdp_config.fsdp_", "fsdp_config.")


def find_file(name: str, where: str) -> Path | None:
    """A file that a recipe names: in the working folder, or beside the recipe, or in a folder above it.

    Trainers are started in the folder to which their recipes' paths are relative, and recipes lie below it.
    """
    folders = [Path(), *Path(where).resolve().parents] if Path(where).is_file() else [Path()]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)
