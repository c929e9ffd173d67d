"""Titles of axes: names of models, above all that belongs to the axes."""

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes

from visprism.drawing.text import title

# Of a vertical axis without a factor such as 1e6 above it. Matplotlib's limits are 1e-5 and
# 1e6, and differences in the fourth digit; ticks can lie within the ends of the axis.
_SMALLEST, _LARGEST, _RANGE = 1e-3, 1e4, 0.01


def set_titles(axes: Iterable[Axes], names: Sequence[str], *, width: float) -> None:
    """Set the titles of axes whose data are drawn, in lines of at most `width` inches.

    To find the height of a title Matplotlib measures all tick labels of its axes, in each pass
    of the layout and in each file. The height is stated where nothing else can stand there.
    """
    for ax, name in zip(axes, names, strict=True):
        text = title(name, width=width, size=ax.title.get_fontproperties().get_size_in_points())
        ax.set_title(text, y=1.0 if _ends_above(ax) else None, parse_math=False)


def _ends_above(ax: Axes) -> bool:
    """Whether nothing of the axes but titles stands above its upper edge, whatever its size."""
    low, high = map(float, ax.get_ylim())
    largest = max(abs(low), abs(high))
    plain = _SMALLEST < largest < _LARGEST and abs(high - low) > _RANGE * largest
    places = [other.get_subplotspec() for other in ax.get_figure().axes]  # pyrefly: ignore
    alone = not ax.child_axes and places.count(ax.get_subplotspec()) == 1  # without a twin
    below = ax.xaxis.get_ticks_position() == ax.xaxis.get_label_position() == "bottom"
    return plain and alone and below
