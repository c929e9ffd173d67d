"""PNG files hold the pixels that were drawn; sizes of texts are those of a new renderer."""

from io import BytesIO

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from PIL import Image

from visprism import panel
from visprism.drawing.canvas import _text_size
from visprism.drawing.png import png_file
from visprism.drawing.save import render_figure, render_formats
from visprism.drawing.style import paper_style


@pytest.mark.parametrize(("lowest_alpha", "mode"), [(255, "RGB"), (0, "RGBA")])
def test_pillow_reads_the_pixels_and_the_resolution(lowest_alpha, mode):
    pixels = np.random.default_rng(0).integers(256, size=(7, 5, 4), dtype=np.uint8)
    pixels[..., 3] = np.maximum(pixels[..., 3], lowest_alpha)
    image = Image.open(BytesIO(png_file(pixels, 300.0)))
    image.verify()  # checksums
    image = Image.open(BytesIO(png_file(pixels, 300.0)))
    assert image.mode == mode
    np.testing.assert_array_equal(np.asarray(image), pixels[..., : len(mode)])
    assert image.info["dpi"] == pytest.approx((300, 300), rel=1e-4)


def test_a_figure_has_the_pixels_that_matplotlib_writes(result):
    """With formats before it, which measured the same texts at another resolution."""
    file = BytesIO()
    with paper_style():
        panel([result]).savefig(file, format="png")
    theirs = np.asarray(Image.open(file).convert("RGB"))
    ours = Image.open(BytesIO(render_formats(panel([result]), ["pdf", "png"])["png"]))
    np.testing.assert_array_equal(np.asarray(ours), theirs)


def test_a_transparent_figure_stays_so():
    figure = Figure(facecolor="none")
    assert Image.open(BytesIO(render_figure(figure, "png"))).mode == "RGBA"


def test_sizes_of_texts_are_those_of_a_new_renderer():
    with paper_style():
        for dpi in (72.0, 300.0):
            for size in (7, 5.5):
                for text, math in (("Accuracy", False), ("$10^{-2}$", True)):
                    font = FontProperties(size=size)
                    expected = RendererAgg(9, 9, dpi).get_text_width_height_descent(
                        text, font, math
                    )
                    assert _text_size(dpi, text, font, math) == expected
                    font.set_size(20)  # does not reach what is remembered
                    again = FontProperties(size=size)
                    assert _text_size(dpi, text, again, math) == expected


def test_a_figure_keeps_its_canvas():
    figure = pyplot.figure()
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    render_formats(figure, ["png", "svg"])
    assert figure.canvas is canvas
    pyplot.close(figure)
