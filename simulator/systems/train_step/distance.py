"""How far a training step is from what the fit has seen: software and site, device, network, shape, size; in words.

How much wider each makes the interval is in `errors`.
"""

from collections.abc import Iterator, Mapping

from ...base.units import format_count
from ...models.parts import Frozen
from ...uncertainty import Fit, shipped_fit
from .errors import SITE, device_names, own_run_errors, site_of
from .resolve import ResolvedTrain
from .terms import data_sheets, shipped_stack

_RANGES = {"seq_len": "tokens of a sequence", "hidden": "hidden size", "gpus": "GPUs"}


def distance_notes(resolved: ResolvedTrain, fit: Fit | None = None) -> Iterator[str]:
    """What of a step no measured row has, one line each; the interval includes it unless a line says otherwise."""
    fit = fit or shipped_fit()
    yield _software(resolved, fit)
    sheets = dict.fromkeys(term.of for term in data_sheets(resolved) if term.of not in fit.heard)
    yield from (f"{device} is known by its data sheet only: its kernels share an error" for device in sheets)
    if resolved.networks.differing and resolved.cluster.fabric.network not in fit.heard:
        yield f"no measured step ran on {resolved.cluster.fabric.network}: exchanges between nodes share an error"
    yield from _outside(sizes_of(resolved), fit)
    if resolved.spec.frozen != Frozen():
        yield "no measured step has frozen layers: what they leave out is computed alone"


def sizes_of(resolved: ResolvedTrain) -> Mapping[str, float]:
    """The sizes of a step by which it may be outside of what was measured."""
    return {
        "seq_len": resolved.scenario.batch.seq_len,
        "hidden": resolved.spec.hidden_size,
        "gpus": resolved.dims.world_size,
    }


def _software(resolved: ResolvedTrain, fit: Fit) -> str:
    if (said := own_run_errors(resolved)) is not None:
        stack, site = resolved.scenario.stack, site_of(resolved)
        if (site, SITE) in said[0]:
            return f"{stack} was learned from runs of {site}: the interval is what they leave open"
        return f"{stack} was learned from other runs than of {site}: these may each be off"
    known = shipped_stack(resolved)
    many = fit.sites(known, [device.name for device in resolved.devices])
    of = f"{known} on {device_names(resolved)}"
    if not many:
        return f"no site of the ledger ran {of}: software, device and site may each be off"
    return f"{of} was measured at {format_count(many, 'site')}, and yours is another one"


def _outside(sizes: Mapping[str, float], fit: Fit) -> Iterator[str]:
    """Sizes beyond the ledger's. Rows beyond all others of their GPU missed no more than the rest did, but for GPUs."""
    for name, (least, most) in fit.ranges.items():
        if not least <= sizes[name] <= most:
            edge = f"at most {most:,.0f}" if sizes[name] > most else f"at least {least:,.0f}"
            yield f"{sizes[name]:,.0f} {_RANGES[name]}: measured steps have {edge}"
