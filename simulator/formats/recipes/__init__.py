"""Recipes of other tools as scenarios, and scenarios as arguments of Megatron-LM.

`import_recipe("llama.sh", "llama.toml", "dgx-h100", nodes=8)` is `runcast plan import` as a function. Nothing is run.
"""

from .export import Exported, export_megatron
from .recipe import (
    Recipe,
    import_recipe,
    load_training,
    parse_recipe,
    parse_settings,
    read_recipe,
    scenario_table,
    scenario_text,
)
from .trainers import Additions

__all__ = [
    "Additions",
    "Exported",
    "Recipe",
    "export_megatron",
    "import_recipe",
    "load_training",
    "parse_recipe",
    "parse_settings",
    "read_recipe",
    "scenario_table",
    "scenario_text",
]  # fmt: skip
