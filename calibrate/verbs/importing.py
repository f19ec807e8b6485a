"""`runcast calibrate import`: logs of benchmark tools to a file of samples."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...simulator.base.errors import UserError, fault

if TYPE_CHECKING:
    from ...simulator.formats.samples import Samples


class Column(StrEnum):
    """Which of the two times of nccl-tests is used."""

    OUT_OF_PLACE = "out-of-place"
    IN_PLACE = "in-place"


def import_(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Logs of the tools, text or JSON.")],
    output: Annotated[Path, typer.Option("--out", "-o", help="File of samples to write (CSV).")],
    device: Annotated[str | None, typer.Option(help="GPU, as 'H100 SXM'; logs of perftest seldom name it.")] = None,
    gpus: Annotated[int | None, typer.Option(help="Ranks of a collective.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes that the ranks lie on.")] = None,
    op: Annotated[str | None, typer.Option(help="Test of nccl-tests that ran, as all_reduce.")] = None,
    network: Annotated[
        str | None, typer.Option(help="Line rate of all NICs of a node: '8 x 400 Gb/s', or '3.2 Tb/s'.")
    ] = None,
    library: Annotated[str | None, typer.Option(help="Library to note instead of the log's.")] = None,
    column: Annotated[Column, typer.Option(help="Times of nccl-tests to use.")] = Column.OUT_OF_PLACE,
    buffer: Annotated[str | None, typer.Option(help="Size of a copy of nvbandwidth, as '512 MiB'.")] = None,
) -> None:
    """Turn logs of nccl-tests, rccl-tests, nvbandwidth and perftest into samples.

    What a log says itself needs no flag. A flag wins over the log, but a count of ranks that contradicts the bandwidths
    and a test that is not the log's are refused. Hosts, addresses and environment variables are never written.
    """
    from ...simulator.base.files import write_atomic
    from ...simulator.formats.samples import to_csv
    from ..importing import Network, Options, import_logs

    if output.exists() and any(log.exists() and log.samefile(output) for log in logs):
        raise UserError(f"--out = {str(output)!r}: is one of the logs")
    options = Options(
        device=device,
        gpus=gpus,
        nodes=nodes,
        op=op,
        network=None if network is None else Network.parsed(network),
        library=library,
        column=column.value,
        buffer_bytes=None if buffer is None else _bytes(buffer),
    )
    samples = import_logs(logs, options)
    write_atomic(output, to_csv(samples.table))
    _report(samples, output)


def _bytes(text: str) -> float:
    from ...simulator.base.units import parse

    try:
        value = parse(text, "bytes")
    except ValueError as error:
        raise UserError(fault("--buffer", "", text, str(error))) from None
    if value <= 0:
        raise UserError(fault("--buffer", "", text, "expected a size greater than zero"))
    return value


def _report(samples: "Samples", output: Path) -> None:
    """How many samples of which class, and what was left out."""
    for name, count in samples.table["cost_class"].value_counts(sort=False).items():
        typer.echo(f"{name}: {count} sample{'s' if count != 1 else ''}")
    for line in samples.dropped:
        typer.echo(line)
    typer.echo(f"wrote {output}")
