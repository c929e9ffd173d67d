"""Laws of figures inside a page: they refer to their page only, and share their letters."""

import io
import re
from base64 import b64decode, b64encode

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from visprism.drawing.save import render_figure
from visprism.drawing.style import model_axes, tip
from visprism.report.inline import Glyphs, inline_svg, small_png


def drawn(gid="curve", *, glyphs=None, blocks=frozenset(), label="x", axes="axes"):
    figure = Figure()
    ax = figure.subplots()
    ax.plot([0, 1], gid=gid)
    ax.set_gid(axes)
    svg = render_figure(figure, "svg").decode()
    return inline_svg(svg, prefix="p", label=label, glyphs=glyphs or Glyphs(), blocks=blocks)


def test_identifiers_have_the_prefix_and_nothing_is_left_of_a_file():
    svg = drawn()
    assert svg.startswith("<svg ")
    assert set(re.findall(r'\bid="(.{2})', svg)) == {"p-"}
    assert not re.search(r"<!|<\?|<metadata|<style|xmlns|http", svg)


def test_every_reference_leads_to_the_figure_or_to_a_shared_letter():
    glyphs = Glyphs()
    svg = drawn(glyphs=glyphs)
    there = set(re.findall(r'\bid="([^"]+)"', svg + glyphs.markup()))
    used = {a or b for a, b in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg)}
    assert used
    assert used <= there


def test_figures_share_their_letters():
    glyphs = Glyphs()
    first = drawn(glyphs=glyphs)
    number = len(glyphs.names)
    assert drawn(glyphs=glyphs) == first
    assert len(glyphs.names) == number > 5


def test_a_style_is_a_class_with_the_same_declarations():
    glyphs = Glyphs()
    assert (
        glyphs.styled('<path d="M0 0" style="fill:#123456"/>') == '<path class="s0" d="M0 0"/>'
    )
    tip = glyphs.styled('<g class="tip" style="fill:#123456">')
    assert tip == '<g class="s0 tip">'
    assert glyphs.styled("<g>") == "<g>"
    assert glyphs.style_sheet() == ".s0{fill:#123456}"
    svg = drawn(glyphs=glyphs)
    assert svg.count("style=") == 1  # the natural size
    used = {name for names in re.findall(r'class="([^"]*)"', svg) for name in names.split()}
    assert used <= {*glyphs.styles.values(), "tip"}


def test_words_that_repeat_are_defined_once():
    glyphs = Glyphs()
    svg = drawn(glyphs=glyphs) + drawn(glyphs=glyphs)
    assert len(set(glyphs.words.values())) == len(glyphs.words) > 5
    for name in glyphs.words.values():
        assert svg.count(f'href="#{name}"') >= 2
        assert glyphs.markup().count(f'id="{name}"') == 1


@pytest.mark.parametrize(("colors", "alpha"), [(2, 255), (256, 255), (200, 0), (2000, 255)])
def test_pictures_have_the_same_pixels_in_fewer_bytes(colors, alpha):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 256, (colors, 4), dtype=np.uint8)
    values[:, 3] = 255
    values[0, 3] = alpha
    pixels = values[rng.integers(colors, size=(64, 64))]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    text = b64encode(buffer.getvalue()).decode()
    small = small_png(text)
    again = np.array(Image.open(io.BytesIO(b64decode(small))).convert("RGBA"))
    np.testing.assert_array_equal(again, pixels)
    assert len(small) < len(text) or (colors > 256 and small == text)


def test_the_label_is_for_screen_readers():
    assert 'role="img" aria-label="say &#34;hi&#34;"' in drawn(label='say "hi"')


def test_a_tip_is_text_and_names_its_block():
    svg = drawn(tip("a <b> · conv · 3"), blocks={"a <b>"})
    assert 'data-tip="a &lt;b&gt; · conv · 3" data-block="a &lt;b&gt;"' in svg
    assert "data-block" not in drawn(tip("a <b> · conv"), blocks={"a"})


def test_axes_name_their_model():
    assert 'data-model="&quot;m&quot;' in drawn(axes=model_axes('"m"'))


@pytest.mark.parametrize("scale", [1, 37.123456])
def test_paths_stay_within_a_hundredth_of_a_point(scale):
    figure = Figure()
    ax = figure.subplots()
    ax.add_patch(Rectangle((0.1, 0.2), 1 / scale, 1 / 3, gid=tip("cell")))
    svg = render_figure(figure, "svg").decode()
    before = re.search(r'id="tip:cell">\s*<path d="([^"]*)"', svg)[1]
    page = inline_svg(svg, prefix="p", label="x", glyphs=Glyphs())
    after = re.search(r'class="[^"]*tip" data-tip="cell" d="([^"]*)"', page)[1]
    numbers = [[float(n) for n in re.findall(r"-?[\d.]+", path)] for path in (before, after)]
    assert numbers[1] == pytest.approx(numbers[0], abs=0.01)
    assert len(after) < len(before)
