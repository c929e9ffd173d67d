"""The drawing of a model shows its blocks, grids and costs."""

from dataclasses import replace

import pytest
from matplotlib.colors import to_hex

from visprism import plot
from visprism.analyses.anatomy import stages
from visprism.drawing.style import KIND_COLORS


def bars(ax, label):
    """The bars with this label, left to right."""
    return [p for c in ax.containers if c.get_label() == label for p in c]


def test_a_slab_is_as_high_as_the_root_of_its_grid(made, ax):
    plot(made["costs"], ax)
    (stem,), (attention,) = bars(ax, "stem"), bars(ax, "attention")
    assert stem.get_height() == 1  # 16 x 16
    assert attention.get_height() == 0.5  # 4 x 4: a quarter of the side
    assert stem.get_y() == -0.5  # about the middle


def test_a_slab_has_the_color_of_its_kind(made, ax):
    costs = made["costs"]
    plot(costs, ax)
    for kind in costs.kind:
        assert {to_hex(p.get_facecolor()) for p in bars(ax, kind)} == {
            KIND_COLORS[kind].lower()
        }


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


def test_the_height_of_a_grid_that_is_not_square_is_that_of_its_area(made, ax):
    costs = made["costs"]
    wide = replace(costs, height=costs.height * 4, width=costs.width // 4 + (costs.width < 4))
    plot(wide.select(wide.kind != "head"), ax)
    (stem,), (attention,) = bars(ax, "stem"), bars(ax, "attention")
    assert attention.get_height() / stem.get_height() == 0.5


def test_labels_stand_where_a_stage_has_room_for_them(made, ax):
    plot(made["costs"], ax)
    assert {"16x16", "4x4", "10"} <= {text.get_text() for text in ax.texts}
