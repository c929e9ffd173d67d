"""Text: tables and verdicts for a terminal, or for what reads a pipe."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visprism.report import Examination


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


def verdicts(examinations: Sequence["Examination"]) -> str:
    """What was found about each model's kinds of block, a sentence a line."""
    lines = []
    for examination in examinations:
        sentences = [s for tally in examination.tallies() for s in tally.sentences()]
        lines += [examination.name, *(f"  {s}" for s in (*sentences, *examination.notes))]
    return "\n".join(lines)
