"""Checkpoints: what they hold, how long training stands for one, and how long one takes to read again."""

from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from ...tables import Rate, Seconds, Size, Table, Time


class Checkpoint(Table):
    """When training is saved, where, and by whom."""

    mode: Literal["blocking", "background", "memory"] = Field(
        "blocking",
        description="training stands until all is written; or until GPUs are copied to host memory, with the writing "
        "behind it (CheckFreq); or copies lie in the memory of other nodes (Gemini)",
    )
    interval: Time | None = Field(
        None,
        description="work between two of them, up to whole steps (default: what makes the run shortest, by Daly, but "
        "at least ten steps and ten times as long as one is written)",
    )
    bytes: Size | None = Field(None, description="what is saved (default: weights and optimizer states of the model)")
    store: Rate | None = Field(None, description="rate of the shared store, for all writers together")
    read: Rate | None = Field(None, description="rate at which the store is read (default: store)")
    node_rate: Rate | None = Field(
        None, description="the most that one node writes or reads (default: what its NICs carry)"
    )
    writers: Literal["all", "one"] = Field(
        "all", description="all nodes write parts of it, or those of one worker, which holds all of it"
    )
    snapshot: Rate | None = Field(
        None, description="background and memory: rate at which a GPU is copied to its host (default: its PCIe link)"
    )
    copies: PositiveInt = Field(2, description="memory: copies of each part, the own one among them")
    hidden: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0, description="memory: share of sending the copies that fits into idle times of the network"
    )
    stall: Seconds | None = Field(None, description="how long training stands for one (default: from the above)")
    write: Seconds | None = Field(
        None, description="how long its writing takes while input reads nothing (default: from the above)"
    )

    @model_validator(mode="after")
    def _goes_together(self) -> "Checkpoint":
        if self.mode == "memory" and self.copies < 2:
            raise ValueError("mode = 'memory' keeps at least 2 copies: the own one dies with its node")
        if self.store is None and self.mode != "memory" and None in (self.stall, self.write) and not self._needs_none:
            raise ValueError("give store, the rate of the shared store, or stall (and write, for mode = 'background')")
        return self

    @property
    def _needs_none(self) -> bool:
        return self.mode == "blocking" and self.stall is not None


@dataclass(frozen=True)
class Saving:
    """A checkpoint in seconds: training stands for `stall_s`, and after `write_s` more it is safe.

    `read_s` is the time until all nodes have it again; `store_share` the share of the store that the writing takes when
    it is alone. Readers then take some of it, and the writing takes longer.
    """

    stall_s: float
    write_s: float = 0.0
    read_s: float = 0.0
    store_share: float = 0.0

    @property
    def fair_write_share(self) -> float:
        """The share of the store that readers cannot have while this is written: a fair half of it at most."""
        return min(self.store_share, 0.5)

    def share_with_readers(self, read_share: float) -> "Saving":
        """The same while readers take a share of the store: the writing has the rest of it."""
        left = 1 - read_share
        return self if self.store_share <= left else replace(self, write_s=self.write_s * self.store_share / left)


@dataclass(frozen=True)
class Machine:
    """What checkpoints pass through: nodes and GPUs, those of all workers and of one; rates in bytes per second."""

    nodes: int
    nodes_per_worker: int
    gpus: int
    gpus_per_worker: int
    copy_bytes_per_s: float
    nic_bytes_per_s: float


def saving(said: Checkpoint, size_bytes: float, machine: Machine) -> Saving:
    """The seconds of a checkpoint of `size_bytes`.

    Writing takes S / B_fs, B_fs being the store's rate or that of all writers, whose NICs it passes. A snapshot takes
    each GPU's part to its host (Mohan et al., CheckFreq, FAST 2021, section 4). Copies in memory go to copies - 1 other
    nodes over the NIC (Wang et al., Gemini, SOSP 2023, section 4); training stands for what does not fit into idle
    times there.
    """
    every = said.writers == "all"
    writers, gpus = (machine.nodes, machine.gpus) if every else (machine.nodes_per_worker, machine.gpus_per_worker)
    write_s = _through_store(said, size_bytes, said.store, writers, machine)
    snapshot_s = size_bytes / gpus / (said.snapshot or machine.copy_bytes_per_s)
    if said.mode == "blocking":
        return Saving(_or(said.stall, write_s), read_s=_read_s(said, size_bytes, machine))
    if said.mode == "background":
        write_s = _or(said.write, write_s)
        share = min(size_bytes / write_s / said.store, 1.0) if said.store and write_s else 0.0
        return Saving(_or(said.stall, snapshot_s), write_s, _read_s(said, size_bytes, machine), share)
    part_bytes = size_bytes / writers
    send_s = (said.copies - 1) * part_bytes / machine.nic_bytes_per_s
    stall_s = snapshot_s + (1 - said.hidden) * send_s
    return Saving(_or(said.stall, stall_s), _or(said.write, said.hidden * send_s), part_bytes / machine.nic_bytes_per_s)


def _or(stated: float | None, derived: float) -> float:
    return derived if stated is None else stated


def _through_store(said: Checkpoint, size_bytes: float, store: float | None, nodes: int, machine: Machine) -> float:
    """Between so many nodes and the store: the slower of both; no time where neither has a stated rate."""
    if not store and not said.node_rate:
        return 0.0
    return size_bytes / min(store or inf, nodes * (said.node_rate or machine.nic_bytes_per_s))


def _read_s(said: Checkpoint, size_bytes: float, machine: Machine) -> float:
    """All nodes of one worker read their parts; the other workers get them over the network at the same time.

    A chain of workers passes on what arrives while the store still serves: the slower of store and NIC counts, once.
    """
    nodes = machine.nodes_per_worker
    read_s = _through_store(said, size_bytes, said.read or said.store, nodes, machine)
    pass_on_s = size_bytes / nodes / machine.nic_bytes_per_s if machine.nodes > nodes else 0.0
    return max(read_s, pass_on_s)
