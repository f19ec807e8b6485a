"""The shape of the model that a scenario names."""

from ..base.errors import UserError
from ..base.files import beside
from ..models import ModelSpec, from_hf_config, load_hf_config, preset
from .tables import Model


def shape_of(model: Model, where: str) -> ModelSpec:
    """The model of a scenario file; a path in it is relative to that file.

    Raises:
        UserError: no such preset or file, a key that is missing or out of range, or totals without a shape.
    """
    if model.preset is not None:
        return preset(model.preset, f"{where}: model", model.overrides or None)
    if isinstance(model.config, str):
        return load_hf_config(beside(model.config, where))
    if model.config is not None:
        return from_hf_config(model.config, f"{where}: model.config", strict=set(model.config) - {"model_type"})
    raise UserError(f"{where}: model.bytes: a model known by totals alone has no shape; give preset or config")
