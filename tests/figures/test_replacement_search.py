"""The figure of a search shows its numbers (src/visprism/figures/replacement_search.py)."""

import pytest

from visprism import plot


def test_each_candidate_is_at_its_mean_and_only_selected_ones_are_filled(made, ax):
    result = made["search_replacements"]
    plot(result, ax)
    rings = [line for line in ax.lines if line.get_marker() == "o"]
    assert [ring.get_xdata()[0] for ring in rings] == [0, 1, 2, 2]
    means = [candidate.accuracy.mean() for candidate in result.candidates()]
    assert [ring.get_ydata()[0] for ring in rings] == pytest.approx(means)
    assert [ring.get_markerfacecolor() == "white" for ring in rings] == [
        not candidate.selected[0] for candidate in result.candidates()
    ]
    assert [text.get_text() for text in ax.texts] == ["layer3.2", "layer3.0", "layer2.2"]
    points = [line for line in ax.lines if line.get_marker() == "."]
    searched = result.accuracy[result.phase == "search"]
    assert sorted(y for p in points for y in p.get_ydata()) == sorted(searched)
    confirmed = [line for line in ax.lines if line.get_marker() == "D"]
    assert [line.get_ydata()[0] for line in confirmed] == pytest.approx([2.71 / 3, 0.94])
