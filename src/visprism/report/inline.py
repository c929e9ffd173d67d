"""Inline figures: compact SVG inside a page, with data for its script."""

import io
import re
from base64 import b64decode, b64encode
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from html import escape as escape_html
from html import unescape

import numpy as np
from markupsafe import Markup, escape
from PIL import Image

from visprism.drawing.style import MODEL, TIP

# Parts that a stand-alone file needs and an inline figure must not have.
_STANDALONE = re.compile(
    r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>| xmlns(?::\w+)?=\"[^\"]*\"",
    re.DOTALL,
)
_GLYPH = re.compile(r'<path id="([^"]+)" d="([^"]*)"(?: transform="([^"]*)")?/>')
_PATH = re.compile(r' d="([^"]*)"')
_PLACE = re.compile(r' [xy]="[^"]*"|translate\([^)]*\)')
_STYLE = re.compile(r' style="([^"]*)"')
_STYLED_TAG = re.compile(r'<\w+[^<>]* style="[^<>]*>')
_BARE_GROUP = re.compile(r"<g>(<(?:path|use)\b[^>]*/>)</g>")
_DIGITS = re.compile(r"(?<=\.\d\d)\d+")  # beyond hundredths
_BLANKS = re.compile(r"\s+(?=[A-Za-z])|(?<=[A-Za-z])\s+")  # beside a command of a path
_WORD = re.compile(r'(?:<use href="#g\d+"[^>]*/>){2,}')
_TENTHS = re.compile(r"(?<=\.\d)\d+")  # beyond tenths
_PNG = re.compile(r'(?<=data:image/png;base64,)\s*([^"]+)')
_COLORS = 256  # of a picture with a palette
_SEPARATOR = " · "  # between the parts of a tip; the first is the block, where there is one


@dataclass
class Glyphs:
    """Outlines of letters, words and styles, which the figures of a page share."""

    names: dict[str, str] = field(default_factory=dict)  # definition -> name in the page
    words: dict[str, str] = field(default_factory=dict)  # letters with their places -> name
    styles: dict[str, str] = field(default_factory=dict)  # declarations -> class

    def name_of(self, definition: str) -> str:
        """The name of a definition in the page."""
        return self.names.setdefault(definition, f"g{len(self.names)}")

    def word(self, letters: str) -> str:
        """A reference to a word, given its letters; labels repeat in the figures of a page."""
        letters = _TENTHS.sub("", letters)  # of a hundredth of the size of the letters
        name = self.words.setdefault(letters, f"w{len(self.words)}")
        return f'<use href="#{name}"/>'

    def styled(self, tag: str) -> str:
        """An opening tag whose style is a class of the page."""
        match = _STYLE.search(tag)
        if match is None:
            return tag
        name = self.styles.setdefault(match[1], f"s{len(self.styles)}")
        tag = tag.replace(match[0], "", 1)
        if ' class="' in tag:
            return tag.replace(' class="', f' class="{name} ', 1)
        return re.sub(r"^<\w+", rf'\g<0> class="{name}"', tag)

    def style_sheet(self) -> Markup:
        """The rules of the classes."""
        rules = (f".{name}{{{style}}}" for style, name in self.styles.items())
        return Markup("\n".join(rules))

    def markup(self) -> Markup:
        """An invisible element with all definitions."""
        paths = "".join(
            definition.replace("<path", f'<path id="{name}"', 1)
            for definition, name in self.names.items()
        )
        words = "".join(f'<g id="{name}">{word}</g>' for word, name in self.words.items())
        return Markup(
            '<svg id="glyphs" width="0" height="0" aria-hidden="true">'
            f"<defs>{paths}{words}</defs></svg>"
        )


