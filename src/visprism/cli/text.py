"""Tables for a terminal, or for what reads a pipe."""

from collections.abc import Iterable, Sequence


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under a header, in columns as wide as their longest entry.

    Example:
        >>> print(columns(["name", "size"], [("stem", "1"), ("blocks.0", "20")]))
        name      size
        stem      1
        blocks.0  20
    """
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (
        "  ".join(entry.ljust(width) for entry, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)
