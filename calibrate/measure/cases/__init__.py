"""Which cases there are, one file per family; each offers `cases(facts)`, as a user's own module may."""

from collections.abc import Iterator
from importlib import import_module

from ..case import Case, Facts

FAMILIES = (
    *("collectives", "send_recv", "copies", "reload", "handles", "gemm", "attention", "shapes", "membound", "moe"),
    *("compress", "overheads", "interference", "sustained"),
)


def all_cases(facts: Facts, modules: tuple[str, ...] = ()) -> Iterator[Case]:
    """Every case for such a machine, and those of more modules by name.

    Raises:
        ValueError: no such module, or one without `cases`; one line.
    """
    for family in FAMILIES:
        yield from import_module(f".{family}", __name__).cases(facts)
    for module in modules:
        try:
            offered = list(import_module(module).cases(facts))
        except Exception as error:  # the module is the user's, and may fail in any way
            expected = f"expected an importable module with cases(facts): {type(error).__name__}: {error}"
            raise ValueError(f"--cases = {module!r}: {expected}") from None
        yield from offered
