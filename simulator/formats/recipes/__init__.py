"""Recipes of other tools as scenarios, and scenarios as recipes of Megatron-LM, torchtitan and Hugging Face's trainer.

`import_recipe("llama.sh", "llama.toml", "dgx-h100", nodes=8)` is `runcast plan import` as a function. Nothing is run.
"""

from .additions import Additions
from .export import Exported, check_step, check_target, export_recipe
from .reading import parse_recipe, parse_settings, read_recipe
from .recipe import Recipe
from .scenarios import import_recipe, load_training, scenario_table, scenario_text

__all__ = [
    "Additions",
    "Exported",
    "Recipe",
    "check_step",
    "check_target",
    "export_recipe",
    "import_recipe",
    "load_training",
    "parse_recipe",
    "parse_settings",
    "read_recipe",
    "scenario_table",
    "scenario_text",
]  # fmt: skip
