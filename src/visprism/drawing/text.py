"""Titles wrapped to a width, and the provenance of figures."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from visprism.drawing.style import FONTS

SEPARATOR = " · "


@lru_cache(maxsize=10_000)  # figures of a report repeat their titles
def inches(text: str, size: float) -> float:
    """Width of one line of text in this project's type of `size` points."""
    font = FontProperties(family=FONTS, size=size)
    return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0] / 72


def fill(parts: Sequence[str], joint: str, *, width: float, size: float) -> str:
    """Parts put together into as few lines of `width` inches as hold them.

    A line ends between parts; a part that is wider than a line is cut.
    """
    lines = [""]
    for part in parts:
        longer = f"{lines[-1]}{joint}{part}" if lines[-1] else part
        if inches(longer, size) <= width:
            lines[-1] = longer
        elif len(part) == 1 or inches(part, size) <= width:
            lines.append(part)
        else:
            lines += fill(part, "", width=width, size=size).split("\n")
    return "\n".join(line for line in lines if line)


def title(name: str, *, width: float, size: float) -> str:
    """The name of a model, broken after its punctuation if it is too long for a line."""
    return fill(re.findall(r"[^\W_]*(?:[\W_]+|$)", name), "", width=width, size=size)


def set_titles(axes: Iterable[Axes], names: Sequence[str], *, width: float) -> None:
    """Set the titles of axes, in lines of at most `width` inches."""
    for ax, name in zip(axes, names, strict=True):
        size = ax.title.get_fontproperties().get_size_in_points()
        ax.set_title(title(name, width=width, size=size), parse_math=False)


def caption(sentences: Sequence[str], names: Sequence[str]) -> str:
    """Provenance of several models: shared parts first, then each model's parts.

    Args:
        sentences: facts between dots, as `Provenance.sentence` gives them.
        names: of the models, as their titles show them.
    """
    captions = [sentence.split(SEPARATOR) for sentence in sentences]
    shared = [fact for fact in captions[0] if all(fact in other for other in captions)]
    particular = []
    for name, all_facts in zip(names, captions, strict=True):
        rest = [fact for fact in all_facts if fact not in shared and fact != name]
        named = any(fact.endswith(f":{name}") for fact in rest)  # as in timm:resnet18
        if rest:
            particular.append(("" if named else f"{name}: ") + ", ".join(rest))
    common = [fact for fact in shared if fact not in names]
    return SEPARATOR.join(common + particular)
