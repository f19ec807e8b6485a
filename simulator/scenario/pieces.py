"""What whole actions take: each runs alone, undisturbed and with all links to itself, as its kernels do."""

from dataclasses import replace

import numpy as np

from .. import engine
from ..costs import Costs, Price
from ..program import Program, Ragged


def price_actions(actions: Program, costs: Costs) -> list[Price]:
    """A price per place of `actions`: seconds from its first op to its last, or of its host if that takes longer.

    The host runs ahead of the device from action to action, so within one it holds nothing up unless it is slower in
    all. Spread is the mean of the ops' by seconds, provenance what most of the seconds rest on.
    """
    issued = actions.of_kind("issue")
    alone = replace(
        costs,
        latency_s=np.where(issued, 0.0, costs.latency_s),
        work_s=np.where(issued, 0.0, costs.work_s),
        row=np.zeros(len(actions), np.int64),
        demand=Ragged.of([[]]),
        rate_bytes_per_s=np.empty(0),
        weight_bytes_per_s=np.ones(1),
    )
    timeline = engine.simulate(actions, alone)
    place = np.array([lane.place for lane in actions.lanes], np.int64)[actions.lanes_of.values]
    places = len(actions.places)
    end, host = np.zeros(places), np.bincount(place, np.where(issued, costs.uncontended_s, 0.0), minlength=places)
    np.maximum.at(end, place, timeline.end_s)
    seconds = alone.uncontended_s
    total = np.maximum(np.bincount(place, seconds, minlength=places), 1e-30)
    spread = np.bincount(place, seconds * alone.spread, minlength=places) / total
    labels = int(costs.provenance.max(initial=0)) + 1
    by_label = np.bincount(place * labels + costs.provenance, seconds, minlength=places * labels)
    most = by_label.reshape(places, labels).argmax(axis=1)
    columns = (np.maximum(end, host).tolist(), spread.tolist(), most.tolist())
    return [Price(*row) for row in zip(*columns, strict=True)]
