"""What the command line says beside a recipe, and which recipes it goes with."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ...base.errors import UserError
from .python_tools import is_python

_TRAINERS = ("axolotl", "llamafactory", "trl", "automodel", "deepspeed")
_OPEN = ("bridge", "nemo", *_TRAINERS, "verl", "slime")
_TAKES = {
    "--model": (*_OPEN, "torchtitan"),
    "--seq-len": _OPEN,
    "--accelerate": ("llamafactory", "trl"),
    "--set": ("megatron", "torchtitan", "bridge", "nemo", "verl", "slime"),
}
"""Forms of recipes that have a use for a flag."""


@dataclass(frozen=True)
class Additions:
    """What the command line says beside the file.

    A model, by its config.json or name; tokens of a sequence; the config with which accelerate starts the trainer;
    variables of a script (`TP`) and arguments (`seq-length`) by name, which count instead of the file's; the name of a
    recipe in a file of several.
    """

    model: str | None = None
    seq_len: int | None = None
    accelerate: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    recipe: str | None = None

    @property
    def flags(self) -> Collection[str]:
        """The flags that are given."""
        values = {"--model": self.model, "--seq-len": self.seq_len, "--accelerate": self.accelerate}
        given = [flag for flag, value in values.items() if value is not None]
        return [*given, *(["--set"] if self.settings else [])]

    def check(self, form: str, where: str) -> None:
        """Refuse flags that a recipe of this form has no use for; a UserError of one line."""
        for flag in self.flags:
            if form not in _TAKES[flag]:
                raise UserError(f"{flag}: goes with recipes of {', '.join(_TAKES[flag])}, not with {form}")
        if self.recipe is not None and not is_python(where):
            raise UserError(f"--recipe: goes with a Python file of recipes; {where} holds one recipe")
