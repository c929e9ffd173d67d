"""The overview shows the same numbers as each figure alone, on one axis of depth."""

import numpy as np

from visprism.report.overview import overview


def test_every_quantity_of_every_model_has_its_place(made):
    results = [made[name] for name in ("variances", "high_frequency", "attention_statistics")]
    figure = overview({"a": results, "b": results[:2]})
    grid = np.array(figure.axes).reshape(4, 2)  # attention has two rows
    assert [ax.get_title() for ax in grid[0]] == ["a", "b"]
    assert [t.get_text() for t in grid[2, 1].texts] == ["none"]
    for ax, result in zip(grid[:2].T.ravel(), [results[1], results[0]] * 2, strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), result.depth)
    np.testing.assert_array_equal(grid[0, 0].lines[0].get_ydata(), results[1].relative)
    np.testing.assert_array_equal(grid[1, 1].lines[0].get_ydata(), results[0].relative)
    assert {ax.get_xlim() for ax in grid.ravel()} == {(-0.02, 1.02)}


def test_one_quantity_alone_needs_no_overview(made):
    assert overview({"a": [made["variances"], made["spectrum"]]}) is None
