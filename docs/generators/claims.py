"""What the paper claims, and the verdicts of the study that the site is built with."""

from pathlib import Path

import visprism as vp
from generators import run
from visprism.report.rows import Row

HEAD = """\
# What the paper claims, and what holds

The statements C1 to C15 are Park and Kim's (2022), in our words, as
[Codes of findings](../findings.md#claims-c1-to-c16) lists them. The table is made by a study of
two networks on {images} images when this site is built. A verdict is only about these networks
and images. A claim about architectures takes several trained seeds, and a claim about
photographs takes photographs: [The claims of the paper as experiments](../claims.md).
"""


def pages(folder: Path) -> dict[str, str]:
    """The rows of the study's table that have a verdict about a claim."""
    study = run.main_study(folder / "run")
    rows = [row for row in study.table() if any(a.verdict for a in row.cells.values())]
    head = ["claim", "question", *study.models]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += [
        "| " + " | ".join([_claim(row), f"{row.question}<br>{row.quantity}", *cells]) + " |"
        for row in sorted(rows, key=lambda row: int(_claim(row)[1:]))
        for cells in [[_cell(row.cells.get(name)) for name in study.models]]
    ]
    text = HEAD.format(images=study.positions.size)
    return {"claims.md": f"{text}\n" + "\n".join(lines) + "\n"}


def _claim(row: Row) -> str:
    return next(answer.claim for answer in row.cells.values())


def _cell(answer: vp.Answer | None) -> str:
    if answer is None:
        return ""
    verdict = answer.verdict or "no verdict"
    return f"{answer}<br>**{verdict}**"
