"""Text: tables and verdicts for a terminal, or for what reads a pipe."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visprism.measure.features import Similarity
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
    """What was found about each model, a sentence a line."""
    lines = []
    for examination in examinations:
        sentences = [s for finding in examination.findings() for s in finding.sentences()]
        lines += [examination.name, *(f"  {s}" for s in (*sentences, *examination.notes))]
    return "\n".join(lines)


def likeness(comparisons: Mapping[tuple[str, str], "Similarity"]) -> list[str]:
    """For each two models, the two blocks that are most alike, in two lines."""
    lines = []
    for (first, other), result in comparisons.items():
        best = int(result.cka.argmax())
        lines += [
            f"{first} and {other}",
            f"  most alike are {result.block[best]} and {result.other[best]} "
            f"(CKA {result.cka[best]:.2f})",
        ]
    return lines
