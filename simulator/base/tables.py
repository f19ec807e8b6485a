"""Tables of words and numbers in a terminal. What stands in a cell is the business of who asks."""

from collections.abc import Collection, Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Rows of equal length as lines, a head among them; columns of these numbers stand to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        yield "  ".join(f"{c:>{w}}" if i in right else f"{c:<{w}}" for i, (c, w) in enumerate(cells)).rstrip()
