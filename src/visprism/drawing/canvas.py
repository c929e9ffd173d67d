"""The canvas of a figure whose files are made: layout and PNG file share their measurements."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from io import BytesIO

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

from visprism.drawing.png import png_file


@contextmanager
def measuring_canvas(figure: Figure) -> Iterator[None]:
    """Inside, the layout and PNG files of the figure have one renderer.

    Matplotlib asks for the size of each text about ten times, and forgets it with the renderer;
    most labels occur in other figures too. Sizes depend on the settings of `paper_style`.
    """
    canvas = figure.canvas
    _Canvas(figure)  # sets itself
    try:
        yield
    finally:
        figure.set_canvas(canvas)


class _Canvas(FigureCanvasAgg):
    def get_renderer(self) -> RendererAgg:
        renderer = super().get_renderer()
        renderer.get_text_width_height_descent = partial(_text_size, renderer.dpi)  # pyrefly: ignore
        return renderer

    def print_png(self, filename_or_obj: BytesIO, **set_before: object) -> None:
        """Write the file; `Figure.savefig` has set what else it passes, such as colors."""
        self.draw()
        filename_or_obj.write(png_file(np.asarray(self.buffer_rgba()), self.figure.dpi))


def _text_size(
    dpi: float,
    s: str,
    prop: FontProperties,
    ismath: bool | str,
) -> tuple[float, float, float]:
    return _size(dpi, s, prop.copy(), ismath)  # a copy, because properties can be changed


@lru_cache(maxsize=10_000)
def _size(
    dpi: float,
    text: str,
    font: FontProperties,
    is_math: bool | str,
) -> tuple[float, float, float]:
    return _ruler(dpi).get_text_width_height_descent(text, font, is_math)


@lru_cache(maxsize=8)
def _ruler(dpi: float) -> RendererAgg:
    """A renderer of one pixel, which measures text and draws nothing."""
    return RendererAgg(1, 1, dpi)
