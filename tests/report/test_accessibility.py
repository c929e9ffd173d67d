"""Accessibility of the page: names, order and references, and the contrast of its colors."""

from itertools import product

import pytest
from accessibility import Checker, contrast, themes

from visprism.report.page import style_sheet

TEXT, GROUNDS = ("ink", "faint", "accent", "good", "bad", "warn"), ("paper", "tint")


def test_the_page_breaks_no_rule(study, tmp_path):
    study.to_html(tmp_path / "report.html")
    assert not Checker((tmp_path / "report.html").read_text("utf-8")).problems


def test_text_has_the_contrast_of_level_aa():
    for colors in themes(style_sheet()).values():
        for text, ground in product(TEXT, GROUNDS):
            assert contrast(colors[text], colors[ground]) >= 4.5, (text, ground)
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # the known limit
