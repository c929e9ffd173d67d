"""The page: the content of a report as one HTML file that needs nothing else."""

import json
import re
from base64 import b64encode
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from html import unescape
from importlib.resources import files
from itertools import chain
from typing import Any

import jinja2
from markupsafe import Markup, escape

from visprism.drawing.registry import surface_of
from visprism.drawing.style import (
    ATTENTION_SHADE,
    FAINT,
    INK,
    KIND_COLORS,
    MODEL,
    SHARED,
    STRIP,
    SUBSAMPLING_SHADE,
    TIP,
    color_of,
)
from visprism.estimates.findings import CODES
from visprism.estimates.text import DASH
from visprism.report.content import Content, SectionContent, label_of
from visprism.report.drawings import Drawing
from visprism.report.rows import images_of
from visprism.report.tables import Table, cell_text, is_large, table_of, typeset
from visprism.report.terms import TermLinks

# Parts that a stand-alone file needs and an inline figure must not have.
_STANDALONE = re.compile(
    r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>| xmlns(?::\w+)?=\"[^\"]*\"",
    re.DOTALL,
)
# Colors that the page sets, for light and dark; a separate file of the figure keeps its own.
_THEMED = {
    INK: "ink",
    FAINT: "faint",
    STRIP: "strip",
    ATTENTION_SHADE: "shade",
    SUBSAMPLING_SHADE: "shade-blue",
    KIND_COLORS["stem"]: "stem",
    KIND_COLORS["conv"]: "conv",
}
_COLOR = re.compile(rf"(?:{'|'.join(_THEMED)})\b", re.IGNORECASE)
_BACKGROUND = re.compile(
    r'(<g id="patch_\d+">\s*<path d="[^"]*"[^>]*? style="fill: )#ffffff(?="|; stroke: none)'
)
_WHITE = re.compile(r"stroke: #ffffff|fill: #ffffff(?=; stroke)")
_SEPARATOR = " · "  # between the parts of a tip; the first is the block, where there is one


