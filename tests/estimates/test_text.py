"""Laws of the text of numbers (src/visprism/estimates/text.py)."""

import pytest

from visprism.estimates.text import interval_text

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((1.1102, 1.1098, 1.1106), "1.1102 [1.1098, 1.1106]"),
        ((5.0, 4.0, 6.0), "5 [4, 6]"),
        ((1.0, 1.0, 1.0), "1 [1, 1]"),
        ((0.9996, 0.97, 1.0), "0.9996 [0.97, 1]"),
    ],
)
def test_a_value_differs_from_the_ends_of_its_interval_as_text(values, text):
    assert interval_text(*values) == text
