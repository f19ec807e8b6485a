"""`runcast calibrate`: a Profile fitted to samples, one checked on others, a report on one, and what leads there."""

from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...simulator.base.errors import UserError, fault, faults_of, unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ..fitting.runs import Learned

calibrate = typer.Typer(no_args_is_help=True, help="Measure; make, check and explain Profiles from samples.")

PASSED_ON: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}
"""The flags are those of the measuring program itself, `--help` too."""


@calibrate.command(**PASSED_ON)
def run(context: typer.Context) -> None:
    """Measure this machine: collectives, copies, kernels, launches, interference (needs torch)."""
    _pass_on("command", context)


@calibrate.command(**PASSED_ON)
def show(context: typer.Context) -> None:
    """Print what was measured: each case with its median, spread and rate."""
    _pass_on("show", context)


@calibrate.command(**PASSED_ON)
def drift(context: typer.Context) -> None:
    """Compare two files of records, case by case: what has become slower or faster?"""
    _pass_on("drift", context)


def _pass_on(module: str, context: typer.Context) -> None:
    raise typer.Exit(import_module(f"..measure.{module}", __package__).run(context.args))


class Column(StrEnum):
    """Which of the two times of nccl-tests is used."""

    OUT_OF_PLACE = "out-of-place"
    IN_PLACE = "in-place"


@calibrate.command("import")
def import_(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG...", help="Logs of the tools, text or JSON; or a shipped name.")
    ],
    output: Annotated[Path, typer.Option("--out", "-o", help="File of samples to write (.csv).")],
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
    algorithm: Annotated[
        str | None, typer.Option(help="NCCL_ALGO that was forced, as Ring, where the log does not say it.")
    ] = None,
) -> None:
    """Turn logs of nccl-tests, rccl-tests, nvbandwidth and perftest into samples.

    What a log says itself needs no flag. --op, --gpus and --nodes are for tables of a log that do not say it; where one
    contradicts the log, the log is refused. Hosts, addresses and environment variables are never written.
    """
    from ...simulator.base.files import write_atomic
    from ...simulator.base.shipped import find_shipped
    from ...simulator.base.units import parse
    from ...simulator.formats.samples import OF_ALGORITHM, to_csv
    from ..importing import Network, Options, import_logs

    if output.suffix != ".csv":
        raise UserError(fault("--out", "", str(output), "expected a file that ends in .csv"))
    buffer_bytes: float | None = None
    if buffer is not None:
        try:
            buffer_bytes = parse(buffer, "bytes")
        except ValueError as error:
            raise UserError(fault("--buffer", "", buffer, str(error))) from None
        if buffer_bytes <= 0:
            raise UserError(fault("--buffer", "", buffer, "expected a size greater than zero"))

    logs = [find_shipped(log, "samples") for log in logs]
    if output.exists() and any(log.exists() and log.samefile(output) for log in logs):
        raise UserError(f"--out = {str(output)!r}: is one of the logs")
    options = Options(
        device=device,
        gpus=gpus,
        nodes=nodes,
        op=op,
        network=None if network is None else Network.parse(network),
        library=library,
        column=column.value,
        buffer_bytes=buffer_bytes,
        algorithm=algorithm,
    )
    samples = import_logs(logs, options)
    write_atomic(output, to_csv(samples.rows))
    for name, count in samples.rows["cost_class"].value_counts(sort=False).items():
        typer.echo(f"{name}: {count} sample{'s' if count != 1 else ''}")
    for line in samples.dropped:
        if not line.endswith(OF_ALGORITHM):
            typer.echo(line)
    typer.echo(f"wrote {output}")


_SAMPLES = typer.Argument(help="Tables of samples: CSV or JSON lines (docs/profiles.md).", show_default=False)


@calibrate.command()
def fit(
    out: Annotated[Path, typer.Option("--out", "-o", help="The profile to write (.json).")],
    samples: Annotated[list[Path] | None, _SAMPLES] = None,
    device: Annotated[str | None, typer.Option(help="The GPU, where the samples are of several.")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Catalogue cluster or file with the links; default: the device's first.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the profile; default: that of the file.")] = None,
    prefer: Annotated[
        list[str] | None, typer.Option(help="Part of the name of a library to take by default; may be repeated.")
    ] = None,
    base: Annotated[str, typer.Option(help="Profile for what the samples do not cover.")] = "generic",
    wider: Annotated[
        float | None,
        typer.Option(min=0, max=2, help="Spread that carrying over from --base adds; default: 0.25 from another GPU."),
    ] = None,
    source: Annotated[str, typer.Option(help="Where the samples come from, in words.")] = "own samples",
    also: Annotated[
        Path | None, typer.Option(help="A file with parameters that are known otherwise, each with its source.")
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            help="Classes to take from records of `calibrate run`, by how their names begin, such as memory; "
            "may be repeated. Tables are taken whole."
        ),
    ] = None,
) -> None:
    """Fit cost models to samples and write them as a Profile, with their errors on samples left out."""
    from ...simulator.formats.samples import OF_ALGORITHM
    from ...simulator.formats.samples.published import FORCED
    from ..fitting.profile import Flags, fit_files

    flags = Flags(out, device, cluster, name, prefer or (), base, wider, source, also, classes or ())
    written = fit_files(samples or (), flags)
    left_out = [line for line in written.samples.dropped if not line.endswith((OF_ALGORITHM, FORCED))]
    _print(left_out, written.errors)
    for line in written.algorithms:
        typer.echo(line)
    for line in written.odd:
        typer.echo(f"check: {line}")
    typer.echo(f"wrote {out}")