def inline_svg(
    svg: str, *, prefix: str, label: str, glyphs: Glyphs, blocks: AbstractSet[str] = frozenset()
) -> Markup:
    """A figure as an ``<svg>`` element that refers to its page only.

    Artists marked with `visprism.drawing.style.tip` get the attribute ``data-tip``, and
    ``data-block`` if the text begins with the name of a block; axes of a model get
    ``data-model``.

    Args:
        svg: file content, as matplotlib writes it.
        prefix: of the element's identifiers; one per figure of a page.
        label: what a screen reader says.
        glyphs: outlines of letters of the page; those of this figure are added.
        blocks: names of blocks.
    """
    svg = svg[svg.index("<svg") :]
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg).groups()  # pyrefly: ignore
    svg = _STANDALONE.sub("", svg)
    # An identifier with double quotes stands in single ones.
    svg = re.sub(r" id='([^']*)'", lambda m: f' id="{m[1].replace(chr(34), "&quot;")}"', svg)
    svg = _shared_glyphs(svg, glyphs)
    svg = re.sub(r'(<image\b[^>]*?) id="[^"]*"', r"\1", svg)  # equal images have equal ones
    svg = re.sub(rf'<g id="{TIP}[^"]*"/>', "", svg)  # an artist that has nothing to show
    svg = re.sub(rf'<g id="{TIP}([^"]*)"', lambda m: f"<g {_tip(m[1], blocks)}", svg)
    svg = re.sub(rf'<g id="{MODEL}([^"]*)"', r'<g data-model="\1"', svg)
    svg = _single_paths(svg)
    svg = _without_unused_identifiers(svg)
    svg = re.sub(r'(\bid="|href="#(?!g\d)|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = _WORD.sub(lambda m: glyphs.word(m[0]), _compact(svg))
    svg = _STYLED_TAG.sub(lambda m: glyphs.styled(m[0]), svg)
    svg = _PNG.sub(lambda m: small_png(m[1]), svg)
    opening = (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width} {height}" '
        f'style="--natural: {float(width) / 72:.3g}in">'
    )
    return Markup(re.sub(r"^<svg[^>]*>", lambda _: opening, svg))


def _tip(text: str, blocks: AbstractSet[str]) -> str:
    """Attributes of an artist with a tip; the text is escaped, as in the file."""
    block = unescape(text).split(_SEPARATOR)[0]
    marked = f' data-block="{escape_html(block)}"' if block in blocks else ""
    return f'class="tip" data-tip="{text}"{marked}'


def _shared_glyphs(svg: str, glyphs: Glyphs) -> str:
    """The figure with letters that refer to the definitions of the page."""
    used = set(re.findall(r'<use xlink:href="#([^"]+)"', svg))
    names: dict[str, str] = {}

    def move(match: re.Match[str]) -> str:
        name, path, transform = match.groups()
        if name not in used or "-" not in name:  # letters are named as font-code
            return match[0]
        placed = f' transform="{transform}"' if transform else ""
        names[name] = glyphs.name_of(f'<path d="{_short_path(path)}"{placed}/>')
        return ""

    svg = _GLYPH.sub(move, svg)
    return re.sub(
        r'<use xlink:href="#([^"]+)"',
        lambda m: f'<use href="#{names[m[1]]}"' if m[1] in names else f'<use href="#{m[1]}"',
        svg,
    )


def _single_paths(svg: str) -> str:
    """Tips of one path each without the group around it; a matrix has thousands of them."""
    return re.sub(
        r'<g (class="tip"[^>]*)>\s*<path ([^>]*)/>\s*</g>',
        r"<path \1 \2/>",
        svg,
    )


def _compact(svg: str) -> str:
    """The same drawing in fewer characters: to a hundredth of a point, without bare groups."""
    svg = _PATH.sub(lambda m: f' d="{_short_path(m[1])}"', svg)
    svg = _PLACE.sub(lambda m: _DIGITS.sub("", m[0]), svg)
    svg = _STYLE.sub(lambda m: m[0].replace("; ", ";").replace(": ", ":"), svg)
    svg = re.sub(r">\s+<", "><", svg).replace("<defs></defs>", "")
    count = 1
    while count:
        svg, count = _BARE_GROUP.subn(r"\1", svg)
    return svg


def small_png(data: str) -> str:
    """The same pixels with a palette, where these are at most 256 colors and it is smaller."""
    content = b64decode(data)
    image = Image.open(io.BytesIO(content)).convert("RGBA")
    if image.getcolors(_COLORS):  # None: there are more
        pixels = np.array(image).view("<u4")[..., 0]
        colors = np.unique(pixels)
        palette = colors.view(np.uint8).reshape(-1, 4)
        picture = Image.fromarray(np.searchsorted(colors, pixels).astype(np.uint8), "P")
        picture.putpalette(palette[:, :3].tobytes())
        opaque = bool((palette[:, 3] == 255).all())
        alpha = {} if opaque else {"transparency": palette[:, 3].tobytes()}
        buffer = io.BytesIO()
        picture.save(buffer, "PNG", optimize=True, **alpha)
        content = min(content, buffer.getvalue(), key=len)
    return b64encode(content).decode()


def _without_unused_identifiers(svg: str) -> str:
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg))
    names = {name for pair in used for name in pair if name}
    return re.sub(r' id="([^"]*)"', lambda m: m[0] if m[1] in names else "", svg)


def _short_path(path: str) -> str:
    """The path to a hundredth of a point, without needless blanks."""
    return _BLANKS.sub("", _DIGITS.sub("", path)).strip()
