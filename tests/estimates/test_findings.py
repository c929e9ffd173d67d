"""Laws of findings (src/visprism/estimates/findings.py): codes are documented and used."""

import re
from pathlib import Path

import numpy as np
import pytest
from internals import CODES

import visprism
from visprism import Predictions, calibration

PACKAGE = Path(visprism.__file__).parent
PAGE = (PACKAGE.parents[1] / "docs" / "findings.md").read_text(encoding="utf-8")


def test_the_docs_have_the_codes_with_their_titles_and_severities_and_no_others():
    sections = re.findall(r"^## (VP\d+): (.+)\n\n\*(\w+)\.\*", PAGE, flags=re.MULTILINE)
    assert sections == [(k, c.title, c.severity.capitalize()) for k, c in CODES.items()]
    assert PAGE.count("## VP") == len(CODES)


@pytest.mark.parametrize(("correct", "expected"), [(100, True), (110, True), (140, False)])
def test_an_accuracy_of_chance_is_a_warning(correct, expected):
    """1,000 images, 10 classes: 11.0% [9.2%, 13.1%] includes 10%, 14% [12.0%, 16.3%] not."""
    import torch

    targets = torch.arange(1000) % 10
    predicted = torch.where(torch.arange(1000) < correct, targets, (targets + 1) % 10)
    logits = torch.nn.functional.one_hot(predicted, 10).float() * 3
    result = calibration(Predictions(logits, targets))
    codes = [finding.code for finding in result.findings()]
    assert ("VP101" in codes) is expected
    assert result.of("accuracy") == pytest.approx(correct / 1000)
    assert np.isfinite([result.of("accuracy").low, result.of("accuracy").high]).all()