@calibrate.command()
def stacks(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write (.json).")],
    rows: Annotated[Path | None, typer.Option(help="Table of its kind; default: the shipped ledger.")] = None,
    kind: Annotated[str, typer.Option(help="weight_update or train_step.")] = "weight_update",
) -> None:
    """Fit the parameters of software stacks to a ledger, and leave models, systems or whole stacks out."""
    import json

    from ...simulator.answers.validate import steps, updates
    from ...simulator.base.files import write_atomic
    from ..fitting.ledger import fit_ledger
    from ..fitting.step_ledger import fit_steps

    if kind == "weight_update":
        found = fit_ledger(rows or updates.shipped_table())
    elif kind == "train_step":
        found = fit_steps(rows or steps.shipped_table(), tell=typer.echo)
    else:
        raise unknown("--kind", "", kind, ["weight_update", "train_step"])
    write_atomic(str(out), (json.dumps(found, indent=1) + "\n").encode())
    about = found["about"]
    typer.echo(f"{about['parameters']} parameters from {about['rows']} rows; wrote {out}")


@calibrate.command()
def runs(
    base: Annotated[str, typer.Option(help="The stack that is most like your software, by name or file.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUNS...", help="Tables of your training steps or weight updates; logs of steps (docs/own-runs.md)."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The stack file to write (.toml).")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="The machines of logs that have no scenario beside them, by name or file.")
    ] = None,
    plans: Annotated[
        Path | None, typer.Option(help="A table of steps that you could measure: which of them teaches most is said.")
    ] = None,
    kind: Annotated[str, typer.Option(help="train_step or weight_update.")] = "train_step",
) -> None:
    """Learn from training steps or weight updates that you measured, and write what they say as a software stack."""
    from ..fitting.run_files import read_plans, read_runs
    from ..fitting.runs import ask_first, learn_runs
    from ..fitting.update_runs import learn_updates, read_update_runs

    if kind not in ("train_step", "weight_update"):
        raise unknown("--kind", "", kind, ["train_step", "weight_update"])
    for flag, value in (("--cluster", cluster), ("--plans", plans)):
        if value is not None and kind != "train_step":
            raise UserError(f"{flag}: goes with --kind train_step only")
    if not files and kind != "train_step":
        raise UserError("RUNS: expected tables of measured weight updates")
    could = read_plans(plans, base) if plans else []
    if not files:
        if not could or out:
            raise UserError(
                "RUNS: expected measured steps; without any, --plans TABLE alone says what to measure first"
            )
        for line in ask_first(could):
            typer.echo(line)
        return
    reads_updates = kind == "weight_update"
    read = partial(read_update_runs, files, base) if reads_updates else partial(read_runs, files, base, cluster)
    if faults := faults_of(lambda: _check_stack_place(out, [Path(base), *files])):
        raise UserError(*faults, *faults_of(read))
    assert out is not None
    if reads_updates:
        _learn(learn_updates(files, base), out)
        return
    steps = learn_runs(files, base, cluster)
    _learn(steps, out, steps.ask(could) if could else ())


def _check_stack_place(out: Path | None, read: "Sequence[Path]") -> None:
    """Raise UserError unless a stack that rests on the files `read` can be written there."""
    from ...simulator.base.files import check_place

    if out is None:
        raise UserError("--out: missing; expected the stack file to write, which ends in .toml")
    if out.suffix != ".toml":
        raise UserError(fault("--out", "", str(out), "expected a file that ends in .toml"))
    if out.resolve() in (path.resolve() for path in read):
        raise UserError(f"--out {out}: is a file that is read; it is not written over")
    check_place(out)


def _learn(found: "Learned", out: Path, more: "Iterable[str]" = ()) -> None:
    """Write the stack that was learned, and print what it is, with more lines."""
    from ...simulator.base.files import to_toml, write_atomic

    write_atomic(str(out), to_toml(found.stack(out)).encode())
    for line in (*found.lines(), *more):
        typer.echo(line)
    typer.echo(f"wrote {out}")


@calibrate.command()
def errors(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write (.json).")],
    rows: Annotated[Path | None, typer.Option(help="Table of training steps; default: the shipped ledger.")] = None,
) -> None:
    """Estimate how sure predictions of training steps are, from the ledger that their stacks were fitted to."""
    from ...simulator.answers.validate import steps
    from ..fitting.step_errors import fit_errors

    _write_widths(fit_errors(rows or steps.shipped_table(), tell=typer.echo), out)


@calibrate.command()
def memory(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write (.json).")],
    rows: Annotated[Path | None, typer.Option(help="Table of training steps; default: the shipped ledger.")] = None,
) -> None:
    """Estimate how sure the peak memory of training steps is, from the rows of a ledger that state one."""
    from ...simulator.answers.validate import steps
    from ..fitting.memory_errors import fit_memory_errors

    _write_widths(fit_memory_errors(rows or steps.shipped_table(), tell=typer.echo), out)


@calibrate.command("data-sheets")
def data_sheets(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write (.json).")],
    rows: Annotated[Path | None, typer.Option(help="Table of training steps; default: the shipped ledger.")] = None,
) -> None:
    """Estimate what is missed on a GPU that only a data sheet describes, from GPUs of a ledger, each left out."""
    from ...simulator.answers.validate import steps
    from ..fitting.data_sheet_errors import fit_data_sheet_errors

    _write_widths(fit_data_sheet_errors(rows or steps.shipped_table(), tell=typer.echo), out)


@calibrate.command("run-errors")
def run_errors(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write (.json).")],
    rows: Annotated[Path | None, typer.Option(help="Table of whole runs; default: the shipped ledger.")] = None,
) -> None:
    """Estimate what published runs were off beyond chance, failure rates and the step, each source left out in turn."""
    from ...simulator.answers.validate.run_rows import shipped_table
    from ..fitting.run_errors import fit_run_errors

    _write_widths(fit_run_errors(rows or shipped_table(), tell=typer.echo), out)


@calibrate.command("cycle-errors")
def cycle_errors(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write (.json).")],
    rows: Annotated[Path | None, typer.Option(help="Table of RL cycles; default: the shipped ledger.")] = None,
) -> None:
    """Estimate what published RL cycles were off beyond the errors of their phases, each source left out in turn."""
    from ..fitting.cycle_errors import fit_cycle_errors

    _write_widths(fit_cycle_errors(rows, tell=typer.echo), out)


def _write_widths(found: dict[str, Any], out: Path) -> None:
    """Write what a fit of errors found, and print its widths."""
    import json

    from ...simulator.base.files import write_atomic

    write_atomic(str(out), (json.dumps(found) + "\n").encode())
    widths = ", ".join(f"{name} {width['value']:g}" for name, width in found["widths"].items())
    typer.echo(f"{widths}; wrote {out}")


@calibrate.command()
def check(
    profile: Annotated[str, typer.Argument(help="A shipped profile by name, or a file.")],
    samples: Annotated[list[Path], _SAMPLES],
    library: Annotated[str | None, typer.Option(help="Score this library's models, not each row's own.")] = None,
) -> None:
    """Print median, p90 and bias of a Profile's errors on samples, per class and size band."""
    from ...simulator.answers.validate.samples import profile_fitted_to
    from ...simulator.base.files import digest
    from ...simulator.formats.samples import read_samples
    from ...simulator.profile import load_profile
    from ..check import check_profile

    loaded, read = load_profile(profile), read_samples(samples)
    table, unscored = check_profile(loaded, read, library)
    _print([*read.dropped, *unscored], table)
    if table.empty:
        raise UserError(f"profile {loaded.name}: none of the samples could be scored")
    for path in samples:
        if of := profile_fitted_to(loaded, digest(path)):
            typer.echo(f"in-sample: profile {of.name} was fitted on {path}: these errors are no check of it")


@calibrate.command()
def report(
    profile: Annotated[str, typer.Argument(help="A shipped profile by name, or a file.")],
    samples: Annotated[
        list[Path] | None, typer.Argument(help="Samples to draw beside it, as for `check`.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("profile.html"),
) -> None:
    """Write one HTML page: measured against fitted, residuals, what is extrapolated, environment."""
    from ...simulator.formats.samples import read_samples
    from ...simulator.profile import load_profile
    from ..report import write_report

    read = read_samples(samples) if samples else None
    write_report(load_profile(profile), read, out)
    typer.echo(f"wrote {out}")


def _print(dropped: "Sequence[str]", table: "pd.DataFrame") -> None:
    """What was left out, then the table if it has rows."""
    from ...simulator.formats.samples import summarize

    for line in summarize(dropped):
        typer.echo(f"left out: {line}")
    if len(table):
        typer.echo(table.to_string(index=False))
