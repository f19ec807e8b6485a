"""The Profile: parameters and fitted models of a device, or the parameters of a software stack."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import UserError, fault, hint
from ..hardware import Limits
from .forms import bus_bytes_ratio, class_and_features, known_classes
from .model import Entry, Estimate, Model, Ratio, Stated
from .parameters import MEASURED_ON, READ_OFF, MeasuredBy, Parameter

Models = Mapping[str, Mapping[str, Entry]]
"""By cost class, then by library; the first library is the default one."""

_BORROWED = {"measured", "interpolated", "fitted"}
_MAY_REACH = {"measured", "fitted", "extrapolated"}
"""Labels of parameters that rest on measurements, and so end somewhere."""


class Noted(dict[str, Parameter]):
    """Parameters that note in `read` the names that are asked for; all of them where someone walks over all.

    What is joined to them by `|` notes in the same set.
    """

    def __init__(self, parameters: Mapping[str, Parameter], read: set[str]):
        super().__init__(parameters)
        self.read = read

    def __getitem__(self, name: str) -> Parameter:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As of a dict."""
        self.read.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self.read.update(dict.keys(self))
        return super().__iter__()

    def items(self) -> Any:
        """As of a dict."""
        self.read.update(dict.keys(self))
        return super().items()

    def values(self) -> Any:
        """As of a dict."""
        self.read.update(dict.keys(self))
        return super().values()

    def __or__(self, other: Any) -> Any:
        return Noted({**dict(super().items()), **other}, self.read)


SERVING = ("vllm", "sglang", "trtllm", "pytorch")
"""How the libraries of inference engines begin, and of the table of kernels as vLLM runs them (`pytorch`)."""


