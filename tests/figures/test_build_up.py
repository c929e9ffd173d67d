"""The figure of a search shows its numbers in place."""

import pytest

from visprism.figures import plot


def test_each_candidate_stands_at_its_mean_and_only_kept_ones_are_filled(made, ax):
    result = made["search_replacements"]
    plot(result, ax)
    rings = [line for line in ax.lines if line.get_marker() == "o"]
    assert [ring.get_xdata()[0] for ring in rings] == [0, 1, 2, 2]
    means = [each.accuracy.mean() for each in result.candidates()]
    assert [ring.get_ydata()[0] for ring in rings] == pytest.approx(means)
    assert [ring.get_markerfacecolor() == "white" for ring in rings] == [
        not each.kept[0] for each in result.candidates()
    ]
    assert [text.get_text() for text in ax.texts] == ["layer3.2", "layer3.0", "layer2.2"]
    points = [line for line in ax.lines if line.get_marker() == "."]
    assert sorted(y for p in points for y in p.get_ydata()) == sorted(result.accuracy)
