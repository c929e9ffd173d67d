"""Laws of tables: columns as declared, short numbers, and an order that is that of values."""

import numpy as np
import pytest
from internals import amount, table_cell, table_of


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


def test_an_amount_is_sorted_by_its_exact_number():
    assert table_cell(25_557_032).value == "25557032"


def test_columns_are_those_of_the_declaration_and_scalars_stand_apart(make):
    table = table_of(make.norms())
    assert [h.text for h in table.heads] == [
        "Block",
        "Normalized depth",
        "Norm (pixels)",
        "Count",
    ]
    assert [h.numeric for h in table.heads] == [False, True, True, True]
    assert [row[0].text for row in table.rows] == make.norms().block.tolist()
    assert [(h.text, c.text) for h, c in table.scalars] == [("Scale", "relative")]
    assert table.hidden == 0