def inline_svg(
    svg: str, *, prefix: str, label: str, blocks: AbstractSet[str] = frozenset()
) -> Markup:
    """A figure as an ``<svg>`` element that refers to itself only.

    Artists marked with `visprism.drawing.style.tip` get the attribute ``data-tip``, and
    ``data-block`` if the text begins with the name of a block; axes of a model get
    ``data-model``.

    Args:
        svg: file content, as matplotlib writes it.
        prefix: of the element's identifiers; one per figure of a page.
        label: what a screen reader says.
        blocks: names of blocks.
    """

    def tip(match: re.Match[str]) -> str:
        """Attributes of an artist with a tip; the text is escaped, as in the file."""
        block = unescape(match[1]).split(_SEPARATOR)[0]
        marked = f' data-block="{escape(block)}"' if block in blocks else ""
        return f'<g class="tip" data-tip="{match[1]}"{marked}'

    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()  # pyrefly: ignore
    svg = _STANDALONE.sub("", svg[svg.index("<svg") :]).replace("xlink:href", "href")
    # An identifier with double quotes stands in single ones.
    svg = re.sub(r" id='([^']*)'", lambda m: f' id="{m[1].replace(chr(34), "&quot;")}"', svg)
    svg = re.sub(r'(<image\b[^>]*?) id="[^"]*"', r"\1", svg)  # equal images have equal ones
    svg = _BACKGROUND.sub(r"\1none", svg)
    svg = _WHITE.sub(lambda m: m[0].replace("#ffffff", "var(--paper, #ffffff)"), svg)
    svg = re.sub(rf'<g id="{TIP}[^"]*"/>', "", svg)  # an artist that has nothing to show
    svg = re.sub(rf'<g id="{TIP}([^"]*)"', tip, svg)
    svg = re.sub(rf'<g id="{MODEL}([^"]*)"', r'<g data-model="\1"', svg)
    svg = re.sub(rf'<g id="{SHARED}[^"]*"', '<g class="shared"', svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = _COLOR.sub(lambda m: f"var(--{_THEMED[m[0].upper()]}, {m[0]})", svg)
    opening = (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" '
        f'style="--natural: {float(width) / 72:.3g}in">'
    )
    return Markup(re.sub(r"^<svg[^>]*>", lambda _: opening, svg))


@dataclass
class PageFigures:
    """The figures of a page, by section."""

    content: Content
    by_anchor: dict[str, list[tuple[Drawing, Markup]]] = field(default_factory=dict)

    def add(self, drawing: Drawing, svg: str) -> None:
        """Add a figure, given the content of its SVG file."""
        names = self.block_names
        markup = inline_svg(svg, prefix=drawing.stem, label=drawing.label, blocks=names)
        self.by_anchor.setdefault(drawing.anchor, []).append((drawing, markup))

    @cached_property
    def block_names(self) -> frozenset[str]:
        """Names of the blocks of all models."""
        return frozenset().union(*self.blocks.values())

    @cached_property
    def blocks(self) -> dict[str, list[str]]:
        """Names of blocks by model, in the order of the first result that has them."""
        by_model: dict[str, list[str]] = {}
        for model, results in self.content.results().items():
            columns = [r.columns()["block"].tolist() for r in results if "block" in r.infos()]
            names = dict.fromkeys(chain.from_iterable(columns))
            by_model[model] = [name for name in names if name]
        return {model: names for model, names in by_model.items() if names}


def page_html(content: Content, figures: PageFigures) -> str:
    """The page; equal contents give the same text.

    It needs no network, and its script has no access to it. It links only to the
    tables next to it, if the content names any.
    """
    links = TermLinks()
    return _template().render(
        content=content,
        linked=links,
        color_of=color_of,
        figures=figures,
        scripts=[Markup(_template_text(name)) for name in _SCRIPTS],
        style=Markup(style_sheet()),
        script_hashes=Markup(script_hashes()),
        images_of=images_of,
        sections={part.anchor: _section_context(part) for part in content.parts},
        all_codes=CODES,
        codes={code: (CODES[code], places) for code, places in content.codes.items()},
        dash=DASH,
    )


def style_sheet() -> str:
    """The style sheet of a page."""
    return _template_text("style.css")


_SCRIPTS = ("script.js", "scatter.js")  # of every page, and of many models


def script_hashes() -> str:
    """SHA-256 of the scripts of a page, as a Content-Security-Policy names them."""
    digests = (sha256(_template_text(name).encode()).digest() for name in _SCRIPTS)
    return " ".join(f"'sha256-{b64encode(digest).decode()}'" for digest in digests)


def _section_context(part: SectionContent) -> dict[str, Any]:
    labeled = [
        (label_of(models) + (f", {number}" if number > 1 else ""), result)
        for models, results in part.results.items()
        for number, result in enumerate(results, start=1)
    ]
    tables: dict[str, Table] = {}
    if part.section.table:
        tables = {label: table_of(result) for label, result in labeled}
    surfaces = {label: surface_of(result) for label, result in labeled}
    codes = {f.code for fs in part.findings.values() for f in fs if f.code}
    captions = {label: first_clause(fs[0].text) for label, fs in part.findings.items()}
    return {
        "codes": sorted(codes),
        "captions": captions,
        "shortened": any(
            len(fs) > 1 or fs[0].text != captions[label] for label, fs in part.findings.items()
        ),
        "tables": tables,
        "protocols": {label: result.provenance.sentence() for label, result in labeled},
        "surfaces": {name: json.dumps(s) for name, s in surfaces.items() if s is not None},
    }


def first_clause(text: str) -> str:
    """What stands before the first semicolon outside brackets: the result, without remarks.

    Example:
        >>> first_clause("CKA 0.9 (a; b), largest 1; over 8 batches")
        'CKA 0.9 (a; b), largest 1'
    """
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in "([") - (sign in ")]")
        if sign == ";" and not depth:
            return text[:place]
    return text


def _template_text(name: str) -> str:
    return (files("visprism.report") / "templates" / name).read_text(encoding="utf-8")


def templates(package: str) -> jinja2.Environment:
    """The templates of a package; names and texts are escaped."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _template() -> jinja2.Template:
    environment = templates("visprism.report")
    environment.filters["typeset"] = typeset
    environment.filters["capital"] = _capitalized
    environment.filters["cell"] = cell_text
    environment.tests["large"] = is_large
    environment.filters["option"] = _option_text
    environment.filters["breakable"] = lambda name: Markup(  # it may wrap after punctuation
        re.sub(r"([._/:@?&])(?=\w)", r"\1<wbr>", str(escape(name)))
    )
    return environment.get_template("page.html")


def _option_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_option_text(one) for one in value) or "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "none" if value is None else str(value)


def _capitalized(text: str) -> str:
    """The text with a capital first letter, unless it begins with a name such as ``layer3.2``.

    Example:
        >>> [_capitalized(t) for t in ("debiased CKA", "layer3.2: NC1", "k-NN", "mlp blocks")]
        ['Debiased CKA', 'layer3.2: NC1', 'k-NN', 'MLP blocks']
    """
    first = text.split(maxsplit=1)[0] if text else ""
    if first == "mlp":
        return f"MLP{text[3:]}"
    is_name = first != first.lower() or any(c.isdigit() or c in "._" for c in first)
    return text if is_name else text[:1].upper() + text[1:]
