"""What nvbandwidth writes with `--json`, newer `--format json` (json_output.cpp).

Under the key `nvbandwidth`: versions, and `testcases` with name, status (Passed, Waived, Error, Not Found) and a matrix
whose cells are texts. Most releases do not list the GPUs; where a list of names is there, whatever its key, it is used.
"""

from collections.abc import Mapping
from typing import Any

from ...simulator.base.errors import UserError
from .found import Found
from .nvbandwidth import Matrix, Setup, add_copies
from .options import Options
from .printed import table


def recognises(root: object) -> bool:
    """Whether a JSON file is one of nvbandwidth."""
    return isinstance(root, Mapping) and isinstance(root.get("nvbandwidth"), Mapping)


def read(root: Mapping[str, Any], found: Found, options: Options) -> None:
    """All tests of a file.

    Raises:
        UserError: what the file does not say and the options neither, or it has no test cases.
    """
    body = root["nvbandwidth"]
    cases = body.get("testcases")
    if not isinstance(cases, list):
        raise UserError(f"{found.file}: nvbandwidth.testcases: expected a list")
    matrices, waived = [], 0
    for index, case in enumerate(map(table, cases)):
        place = f"testcases[{index}]"
        name, status, rows = str(case.get("name", "")), case.get("status"), case.get("bandwidth_matrix")
        if status == "Waived":
            waived += 1
        elif status not in ("Passed", None) or not isinstance(rows, list):
            found.leave(place, "tests that did not pass")
        else:
            cells = [(place, str(cell)) for row in rows if isinstance(row, list) for cell in row]
            matrices.append(Matrix(name, str(case.get("bandwidth_description", "")), cells))
    add_copies(matrices, _setup(body), waived, found, options)


def _setup(body: Mapping[str, Any]) -> Setup:
    size = body.get("bufferSize")
    version = body.get("version") or body.get("git_version")
    known = float(size) * (1 << 20) if isinstance(size, int) and 0 < size < 1 << 40 else None
    return Setup(frozenset(_devices(body)), str(version) if version else None, known)


def _devices(body: Mapping[str, Any]) -> set[str]:
    """Names in lists such as `GPU Device list`: `0: NVIDIA GB200 (00000008:01:00)`."""
    lists = [value for key, value in body.items() if "device" in key.lower() and isinstance(value, list)]
    texts = [text for names in lists for text in names if isinstance(text, str)]
    return {text.partition(": ")[2] or text for text in texts}
