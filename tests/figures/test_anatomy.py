"""The drawing of a model shows its blocks, grids and costs."""

import pytest
from internals import stages

from visprism import plot


def bars(ax, label):
    """The bars with this label, left to right."""
    return [p for c in ax.containers if c.get_label() == label for p in c]


def test_a_slab_is_as_high_as_the_root_of_its_grid(made, ax):
    plot(made["costs"], ax)
    (stem,), (attention,) = bars(ax, "stem"), bars(ax, "attention")
    assert stem.get_height() == 1  # 16 x 16
    assert attention.get_height() == 0.5  # 4 x 4: a quarter of the side
    assert stem.get_y() == -0.5  # about the middle


@pytest.mark.parametrize(
    ("label", "shares"),
    [("MACs", [0.25, 1, 0.5, 0.125, 0.125, 0]), ("Parameters", [0.2, 0.4, 0.6, 0.8, 1, 0])],
)
def test_strips_show_shares_of_the_largest(made, ax, label, shares):
    plot(made["costs"], ax)
    heights = [p.get_height() for p in bars(ax, f"_{label}")]
    assert [h / max(heights) for h in heights] == pytest.approx(shares)


def test_stages_are_runs_of_blocks_on_one_grid(made):
    assert stages(made["costs"]) == [(0, 1, "16x16"), (2, 4, "4x4"), (5, 5, "10")]
