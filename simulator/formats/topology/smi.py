"""The matrix that `nvidia-smi topo -m` prints, wherever it stands in a text.

Columns are separated by TABs or spaces, the header may carry terminal escapes, and anything may stand around it.
"""

import re
from collections.abc import Iterator, Sequence

from ...base.errors import UserError, fault
from .layout import MOST_GPUS, Distance, Layout, Nic, Pair, find_devices, network_of

TOOL = "nvidia-smi topo -m"

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\[(?:4|0)m")
_GPU = re.compile(r"GPU\d{1,4}")
_NIC = re.compile(r"(?=.*\d)[A-Za-z][\w.+-]{0,31}")
_CELL = re.compile(r"X|PIX|PXB|PHB|NODE|SYS|SOC|NV[1-9]\d?")
_LEGEND = re.compile(r"\s*(NIC\d{1,4}):\s+([A-Za-z][\w.+-]{0,31})\s*")

Rows = dict[str, tuple[int, list[str]]]
"""By the device of a row, its line number and its words: a cell for each column, then CPU and NUMA affinity."""


def holds_matrix(text: str) -> bool:
    """Whether a header of the matrix stands anywhere in the text."""
    return next(_headers(_lines(text)), None) is not None


def read_smi(text: str, where: str) -> Layout:
    """The first matrix of a text.

    A UserError if there is no matrix, it is cut, or a cell means nothing; one line with its line number.
    """
    lines = _lines(text)
    header = next(_headers(lines), None)
    if header is None:
        raise UserError(f"{where}: no matrix of {TOOL}; expected a header line with GPU0, GPU1, ...")
    start, columns = header
    rows = _rows(lines, start, columns, where)
    gpus = [name for name in columns if _GPU.fullmatch(name)]
    if len(gpus) > MOST_GPUS:
        raise UserError(fault(f"{where}:{start + 1}", "GPUs", len(gpus), f"expected at most {MOST_GPUS} in one node"))
    if missing := [name for name in gpus if name not in rows]:
        allowed = f"expected one for each of {len(gpus)} GPUs"
        raise UserError(f"{where}:{start + 1}: the matrix has no row of {', '.join(missing)}; {allowed}")
    legend = {found[1]: found[2] for line in lines if (found := _LEGEND.fullmatch(line))}
    nics = [(label, legend.get(label, label)) for label in columns[len(gpus) :]]
    links, gpu_distance, nic_distance = _distances(rows, columns, len(gpus), where)
    affinity = [" ".join(rows[name][1][len(columns) :][:2]) for name in gpus]
    return Layout(
        tool=TOOL,
        gpus=len(gpus),
        nics=tuple(Nic(tuple(dict.fromkeys((label, name))), network=network_of(name)) for label, name in nics),
        gpu_distance=gpu_distance,
        nic_distance=nic_distance,
        links=links,
        numa=tuple(affinity) if all(re.match(r"\d", label) for label in affinity) else (),
        devices=find_devices(text),
        devices_from="its name in the text around the matrix, as nvidia-smi prints it",
    )


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


def _rows(lines: Sequence[str], start: int, columns: Sequence[str], where: str) -> Rows:
    """The rows below a header, up to the first blank line or whatever is no row."""
    rows: Rows = {}
    for number in range(start + 1, len(lines)):
        tokens = lines[number].split()
        at = next((i for i, token in enumerate(tokens) if token in columns), None)
        if at is None and not rows:
            continue
        if at is None or tokens[at] in rows:
            break
        (name, *words), line = tokens[at:], f"{where}:{number + 1}"
        for column, cell in zip(columns, words, strict=False):
            if not _CELL.fullmatch(cell) or (cell == "X") != (column == name):
                raise UserError(fault(line, f"{name} to {column}", cell, "expected X, PIX, PXB, PHB, NODE, SYS or NV#"))
        if len(words) < len(columns):
            allowed = f"expected {len(columns)}, as the header has; is the line cut or wrapped?"
            raise UserError(fault(line, f"cells of {name}", len(words), allowed))
        rows[name] = number + 1, words
    return rows


def _distances(
    rows: Rows, columns: Sequence[str], gpus: int, where: str
) -> tuple[dict[Pair, int], dict[Pair, Distance], dict[Pair, Distance]]:
    """NVLinks of pairs of GPUs, other distances between GPUs, and those from GPUs to NICs."""
    links: dict[Pair, int] = {}
    between: dict[Pair, Distance] = {}
    to_nics: dict[Pair, Distance] = {}
    for a in range(gpus):
        line, words = rows[f"GPU{a}"]
        for b, cell in enumerate(words[a + 1 : len(columns)], a + 1):
            if b < gpus and cell.startswith("NV"):
                links[a, b] = int(cell[2:])
            elif cell.startswith("NV"):
                allowed = "expected PIX, PXB, PHB, NODE or SYS between a GPU and a NIC"
                raise UserError(fault(f"{where}:{line}", f"GPU{a} to {columns[b]}", cell, allowed))
            elif b < gpus:
                between[a, b] = Distance["SYS" if cell == "SOC" else cell]
            else:
                to_nics[a, b - gpus] = Distance["SYS" if cell == "SOC" else cell]
    return links, between, to_nics
