"""Inline drawings: a figure as SVG inside a page."""

import re
from io import StringIO

from markupsafe import Markup, escape
from matplotlib.figure import Figure

from visprism.figures import paper_style
from visprism.figures.style import TIP

# What a file of its own needs and a part of a page must not have.
_ALONE = re.compile(
    r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>| xmlns(?::\w+)?=\"[^\"]*\"",
    re.DOTALL,
)


def inline_svg(figure: Figure, *, prefix: str, label: str) -> Markup:
    """The figure as an ``<svg>`` element that refers to nothing outside of itself.

    Artists marked with `visprism.figures.style.tip` show their text when they are pointed at.

    Args:
        figure: what to draw.
        prefix: of the element's identifiers; one per figure of a page.
        label: what a screen reader says.
    """
    file = StringIO()
    with paper_style():
        figure.savefig(
            file, format="svg", metadata={"Date": None, "Creator": None}, transparent=True
        )
    svg = file.getvalue()
    svg = _ALONE.sub("", svg[svg.index("<svg") :])
    svg = re.sub(r'(<image\b[^>]*?) id="[^"]*"', r"\1", svg)  # equal images have equal ones
    svg = re.sub(rf'<g id="{TIP}[^"]*"/>', "", svg)  # an artist that has nothing to show
    svg = re.sub(rf'<g id="{TIP}([^"]*)"', r'<g class="tip"><title>\1</title', svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    width, height = figure.get_size_inches()
    box = f"0 0 {72 * width:g} {72 * height:g}"
    opening = (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="{box}" '
        f'style="--natural: {width:g}in">'
    )
    return Markup(re.sub(r"^<svg[^>]*>", lambda _: opening, svg))
