"""Laws of figures inside a page: they refer to themselves only."""

import re

from internals import inline_svg, model_axes, paper_style, render_figure, tip
from matplotlib.figure import Figure


def drawn(gid="curve", *, blocks=frozenset(), label="x", axes="axes"):
    with paper_style():
        figure = Figure()
        ax = figure.subplots()
    ax.plot([0, 1], gid=gid)
    ax.set_gid(axes)
    svg = render_figure(figure, "svg").decode()
    return inline_svg(svg, prefix="p", label=label, blocks=blocks)


def test_every_reference_leads_to_the_figure_and_nothing_is_left_of_a_file():
    svg = drawn()
    assert svg.startswith("<svg ")
    assert set(re.findall(r'\bid="(.{2})', svg)) == {"p-"}
    assert not re.search(r"<!|<\?|<metadata|<style|xmlns|http", svg)
    used = {a or b for a, b in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg)}
    assert used
    assert used <= set(re.findall(r'\bid="([^"]+)"', svg))


def test_labels_tips_and_names_are_text():
    names = {"label": 'say "hi"', "axes": model_axes('"m"')}
    svg = drawn(tip("a <b> · conv · 3"), blocks={"a <b>"}, **names)
    assert 'role="img" aria-label="say &#34;hi&#34;"' in svg
    assert 'data-tip="a &lt;b&gt; · conv · 3" data-block="a &lt;b&gt;"' in svg
    assert 'data-model="&quot;m&quot;' in svg
    assert "data-block" not in drawn(tip("a <b> · conv"), blocks={"a"})


def test_the_page_sets_the_colors_of_ink_and_background():
    svg = drawn()
    assert "#262626" not in svg.replace("var(--ink, #262626)", "")
    assert "var(--ink, #262626)" in svg
    background = svg[svg.index('id="p-patch_1"') :]
    assert background[background.index("fill: ") :].startswith("fill: none")
