"""The matrix that `nvidia-smi topo -m` prints, wherever it stands in a text.

Columns are separated by TABs or spaces, the header may carry terminal escapes, and anything may stand around it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...base.errors import UserError, fault
from .identify import named_devices, network_of
from .layout import MOST_GPUS, Distance, Layout, Nic, Pair

TOOL = "nvidia-smi topo -m"

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\[(?:4|0)m")
_GPU = re.compile(r"GPU\d{1,4}")
_NIC = re.compile(r"(?=.*\d)[A-Za-z][\w.+-]{0,31}")
_CELL = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|NV[1-9]\d?")
_LEGEND = re.compile(r"\s*(NIC\d{1,4}):\s+([A-Za-z][\w.+-]{0,31})\s*")
_ALLOWED = "expected X, PIX, PXB, PHB, NODE, SYS or NV#"


@dataclass(frozen=True)
class _Row:
    line: int
    cells: tuple[str, ...]
    affinity: tuple[str, ...]


def holds_matrix(text: str) -> bool:
    """Whether a header of the matrix stands anywhere in the text."""
    return next(_headers(_lines(text)), None) is not None


def read_smi(text: str, where: str) -> Layout:
    """The first matrix of a text.

    Raises:
        UserError: no matrix, a cut one, or a cell that means nothing; one line with its line number.
    """
    lines = _lines(text)
    header = next(_headers(lines), None)
    if header is None:
        raise UserError(f"{where}: no matrix of {TOOL}; expected a header line with GPU0, GPU1, ...")
    start, columns = header
    rows = _rows(lines, start, columns, where)
    gpus = [name for name in columns if _GPU.fullmatch(name)]
    _check_whole(rows, gpus, f"{where}:{start + 1}")
    return _layout(rows, columns, len(gpus), _legend(lines), named_devices(text), where)


def _lines(text: str) -> list[str]:
    return [_ESCAPE.sub("", line) for line in text.splitlines()]


def _headers(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """The place of each header and the devices that it names, GPUs first."""
    for number, line in enumerate(lines):
        tokens = line.split()
        first = next((i for i, token in enumerate(tokens) if token == "GPU0"), len(tokens))
        last = next((i for i, token in enumerate(tokens) if token in ("CPU", "NUMA")), len(tokens))
        columns = tokens[first:last]
        gpus = [name for name in columns if _GPU.fullmatch(name)]
        numbered = gpus == [f"GPU{i}" for i in range(len(gpus))] == columns[: len(gpus)]
        titled = last < len(tokens) or (lines[number + 1 : number + 2] and "X" in lines[number + 1].split())
        if gpus and titled and numbered and all(map(_NIC.fullmatch, columns)) and len(set(columns)) == len(columns):
            yield number, columns


def _rows(lines: Sequence[str], start: int, columns: Sequence[str], where: str) -> dict[str, _Row]:
    """The rows below a header, up to the first blank line or whatever is no row."""
    rows: dict[str, _Row] = {}
    for number in range(start + 1, len(lines)):
        tokens = lines[number].split()
        at = next((i for i, token in enumerate(tokens) if token in columns), None)
        if at is None:
            if rows:
                break
            continue
        if tokens[at] in rows:
            break
        rows[tokens[at]] = _row(tokens[at:], number + 1, columns, where)
    return rows


def _row(tokens: Sequence[str], line: int, columns: Sequence[str], where: str) -> _Row:
    name, cells = tokens[0], tuple(tokens[1 : len(columns) + 1])
    for column, cell in zip(columns, cells, strict=False):
        if not _CELL.fullmatch(cell) or (cell == "X") != (column == name):
            raise UserError(fault(f"{where}:{line}", f"{name} to {column}", cell, _ALLOWED))
    if len(cells) < len(columns):
        allowed = f"expected {len(columns)}, as the header has; is the line cut or wrapped?"
        raise UserError(fault(f"{where}:{line}", f"cells of {name}", len(cells), allowed))
    return _Row(line, cells, tuple(tokens[len(columns) + 1 :]))


def _check_whole(rows: Mapping[str, _Row], gpus: Sequence[str], where: str) -> None:
    if len(gpus) > MOST_GPUS:
        raise UserError(fault(where, "GPUs", len(gpus), f"expected at most {MOST_GPUS} in one node"))
    missing = [name for name in gpus if name not in rows]
    if missing:
        allowed = f"expected one for each of {len(gpus)} GPUs"
        raise UserError(f"{where}: the matrix has no row of {', '.join(missing)}; {allowed}")


def _legend(lines: Sequence[str]) -> dict[str, str]:
    """NIC labels and the names of their devices."""
    return {found[1]: found[2] for line in lines if (found := _LEGEND.fullmatch(line))}


def _layout(
    rows: Mapping[str, _Row],
    columns: Sequence[str],
    gpus: int,
    legend: Mapping[str, str],
    devices: tuple[str, ...],
    where: str,
) -> Layout:
    links: dict[Pair, int] = {}
    gpu_distance: dict[Pair, Distance] = {}
    nic_distance: dict[Pair, Distance] = {}
    for a in range(gpus):
        row = rows[f"GPU{a}"]
        for b, cell in enumerate(row.cells):
            if b >= gpus:
                nic_distance[a, b - gpus] = _distance(cell, f"{where}:{row.line}", f"GPU{a} to {columns[b]}")
            elif a < b and cell.startswith("NV"):
                links[a, b] = int(cell[2:])
            elif a < b:
                gpu_distance[a, b] = _distance(cell, f"{where}:{row.line}", f"GPU{a} to GPU{b}")
    return Layout(
        tool=TOOL,
        gpus=gpus,
        nics=tuple(_nic(label, legend) for label in columns[gpus:]),
        gpu_distance=gpu_distance,
        nic_distance=nic_distance,
        links=links,
        numa=_numa([rows[f"GPU{g}"].affinity for g in range(gpus)]),
        devices=devices,
        devices_from="its name in the text around the matrix, as nvidia-smi prints it",
    )


def _distance(cell: str, where: str, key: str) -> Distance:
    if cell.startswith("NV"):
        raise UserError(fault(where, key, cell, "expected PIX, PXB, PHB, NODE or SYS between a GPU and a NIC"))
    return Distance["SYS" if cell == "SOC" else cell]


def _nic(label: str, legend: Mapping[str, str]) -> Nic:
    name = legend.get(label, label)
    return Nic(labels=tuple(dict.fromkeys((label, name))), network=network_of(name))


def _numa(affinities: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """CPU and NUMA affinity as one label per GPU; nothing where a row has neither."""
    labels = [" ".join(words[:2]) for words in affinities]
    return tuple(labels) if all(re.match(r"\d", label) for label in labels) else ()