@dataclass(frozen=True)
class Profile:
    """Parameters by name, `profile["reload.tensor_s"]`, and models by cost class.

    `devices` are those that it is made for (none: any), `limits` their data-sheet numbers, and `about` what a report
    tells: date, source, command, samples, environment. `others` are those of further devices of a mixed cluster, by
    the name of the device.
    """

    name: str
    parameters: dict[str, Parameter]
    models: Models = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    limits: Limits | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, "Profile"] = field(default_factory=dict)

    def device_profile(self, device: str) -> "Profile":
        """The profile of one device of a mixed cluster."""
        return self.others.get(device, self)

    def __getitem__(self, name: str) -> Parameter:
        return self.parameters[name]

    def value(self, name: str) -> float:
        """The number alone."""
        return self.parameters[name].value

    def value_or(self, name: str, otherwise: float) -> float:
        """The number, or another one where nothing is known: for what no profile needs to tell."""
        found = self.parameters.get(name)
        return otherwise if found is None else found.value

    def starting(self, prefix: str) -> dict[str, Parameter]:
        """The parameters whose names begin with a prefix."""
        return {name: self.parameters[name] for name in dict.keys(self.parameters) if name.startswith(prefix)}

    def model(self, kind: str, library: str | None = None) -> Entry:
        """The model of a cost class, of its default library or of this one.

        Raises:
            UserError: the profile has no such class or library.
        """
        variants = self.models.get(kind)
        if not variants:
            raise UserError(f"profile {self.name}: {kind}: is missing; {self._instead_of(kind)}")
        if library is None:
            return next(iter(variants.values()))
        if library not in variants:
            known = ", ".join(variants)
            raise UserError(fault(f"profile {self.name}", f"{kind}: library", library, f"expected one of {known}"))
        return variants[library]

    def _instead_of(self, kind: str) -> str:
        """What to do about a class that is missing: its name may be wrong, or nobody measured it."""
        if not self.models:
            return "it has no models"
        if kind not in known_classes():  # also those of an open family, such as memory.<kernel>
            return hint(kind, self.models)
        return "expected a base that has it, such as the shipped profile of the device, or samples of it"

    def estimate(
        self, kind: str, features: Mapping[str, object], *, library: str | None = None, limits: Limits | None = None
    ) -> Estimate:
        """Seconds, spread and provenance of ops of a class; `limits` are those of the cluster that runs them.

        A collective with `nodes` above 1 is that of `<op>.network`.

        Raises:
            UserError: the profile has no such class or library, or a feature is missing, unknown or impossible.
        """
        kind, features = class_and_features(kind, features)
        model = self.model(kind, library)
        here = limits or self.limits
        if isinstance(model, Ratio):
            return model.apply(self._of_like(kind, model, features, here))
        if isinstance(model, Stated):
            return model.estimate(features)
        return model.estimate(features, here)

    def coefficient_s(self, kind: str, name: str) -> float | None:
        """A fitted coefficient in seconds of the model by which `estimate` prices a class; None if it has none."""
        entry = self._default(kind)
        if isinstance(entry, Ratio):
            lent = self.coefficient_s(entry.like, name)
            return None if lent is None else entry.factor * lent
        return entry.coefficients.get(name) if isinstance(entry, Model) else None

    def lender(self, kind: str) -> Model | None:
        """The model of samples that `estimate` prices a class by, its own or that of another class; None without."""
        entry = self._default(kind)
        if isinstance(entry, Ratio):
            return self.lender(entry.like)
        return entry if isinstance(entry, Model) else None

    def parameter_at(self, name: str, features: Mapping[str, object]) -> Parameter:
        """A parameter as it stands for ops with these features.

        Beyond the range of the model that it was read off (`READ_OFF`) it is extrapolated, and less sure by what that
        was seen to cost.
        """
        parameter, growth = self.parameters[name], float(self.growth_of(name, features).max())
        if growth == 0:
            return parameter
        return replace(parameter, spread=parameter.spread + growth, provenance="extrapolated")

    def growth_of(self, name: str, features: Mapping[str, object]) -> NDArray[np.float64]:
        """The spread that is added to a parameter for ops with features outside its range; 0 inside.

        Features of shape [k, ops] give the most over k for each op, others one number per op.
        """
        of = (self._default(kind) for kind in READ_OFF.get(name, ()))
        model = next((one for one in of if isinstance(one, Model)), None)
        arrays = {key: np.asarray(value, np.float64) for key, value in features.items()}
        shape = np.broadcast_shapes(*(array.shape for array in arrays.values()), (1,))
        if self.parameters[name].provenance not in _MAY_REACH or model is None:
            return np.zeros(shape[-1])
        flat = {key: np.broadcast_to(array, shape).ravel() for key, array in arrays.items()}
        growth = model.growth_beyond(model.cost_class.columns(flat, model.limits)).reshape(-1, shape[-1])
        return np.asarray(growth.max(axis=0))

    def _of_like(self, kind: str, ratio: Ratio, features: Mapping[str, object], limits: Limits | None) -> Estimate:
        """The estimate of the class that another one is a multiple of; equal forms lend their coefficients only."""
        lender = self.model(ratio.like)
        if isinstance(lender, Model) and (borrower := lender.convert(kind)):
            return borrower.estimate(features, limits)
        asked = ratio.features_of_like(features)
        found = self.estimate(ratio.like, asked, limits=limits)
        return replace(found, seconds=found.seconds * bus_bytes_ratio(kind, ratio.like, features, asked))

    def join(self, other: "Profile") -> "Profile":
        """This profile and another one; where both have a name, the other's wins."""
        return replace(
            self,
            name=f"{self.name} + {other.name}",
            parameters={**self.parameters, **other.parameters},
            models={**self.models, **other.models},
            others={device: one.join(other) for device, one in self.others.items()},
        )

    def read_measured(self) -> "Profile":
        """This profile with the parameters of software that its own models have measured (`Parameter.measured_by`)."""
        found = {
            name: self._measured(parameter, parameter.measured_by)
            for name, parameter in self.parameters.items()
            if parameter.measured_by and self.is_measured(parameter.measured_by.kind)
        }
        others = {device: one.read_measured() for device, one in self.others.items()}
        return replace(self, parameters={**self.parameters, **found}, others=others)

    def _measured(self, stated: Parameter, by: MeasuredBy) -> Parameter:
        """A parameter as its op was measured; as it was stated where that is a floor, and lower."""
        found, model = self.estimate(by.kind, by.at), self.model(by.kind)
        value, (label,) = float(found.seconds[0]) / by.per, found.labels()
        if not isinstance(model, Model) or (by.least and value < stated.value):
            return stated
        scored = (
            f"held out {model.held_out.median:.1%} / {model.held_out.p90:.1%}"
            if model.held_out.rows
            else "none left out"
        )
        source = f"{by.kind}: {model.library}, {model.source}; {scored}"
        return Parameter(value, float(found.spread[0]), label, source, network=model.network)

    def is_measured(self, kind: str) -> bool:
        """Whether a cost class has a model of samples, here or on a device that this profile borrows from."""
        return isinstance(self._default(kind), Model)

    def has(self, library: str, *kinds: str) -> bool:
        """Whether each of these cost classes has a model of this library."""
        return all(library in self.models.get(kind, {}) for kind in kinds)

    def prefer(self, library: str, *kinds: str) -> "Profile":
        """This profile with a library that it has as the default one of these cost classes."""
        first = {kind: {library: self.models[kind][library], **self.models[kind]} for kind in kinds}
        return replace(self, models={**self.models, **first})

    def as_served(self) -> "Profile":
        """This profile with the kernels of inference engines as default ones, in the classes that it has them of."""
        others_last = {
            kind: dict(sorted(variants.items(), key=lambda item: not item[0].startswith(SERVING)))
            for kind, variants in self.models.items()
        }
        return replace(self, models=others_last)

    def _default(self, kind: str) -> Entry | None:
        return next(iter(self.models.get(kind, {}).values()), None)

    def set_values(self, values: Mapping[str, float], source: str) -> "Profile":
        """This profile with parameters that someone states: exact."""
        said = {name: self._exact(name, value, source) for name, value in values.items()}
        others = {device: one.set_values(values, source) for device, one in self.others.items()}
        return replace(self, parameters=self.parameters | said, others=others)

    def apply_factors(self, factors: Mapping[str, float], source: str) -> "Profile":
        """This profile with parameters times a factor, those of each device its own; what none states counts as 1."""
        said = {name: self._exact(name, self.value_or(name, 1.0) * factor, source) for name, factor in factors.items()}
        others = {device: one.apply_factors(factors, source) for device, one in self.others.items()}
        return replace(self, parameters=self.parameters | said, others=others)

    def _exact(self, name: str, value: float, source: str) -> Parameter:
        """A parameter as someone states it, of the network that the one in its place is of."""
        known = dict.get(self.parameters, name)
        return Parameter(value, 0.0, "exact", source, network=known.network if known else MEASURED_ON)

    def sure_as(self, base: "Profile") -> "Profile":
        """This profile with no spread where it says what `base` says: what is left is the spread of its own numbers."""
        said = {
            name: replace(p, spread=0.0) if p == base.parameters.get(name) else p for name, p in self.parameters.items()
        }
        models = {
            kind: {name: m.be_sure() if m is base.models.get(kind, {}).get(name) else m for name, m in of.items()}
            for kind, of in self.models.items()
        }
        others = {device: one.sure_as(base.device_profile(device)) for device, one in self.others.items()}
        return replace(self, parameters=said, models=models, others=others)

    def noting(self, read: set[str]) -> "Profile":
        """This profile, which adds the name of each parameter to `read` when it is asked for it."""
        others = {device: one.noting(read) for device, one in self.others.items()}
        return replace(self, parameters=Noted(self.parameters, read), others=others)

    def carry_over(self, wider: float) -> "Profile":
        """The profile for a sibling device: measured values count as extrapolated.

        `wider` is the relative spread that carrying it over adds, in squares.
        """
        if wider == 0:
            return self
        return replace(
            self,
            parameters={name: _borrowed(p, wider) for name, p in self.parameters.items()},
            models={
                kind: {name: m.carry_over(wider) if isinstance(m, Model) else m for name, m in variants.items()}
                for kind, variants in self.models.items()
            },
        )

    def to_json(self) -> dict[str, Any]:
        """All numbers that a prediction can depend on, for hashing; without their sources."""
        numbers = {name: _number(p) for name, p in sorted(self.parameters.items())}
        models = {
            kind: [[library, entry.to_json()] for library, entry in variants.items()]
            for kind, variants in sorted(self.models.items())
        }
        found = {"parameters": numbers, "models": models, "limits": vars(self.limits) if self.limits else None}
        others = {device: one.to_json() for device, one in sorted(self.others.items())}
        return found | ({"others": others} if others else {})


def _number(parameter: Parameter) -> tuple[float | str, ...]:
    """What a prediction can depend on of a parameter, for hashing."""
    known = (parameter.value, parameter.spread, parameter.provenance)
    return known if parameter.network == MEASURED_ON else (*known, parameter.network)


def _borrowed(parameter: Parameter, wider: float) -> Parameter:
    """A borrowed parameter: extrapolated with a wider spread, unless it was borrowed or assumed already."""
    if parameter.provenance not in _BORROWED:
        return parameter
    return replace(parameter, spread=math.hypot(parameter.spread, wider), provenance="extrapolated")
