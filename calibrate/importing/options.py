"""What a user says about logs, because logs do not say it or say it wrong."""

import re
from dataclasses import dataclass

from ...simulator.base.errors import UserError, fault, unknown
from ...simulator.base.units import parse
from ...simulator.hardware import device

OPS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send_recv",
    "send_recv": "send_recv",
}
"""Cost classes by the names of the tests of nccl-tests, without `_perf`, and by their own."""

_NETWORK = re.compile(r"\s*(?:(\d+)\s*[xX×]\s*)?(.+)")
_EXAMPLE = 'expected a rate per node such as "8 x 400 Gb/s" or "3.2 Tb/s"'


@dataclass(frozen=True)
class Network:
    """The NICs of a node: their line rate together, and that of one where the user says how many there are; bytes/s."""

    node_bytes_per_s: float
    nic_bytes_per_s: float | None

    @classmethod
    def parsed(cls, text: str) -> "Network":
        """`8 x 400 Gb/s` is eight NICs, `3.2 Tb/s` all that a node has.

        Raises:
            UserError: not such a text.
        """
        match = _NETWORK.fullmatch(text)
        try:
            rate = parse(match[2], "bytes_per_s") if match else 0.0
        except (ValueError, OverflowError):
            rate = 0.0
        count = int(match[1]) if match and match[1] else None
        if not 1e7 <= rate <= 1e15 or count == 0 or (count or 0) > 1024:
            raise UserError(fault("--network", "", text, _EXAMPLE))
        return cls(rate * (count or 1), rate if count else None)


@dataclass(frozen=True)
class Options:
    """Flags of `runcast calibrate import`; what is None is taken from the log.

    `column` is which of the two times of nccl-tests is used, `buffer_bytes` the size of a copy of nvbandwidth.
    """

    device: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    op: str | None = None
    network: Network | None = None
    library: str | None = None
    column: str = "out-of-place"
    buffer_bytes: float | None = None

    def __post_init__(self) -> None:
        for flag, value in (("--gpus", self.gpus), ("--nodes", self.nodes)):
            if value is not None and value < 1:
                raise UserError(fault(flag, "", value, "expected a whole number greater than zero"))
        if self.gpus and self.nodes and self.nodes > self.gpus:
            raise UserError(fault("--nodes", "", self.nodes, f"expected at most --gpus = {self.gpus}"))
        if self.op is not None and self.op not in OPS:
            raise unknown("--op", "", self.op, OPS)
        if self.device is not None:
            device(self.device, "--device")


def device_of(names: set[str], options: Options, file: str) -> str:
    """The catalogue's name of the GPU: of --device, else of a log's names, such as `NVIDIA H100 80GB HBM3`.

    Raises:
        UserError: no name, several devices, or one that is not in the catalogue, and no --device.
    """
    if options.device is not None:
        return device(options.device, "--device").name
    if not names:
        raise UserError(f"{file}: does not name the GPU; give --device")
    found = {_catalogue_name(name, file) for name in names}
    if len(found) > 1:
        raise UserError(f"{file}: holds several kinds of GPUs, {' and '.join(sorted(found))}; give --device")
    return found.pop()


def _catalogue_name(name: str, file: str) -> str:
    short = re.sub(r"^(NVIDIA|Tesla)\s+", "", re.sub(r"\s*\([0-9A-Fa-f:.]+\)\s*$", "", name).strip())
    try:
        return device(short).name
    except UserError:
        raise UserError(f"{file}: {short[:60]!r} is not in the catalogue of devices; give --device") from None
