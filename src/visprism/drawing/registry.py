"""The registry of figures: size, axes and key of each figure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch, wraps
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from visprism.core.errors import InputError
from visprism.core.registry import import_all
from visprism.drawing.style import paper_style
from visprism.table.result import Result, declare_types

Draw = Callable[..., Axes]
# Explains the colors, once for all axes: in the margin of a figure, or on axes of the user's.
Key = Callable[[Figure | Axes, Sequence[Axes]], None]
WIDTHS: Mapping[str, float] = {"column": 3.3, "page": 6.9}  # inches, of two-column venues


def no_legend(figure: Figure | Axes, axes: Sequence[Axes]) -> None:
    """No key, for a figure that needs none."""


@dataclass(frozen=True)
class Frame:
    """The size of a figure in inches, and its key."""

    width: float = 3.0
    height: float = 2.4
    across: int = 3  # models per row
    share: bool = True  # whether models share the vertical axis
    share_values: bool = False  # whether models share the horizontal axis
    column: str = ""  # that the vertical axis shows, of which all steps of a training share it
    key: Key = no_legend
    key_width: float = 0.0  # room for the key at the side,
    key_height: float = 0.0  # or above
    draw: Draw | None = None  # without a key

    def scale(self, columns: int, width: str | None) -> float:
        """By which `columns` axes are wider than they are declared, to fill a width."""
        if width is None:
            return 1.0
        if width not in WIDTHS:
            raise InputError(f"width must be one of {', '.join(WIDTHS)}, got {width!r}")
        return (WIDTHS[width] - self.key_width) / (columns * self.width)


FRAMES: dict[Draw, Frame] = {}  # by the function that is registered


def load_figures() -> None:
    """Import what registers figures: shared ones, and those in the files of analyses."""
    import_all("visprism.drawing")
    declare_types()


@singledispatch
def plot(
    result: Result | Mapping[str, Result],
    ax: Axes | None = None,
    **options: Any,
) -> Axes:
    """Draw `result` on `ax`, or on axes of a new figure, and return the axes.

    Given axes get the data and the key of its colors in the current style, `rcParams`. A new
    figure is opened with pyplot and has the style of a paper; ``width="column"`` and
    ``width="page"`` make it 3.3 and 6.9 inches wide.

    A mapping of names to results of one type, such as ``study["fourier"]``, is drawn on a new
    figure, models side by side; then an array of axes is returned, one per result.

    A plug-in adds a figure for its result with `figure`.
    """
    load_figures()
    drawing = plot.dispatch(type(result))
    if drawing is not plot.dispatch(object):
        return drawing(result, ax, **options)
    other = getattr(result, "drawn_in", "")
    drawn = f'. Draw study["{other}"]' if other else ": its numbers are in its table"
    raise InputError(f"{type(result).__name__} has no figure{drawn}.")


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
        def worded(result: Result, ax: Axes, **options: Any) -> Axes:
            """The figure, with the words of the task of the result."""
            axes = draw(result, ax, **options)
            if (words := result.in_words) is not str:
                ax.set(xlabel=words(ax.get_xlabel()), ylabel=words(ax.get_ylabel()))
            return axes

        frame = Frame(**room, draw=worded)

        @wraps(draw)
        def on_axes(result: Result, ax: Axes | None = None, **options: Any) -> Axes:
            if ax is not None:
                worded(result, ax, **options)
                frame.key(ax, [ax])
                return ax
            from matplotlib import pyplot  # its figures are global: here only

            scale = frame.scale(1, options.pop("width", None))
            width = scale * frame.width + frame.key_width
            height = scale * frame.height + frame.key_height
            with paper_style():
                figure, ax = pyplot.subplots(figsize=(width, height))
                worded(result, ax, **options)
                frame.key(figure, [ax])
            return ax

        FRAMES[on_axes] = frame
        return plot.register(on_axes)

    return register


def frame_of(result: Result) -> Frame:
    """The frame of the figure of `result`; a plugin may have registered one without."""
    load_figures()
    return FRAMES.get(plot.dispatch(type(result)), Frame())


def draw_on(result: Result, ax: Axes, **options: Any) -> None:
    """Draw `result` on axes of a figure that has one key for all of them."""
    (frame_of(result).draw or plot)(result, ax, **options)
