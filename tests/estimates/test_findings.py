"""Laws of findings (src/visprism/estimates/findings.py): codes are documented and used."""

import re
from pathlib import Path

import pytest

import visprism
from visprism import Answer
from visprism.estimates.findings import CODES

PACKAGE = Path(visprism.__file__).parent
PAGE = (PACKAGE.parents[1] / "docs" / "findings.md").read_text(encoding="utf-8")


def test_the_docs_have_the_codes_with_their_titles_and_severities_and_no_others():
    sections = re.findall(r"^## (VP\d+): (.+)\n\n\*(\w+)\.\*", PAGE, flags=re.MULTILINE)
    assert sections == [(k, c.title, c.severity.capitalize()) for k, c in CODES.items()]
    assert PAGE.count("## VP") == len(CODES)


@pytest.mark.parametrize(
    ("numbers", "more", "text"),
    [
        ((0.5, 0.4, 0.6), {"unit": "%"}, "NLL: 50% [40%, 60%] over 9 images"),
        ((0.5, -1.0, 2.0), {}, "NLL: 0.5 [-1, 2] over 9 images, not significant"),
        ((0.5,), {"missing": "few"}, "NLL: 0.5 (no interval: few) over 9 images"),
        ((float("nan"),), {"missing": "few"}, "NLL undefined over 9 images: few"),
    ],
)
def test_the_sentence_of_an_answer(numbers, more, text):
    value, low, high = (*numbers, float("nan"), float("nan"))[:3]
    assert Answer("How large?", "NLL", value, low, high, **more).sentence("9 images") == text
