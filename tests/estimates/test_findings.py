"""Laws of findings (src/visprism/estimates/findings.py): codes are documented and used."""

import re
from pathlib import Path

import pytest
import torch
from internals import CODES

import visprism
from visprism import Answer, Predictions, calibration

PACKAGE = Path(visprism.__file__).parent
PAGE = (PACKAGE.parents[1] / "docs" / "findings.md").read_text(encoding="utf-8")


def test_the_docs_have_the_codes_with_their_titles_and_severities_and_no_others():
    sections = re.findall(r"^## (VP\d+): (.+)\n\n\*(\w+)\.\*", PAGE, flags=re.MULTILINE)
    assert sections == [(k, c.title, c.severity.capitalize()) for k, c in CODES.items()]
    assert PAGE.count("## VP") == len(CODES)


def test_an_accuracy_of_chance_is_a_warning():
    """1,000 images, 10 classes: 11.0% [9.2%, 13.1%] includes 10%, 14% [12.0%, 16.3%] not."""
    targets = torch.arange(1000) % 10
    for correct, warned in ((110, True), (140, False)):
        predicted = torch.where(torch.arange(1000) < correct, targets, (targets + 1) % 10)
        result = calibration(Predictions(3.0 * torch.eye(10)[predicted], targets))
        assert ("VP101" in [finding.code for finding in result.findings()]) is warned
        assert result.of("accuracy") == pytest.approx(correct / 1000)


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
