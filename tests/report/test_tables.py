"""Numbers as text: short, and in an order that is that of the numbers."""

import numpy as np
import pytest

from visprism.report.summary import typeset
from visprism.report.tables import Cell, amount, cell, rows


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00 k"),
        (25_557_032, "25.6 M"),
        (999_600, "1.00 M"),
        (123_456_789, "123 M"),
        (4_089_184_256, "4.09 G"),
        (3e12, "3.00 T"),
        (np.int64(5_717_416), "5.72 M"),
    ],
)
def test_an_amount_has_three_digits_and_a_prefix(number, text):
    assert amount(number).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.123456, "\N{MINUS SIGN}0.1235"),
        (7, "7"),
        (float("nan"), "\N{EN DASH}"),
        (True, "yes"),
        ("conv", "conv"),
    ],
)
def test_a_cell_is_short(value, text):
    assert cell("change", value).text == text


def test_an_amount_is_sorted_by_its_exact_number():
    assert cell("macs", 25_557_032).value == "25557032"


def test_rows_are_numbered_in_forward_order(examinations):
    table = rows(examinations[0].costs, {"block": "Block", "macs": "MACs"})
    assert [row[0] for row in table] == [
        Cell(str(i), numeric=True) for i in range(1, len(examinations[0].costs) + 1)
    ]
    assert [row[1].text for row in table] == examinations[0].costs.block.tolist()


def test_a_sentence_gets_its_minus_signs_and_keeps_words_with_hyphens():
    assert typeset("low-pass blocks: -0.11 to 5 %, timm-1") == (
        "low-pass blocks: \N{MINUS SIGN}0.11 to 5\N{NO-BREAK SPACE}%, timm-1"
    )
