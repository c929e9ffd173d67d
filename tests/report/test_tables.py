"""Laws of tables: columns as declared, short numbers, and an order that is that of values."""

import numpy as np
import pytest
from internals import amount, table_of


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (999_600, "1.00 M"),
        (123_456_789, "123 M"),
        (np.int64(4_089_184_256), "4.09 G"),
    ],
)
def test_an_amount_has_three_digits_and_a_prefix(number, text):
    assert amount(number).replace("\N{NO-BREAK SPACE}", " ") == text


def test_columns_are_those_of_the_declaration_and_scalars_stand_apart(make):
    table = table_of(make.norms())
    heads = ["Block", "Normalized depth", "Norm (pixels)", "Count"]
    assert [h.text for h in table.heads] == heads
    assert [h.numeric for h in table.heads] == [False, True, True, True]
    assert [row[0] for row in table.rows] == make.norms().block.tolist()
    assert [(h.text, value) for h, value in table.scalars] == [("Scale", "relative")]
    assert table.hidden == 0
