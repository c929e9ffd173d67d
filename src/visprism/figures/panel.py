"""Panels: one or several models side by side, with what is needed to read them."""

from collections.abc import Sequence
from math import ceil
from textwrap import fill
from typing import Any

from matplotlib.figure import Figure

from visprism.errors import InputError
from visprism.figures.frame import frame_of, plot
from visprism.figures.style import FAINT, paper_style
from visprism.result import Result

_SMALL = 5.5  # points
_LETTERS_PER_INCH = 72 / (0.42 * _SMALL)  # a letter of STIX is 0.42 em wide on average
_TITLE_PER_INCH = 72 / (0.5 * 9)


def panel(
    results: Sequence[Result],
    *,
    names: Sequence[str] | None = None,
    **options: Any,  # noqa: ANN401 (of the figure)
) -> Figure:
    """A figure of results of one type, one model each, that needs no editing.

    The models share their vertical axis and one key; each has its name for a title, and the
    protocol stands below in small type. No global figure is opened.

    Args:
        results: one per model.
        names: titles; by default the models' names in the provenance.
        **options: of the figure, as `plot` takes them.

    Raises:
        InputError: if there is no result, types differ, or names and results differ in number.
    """
    types = sorted({type(result).__name__ for result in results})
    if len(types) != 1:
        raise InputError(
            f"a panel shows results of one type, got {', '.join(types) or 'none'}; "
            "make one panel for each type"
        )
    names = [result.provenance.model for result in results] if names is None else names
    if len(names) != len(results):
        raise InputError(
            f"got {len(names)} names for {len(results)} results; give one for each result"
        )
    frame = frame_of(results[0])
    columns = min(frame.across, len(results))
    rows = ceil(len(results) / columns)
    width = frame.width * columns + frame.key_width
    caption = protocol(results, names, letters=int(width * _LETTERS_PER_INCH))
    lines = caption.count("\n") + 1
    height = rows * (frame.height + 0.2) + frame.key_height + lines * _SMALL * 1.3 / 72

    with paper_style():
        figure = Figure(figsize=(width, height))
        figure.get_layout_engine().set(wspace=0.04, hspace=0.06)
        axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for unused in axes[len(results) :]:
            unused.remove()
        axes = axes[: len(results)]
        for ax, result, name in zip(axes, results, names, strict=True):
            plot(result, ax, **options)
            title = fill(name, int(frame.width * _TITLE_PER_INCH))
            ax.set_title(title, parse_math=False)
            ax.label_outer()
        frame.key(axes)
        figure.supxlabel(
            caption, x=0.01, ha="left", fontsize=_SMALL, color=FAINT, parse_math=False
        )
        figure.draw_without_rendering()  # makes the tick labels, in this style
    return figure


def protocol(results: Sequence[Result], names: Sequence[str], *, letters: int) -> str:
    """How it was measured: first what all models share, then a line for each that differs."""
    sentences = [result.provenance.sentence().split(" · ") for result in results]
    facts = [
        [fact for fact in sentence if fact != name]  # the title says it
        for sentence, name in zip(sentences, names, strict=True)
    ]
    shared = [fact for fact in facts[0] if all(fact in other for other in facts)]
    own = [
        f"{name}: {', '.join(rest)}"
        for fact, name in zip(facts, names, strict=True)
        if (rest := [f for f in fact if f not in shared])
    ]
    # A line breaks between facts, not within one.
    lines = [
        " · ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
        for parts in (shared, own)
    ]
    return "\n".join(fill(line, letters) for line in lines if line)
