"""The registry of figures: size, axes and key of each figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch, wraps
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from visprism.core.errors import InputError
from visprism.drawing.style import paper_style
from visprism.table.result import Result

Draw = Callable[..., Axes]
Key = Callable[[Figure, Sequence[Axes]], None]  # explains the colors, once for all axes


def no_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """No key, for a figure that needs none."""


@dataclass(frozen=True)
class Frame:
    """The size of a figure in inches, and its key."""

    width: float = 3.0
    height: float = 2.4
    across: int = 3  # models per row
    share: bool = True  # whether models share the vertical axis
    share_values: bool = False  # whether models share the horizontal axis
    key: Key = no_legend
    key_width: float = 0.0  # room for the key at the side,
    key_height: float = 0.0  # or above


FRAMES: dict[Draw, Frame] = {}  # by the function that draws


@singledispatch
def plot(
    result: Result | Mapping[str, Result],
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw `result` on `ax`, or on axes of a new figure, and return the axes.

    On given axes only the data is drawn, in the current style. A
    new figure is opened with pyplot, has the style of a paper, and a legend.

    A mapping of names to results of one type, such as ``study["fourier"]``, is drawn on a new
    figure, models side by side; then an array of axes is returned, one per result.

    A plug-in adds a figure for its result with `figure`.
    """
    raise InputError(
        f"no figure for {type(result).__name__}. Add one with @visprism.drawing.figure()"
    )


@singledispatch
def surface_of(result: Result) -> dict[str, Any] | None:
    """Heights and colors of a surface, for JSON; None for results that have none.

    ``height`` is a matrix of values between 0 and 1, ``color`` a matrix of the cells between
    them, ``level`` a height that is outlined with a label, ``axes`` the two labels.
    """
    return None


def figure(**room: Any) -> Callable[[Draw], Draw]:
    """Make a function that draws one type of result, named by its annotation, part of `plot`.

    Example::

        @figure(width=2.4, key=depth_bar)
        def _(result: Spectrum, ax: Axes) -> Axes: ...
    """

    def register(draw: Draw) -> Draw:
        @wraps(draw)
        def on_axes(result: Result, ax: Axes | None = None, **options: Any) -> Axes:
            if ax is None:
                return on_new_axes(result, **options)
            if not hasattr(ax, "get_figure"):
                raise InputError(f"ax must be axes of Matplotlib or None, got {ax!r}")
            return draw(result, ax, **options)

        def on_new_axes(result: Result, **options: Any) -> Axes:
            from matplotlib import pyplot  # its figures are global: here only

            size = (frame.width + frame.key_width, frame.height + frame.key_height)
            with paper_style():
                figure, ax = pyplot.subplots(figsize=size)
                draw(result, ax, **options)
                frame.key(figure, [ax])
            return ax

        frame = Frame(**room)
        FRAMES[on_axes] = frame
        return plot.register(on_axes)

    return register


def frame_of(result: Result) -> Frame:
    """The frame of the figure of `result`; a plugin may have registered one without."""
    return FRAMES.get(plot.dispatch(type(result)), Frame())
