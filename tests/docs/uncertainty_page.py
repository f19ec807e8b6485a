"""The tables of docs/uncertainty.md from kept predictions: run this file to write them into the page."""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from runcast.simulator.answers.validate.steps import ledger as ledgers
from runcast.simulator.answers.validate.steps import restore, shipped_table
from runcast.simulator.answers.validate.updates import UpdateLedger, read_ledger
from runcast.simulator.base.files import read_json, write_atomic
from runcast.simulator.uncertainty import shipped_fit, shipped_memory_errors

PAGE = Path(__file__).parents[2] / "docs/uncertainty.md"
GOLDEN = shipped_table().with_name("training_predictions.csv")


def widths() -> Iterator[str]:
    """What was estimated, in percent."""
    fit = shipped_fit()
    yield "| width | value | what is off |"
    yield "|---|---|---|"
    yield f"| `site` | {fit.site:.1%} | all runs of a source, beside other sources of the stack on the device |"
    yield f"| `novelty` | {fit.novelty:.2f} | times the distances below: what is new of software or a device |"
    yield f"| `routing` | {fit.routing:.1%} | time of experts and of their exchanges, as one |"
    yield f"| `floor` | {fit.floor:.1%} | the whole step: a configuration's own difference from its stack's factors |"
    yield f"| `twin` | {fit.twin:.1%} | part of the floor: what a configuration does not share with any like it |"
    yield f"| `alike` | {fit.alike:.1%} | how much of its time one spends otherwise if 1/e is left in common |"
    yield f"| `run_to_run` | {fit.run_to_run:.1%} | part of the floor: rows of equal configuration from each other |"
    yield f"| `data_sheet` | {fit.data_sheet:.1%} | the whole step, on a device that only a data sheet describes |"


def apart() -> Iterator[str]:
    """How far stacks and devices are from what they rest on."""
    spreads = sorted(shipped_fit().apart.items(), key=lambda one: one[1])
    yield "| parameter | apart by |"
    yield "|---|---|"
    yield from (f"| `{name}` | {100 * spread:.0f} % |" for name, spread in spreads)


def data_sheets() -> Iterator[str]:
    """What is missed on each GPU of the ledger if only its data sheet describes it."""
    yield "| GPU | like | rows | offset | spread | by phase |"
    yield "|---|---|---|---|---|---|"
    for name, of in read_json(shipped_table().with_name("data_sheet_errors.json"))["devices"].items():
        phases = ", ".join(f"{phase} {log:+.2f}" for phase, log in of["phases"].items())
        yield f"| {name} | {of['like']} | {of['rows']} | {of['bias']:+.2f} | {of['spread']:.2f} | {phases} |"


def steps() -> Iterator[str]:
    """Coverage of training steps by family, and the families that are clearly off."""
    ledger = restore(GOLDEN)
    yield from (*ledgers.markdown(ledgers.coverages(ledger.summary), ledgers.COVERAGE), "")
    yield from (f"- {line}" for line in ledgers.confidences(ledger.summary))


def memory() -> Iterator[str]:
    """The widths of peak memory, and how often its intervals hold what was measured."""
    of = shipped_memory_errors()
    yield "| width | value | what is off |"
    yield "|---|---|---|"
    yield f"| `activations` | {of.activations:.1%} | times the share of activations in the peak |"
    yield f"| `allocator` | {of.allocator:.1%} | what an allocator reserves beyond what it gives out |"
    yield f"| `source` | {of.source:.1%} | all runs of a source |"
    summary = ledgers.coverage_of_memory(restore(GOLDEN).table)
    yield from ("", *ledgers.markdown(ledgers.coverages(summary), ledgers.COVERAGE), "")
    yield from (f"- {line}" for line in ledgers.confidences(summary))


def updates(ledger: UpdateLedger) -> Iterator[str]:
    """Coverage of weight updates by system."""
    rows = ledger.summary.query("errors == 'as shipped'")
    yield "| system | in the 90 % interval |"
    yield "|---|---|"
    yield from (f"| {row['system']} | {row['held']}/{row['held_of']} |" for row in rows.to_dict("records"))


def page(now: str, ledger: UpdateLedger) -> str:
    """The page with its tables made again; each stands between comments that name it."""
    parts = {"widths": widths(), "apart": apart(), "data sheets": data_sheets(), "steps": steps(), "memory": memory(),
             "updates": updates(ledger)}  # fmt: skip
    for name, part in parts.items():
        made = "\n".join(part)
        between = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        now = re.sub(between, rf"\g<1>\n{made}\n\n\g<2>", now, count=1, flags=re.DOTALL)
    return now


if __name__ == "__main__":
    pd.set_option("display.width", None)
    write_atomic(PAGE, page(PAGE.read_text(), read_ledger()).encode())
