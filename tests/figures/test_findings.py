"""Findings and answers of fixed results: held by a file, so that wording changes on purpose.

``VISPRISM_WRITE_FINDINGS=1 python -m pytest tests/figures/test_findings.py`` writes it anew.
"""

import os
from pathlib import Path

FINDINGS = Path(__file__).parent / "findings.txt"


def sentences(result):
    yield from (str(finding) for finding in result.findings())
    for answer in result.answers():
        yield f"{answer.question} {answer.quantity}: {answer}"


def test_the_sentences_are_those_of_the_file(made):
    sections = (
        f"{name}\n" + "".join(f"    {sentence}\n" for sentence in sentences(made[name]))
        for name in made
        if any(sentences(made[name]))
    )
    text = "\n".join(sections)
    if os.environ.get("VISPRISM_WRITE_FINDINGS"):
        FINDINGS.write_text(text, "utf-8")
    assert text == FINDINGS.read_text("utf-8"), f"{FINDINGS} differs"
