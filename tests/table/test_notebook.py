"""Laws of tables in notebooks (src/visprism/table/notebook.py)."""

import re

import numpy as np
import pytest
from internals import Estimated

from visprism import Result, Texts, column, estimate, result_type, scalar


@result_type("test-wide")
class Wide(Result):
    """A wide table of two rows."""

    block: Texts = column("Block", "", "name of the block")
    kind: Texts = column("Kind", "", "the same in every row")
    depth: np.ndarray = column("Depth", "", "a number that differs")
    norm: Estimated = estimate("Norm", "pixels", "the main value")
    share: Estimated = estimate("Share", "", "the same in every row")
    parts: np.ndarray = column("Parts", "", "a number that does not differ")
    missing: np.ndarray = column("Missing", "", "not measured")
    images: int = scalar("Images", "", "for every row", default=7)

    value_name = "norm"


@pytest.fixture
def wide():
    numbers = np.array([0.25, np.nan])
    return Wide(
        block=np.array(["a", "b"]),
        kind=np.array(["mlp", "mlp"]),
        depth=np.array([0.0, 1.0]),
        norm=Estimated(numbers),
        share=Estimated(np.ones(2), np.zeros(2), np.full(2, 2.0)),
        parts=np.array([3, 3]),
        missing=np.full(2, np.nan),
    )


def headings(result):
    return re.findall(r"<th>(.*?)</th>", result._repr_html_())


def test_a_wide_table_has_keys_the_main_value_and_its_interval(wide):
    expected = ["Block", "Kind", "Depth", "Norm (pixels)", "norm_low", "norm_high"]
    assert headings(wide) == expected
    assert "6 more columns in <code>to_pandas()</code>" in wide._repr_html_()
    assert set(wide.to_pandas().columns) == set(wide.columns())
