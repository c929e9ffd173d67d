"""Style: the palette, the fonts and the sizes that all figures share.

Kinds of block have the colors of Okabe and Ito (2008, "Color universal design"), which people
with any color vision can distinguish, and a marker each, so that a print in gray can be read
too. Depth is plasma without its palest end, which is hard to see on white.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

KIND_COLORS = {
    "stem": "#3D3D3D",
    "conv": "#0072B2",
    "attention": "#D55E00",
    "mlp": "#009E73",
    "attention+mlp": "#E69F00",
    "token-mixing": "#CC79A7",
    "downsample": "#56B4E9",
    "upsample": "#8C6D31",
    "head": "#A3A3A3",
}
KIND_MARKERS = {
    "stem": "D",
    "conv": "s",
    "attention": "o",
    "mlp": "^",
    "attention+mlp": "h",
    "token-mixing": "P",
    "downsample": "v",
    "upsample": "<",
    "head": "*",
}
OTHER_COLOR, OTHER_MARKER = "#595959", "X"  # of a kind that a plugin adds

ATTENTION_SHADE = "#E3E3E3"
SUBSAMPLING_SHADE = "#CFE5F5"
INK, FAINT, STRIP = "#262626", "#6B6B6B", "#9C9C9C"  # text, small text, small bars

TIP = "tip:"  # what such an identifier begins with in an SVG file
MODEL = "model:"  # the same for the axes of a model,
SHARED = "shared:"  # and for its vertical axis where that is the one of a whole row

SIMILARITY = mpl.colormaps["viridis"]  # perceptually uniform, and in gray from dark to light

DEPTH = ListedColormap(mpl.colormaps["plasma"](range(0, 236)), name="depth")

# Both come with matplotlib, so a figure looks the same on every machine; the second has the
# letters that the first lacks.
FONTS = ["STIXGeneral", "DejaVu Sans"]

PAPER = {
    "font.family": FONTS,
    "font.size": 8,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # TrueType; publishers refuse matplotlib's default, Type 3
    "svg.fonttype": "path",  # the same letters on every machine
    "svg.hashsalt": "visprism",  # the same identifiers on every run
}


@contextmanager
def paper_style() -> Iterator[None]:
    """Matplotlib's settings for a figure in a paper, put back afterwards."""
    with mpl.rc_context():
        mpl.rcdefaults()  # a setting of the user's must not change a byte
        mpl.rcParams.update(PAPER)
        yield


def color_of(kind: str) -> str:
    """The color of a kind of block."""
    return KIND_COLORS.get(kind, OTHER_COLOR)


def marker_of(kind: str) -> str:
    """The marker of a kind of block."""
    return KIND_MARKERS.get(kind, OTHER_MARKER)


def legend(ax: Axes, **style: Any) -> None:
    """A legend with one entry a label, also where several results share the axes."""
    handles, labels = ax.get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    ax.legend(once.values(), once, **style)


def named_points(
    ax: Axes,
    names: Sequence[str],
    values: Any,
    about: Sequence[str],
    colors: Sequence[str],
    markers: str | Sequence[str] = "o",
) -> None:
    """A point with its 95% interval for each name, from top to bottom.

    Args:
        ax: to draw on.
        names: of the rows.
        values: an `Estimated` column.
        about: text of each point, when it is pointed at.
        colors: of the points.
        markers: of the points.
    """
    for i, (color, text) in enumerate(zip(colors, about, strict=True)):
        value, low, high = (float(x[i]) for x in (values, values.low, values.high))
        ax.errorbar(
            value, -i, xerr=[[value - low], [high - value]], color=color, elinewidth=0.9,
            marker=markers[i % len(markers)], markersize=4, linestyle="none", gid=tip(text),
        )  # fmt: skip
    ax.set_yticks(-np.arange(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.set(ylim=(0.6 - len(names), 0.6))


def tip(text: str) -> str:
    """The ``gid`` of an artist on which a page shows `text` when it is pointed at."""
    return f"{TIP}{text}"


def model_axes(name: str) -> str:
    """The ``gid`` of axes that show the model of this name."""
    return f"{MODEL}{name}"


def shared_axis(name: str) -> str:
    """The ``gid`` of the vertical axis of a row, on the axes of the model of this name."""
    return f"{SHARED}{name}"
