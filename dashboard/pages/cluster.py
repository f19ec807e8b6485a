"""The cluster of a scenario as a picture: nodes, switches, links by rate, and those that its prediction keeps busy."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from dash import Dash, html

from ...simulator.base.arrays import Floats
from ...simulator.base.units import format_rate
from ...simulator.figures import draw_fabric
from ...simulator.hardware import Cluster, cluster_names
from ...simulator.hardware.fabrics import KINDS
from ...simulator.insight import link_load
from .. import parts
from ..forms.ask import LOADED, Form
from ..forms.fields import Field, link_text
from ..page import CLUSTER, PATHS, Here, Page, keep_in_address
from ..question import BASE, Question
from ..tables import table

if TYPE_CHECKING:
    from dash.development.base_component import Component

ABOUT = "What connects the GPUs, how fast each link is, and which links a training step or a weight update keeps busy."
FORM = Form(
    "cluster",
    "train_step",
    BASE,
    {
        "Machines": (
            Field("cluster", "Cluster", options=cluster_names()),
            Field("nodes", "Nodes", whole=True),
        ),
        "Network": (
            Field("cluster.fabric", "Fabric", options=tuple(KINDS), optional=True),
            Field("cluster.nic", "NIC", "such as 400 Gb/s", text=link_text),
            Field("cluster.oversubscription", "Oversubscription"),
            Field("cluster.leaf_radix", "Ports of a leaf", whole=True),
        ),
    },
    also=LOADED[1:],
)
WORDS = {
    "nvlink": "NVLink", "pcie": "PCIe", "nic": "NIC to its switch",
    "leaf": "between switches, up or across", "spine": "between switches, down",
    "socket": "between sockets", "host_memory": "host memory", "hbm": "HBM", "c2c": "CPU to GPU (C2C)",
}  # fmt: skip


def connect(app: Dash, here: Here) -> None:
    """The form asks for a prediction, whose cluster is drawn."""

    def numbers(question: Question, job: str) -> "list[Component]":
        return [*cards(here.answers.predict(question, job)), parts.link_row("Go on", [_step(here, question)])]

    keep_in_address(app, "cluster-query")
    FORM.connect(app, here, numbers, lambda question: figures(here.answers.predict(question)))


def _step(here: Here, question: Question) -> html.A:
    """A link to the prediction whose links are shown."""
    return html.A("The prediction", href=PATHS[here.answers.scenario(question)[0].kind] + question.query())


def cards(prediction: Any) -> "list[Component]":
    """The busiest link, and what there is."""
    machine: Cluster = prediction.resolved.cluster
    load = link_load(machine, prediction.costs, prediction.timeline)
    busiest = int(load.argmax())
    devices = " and ".join(dict.fromkeys(node.device.name for node in machine.nodes))
    nodes = parts.Card("Nodes", f"{machine.n_nodes:,}", f"{machine.n_gpus:,} x {devices}")
    facts = [parts.Card(name.capitalize(), value.partition(" ")[0], value.partition(" ")[2])
             for name, value in machine.parts().facts() if name in ("switches", "cables")]  # fmt: skip
    most = f"{load[busiest]:.0%}"
    first = parts.Card("Busiest link", most, f"of the time: {machine.links[busiest].name}")
    return [parts.headed_numbers([first, nodes, *facts]), parts.notes([prediction.report.question])]


def figures(prediction: Any) -> "list[Component]":
    """The picture, coloured by load, and all links by kind and rate."""
    machine: Cluster = prediction.resolved.cluster
    load = link_load(machine, prediction.costs, prediction.timeline)
    picture = draw_fabric(machine, f"{machine.n_nodes:,} nodes, links by how busy they are", load)
    columns = ("link", "rate, one way", "how many", "busiest", "mean")
    facts = [(name, value) for name, value in machine.parts().facts()]
    return [
        parts.figure("Network", picture),
        table("Links by kind and rate", columns, list(link_rows(machine, load))),
        table("Parts of the network", ("part", "count"), facts),
    ]


def link_rows(machine: Cluster, load: Floats) -> Iterator[tuple[str, ...]]:
    """A row for each kind and rate of link: how many, the busiest and the mean load, the busiest kind first."""
    columns = machine.links.columns
    keys = list(zip(columns["kind"], columns["bytes_per_s"].tolist(), strict=True))
    groups = {key: np.array([i for i, one in enumerate(keys) if one == key]) for key in dict.fromkeys(keys)}
    for (kind, rate), links in sorted(groups.items(), key=lambda one: -load[one[1]].max()):
        share = load[links]
        yield WORDS.get(kind, kind), format_rate(rate), f"{len(links):,}", f"{share.max():.1%}", f"{share.mean():.1%}"


PAGE = Page(CLUSTER, "Cluster", "nodes, switches, busy links", ABOUT, FORM.draw, connect)
