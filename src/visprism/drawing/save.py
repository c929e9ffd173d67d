"""Files: a figure as PNG, SVG and PDF, the same bytes every time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context, rcParams
from matplotlib.figure import Figure

from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.drawing.canvas import measuring_canvas
from visprism.drawing.style import paper_style

# Arguments of `Figure.savefig`: no dates and versions; what the formats call their fields.
_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {},
    "svg": {"metadata": {"Date": None, "Creator": None}},
    "pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
}
FORMATS = tuple(_OPTIONS)


def render_figure(figure: Figure, format: str) -> bytes:
    """The figure as the content of a file; the same figure gives the same bytes."""
    return render_formats(figure, [format])[format]


def render_formats(figure: Figure, formats: Iterable[str]) -> dict[str, bytes]:
    """The content of a file in each format, of one layout."""
    rendered = {}
    with paper_style(), measuring_canvas(figure), _laid_out(figure):
        for format in check_formats(formats):
            file = BytesIO()
            figure.savefig(file, format=format, **_OPTIONS[format])
            rendered[format] = file.getvalue()
    return rendered


@contextmanager
def _laid_out(figure: Figure) -> Iterator[None]:
    """Inside, the figure has its layout and no engine for it.

    With an engine matplotlib draws the figure twice, first to compute the layout. Text has
    another relative width at each resolution, so the layout is computed at that of PNG files.
    """
    engine = figure.get_layout_engine()
    if engine is None:
        yield
        return
    before, resolution = figure.dpi, rcParams["savefig.dpi"]
    figure.dpi = before if resolution == "figure" else resolution
    engine.execute(figure)
    figure.dpi = before
    # `set_layout_engine` would leave one that does nothing.
    figure._layout_engine = None  # pyrefly: ignore
    try:
        with rc_context({"figure.constrained_layout.use": False}):  # `savefig` asks for it
            yield
    finally:
        figure._layout_engine = engine  # pyrefly: ignore


def save_figure(
    figure: Figure, stem: Path | str, formats: Iterable[str] = FORMATS
) -> list[Path]:
    """Write ``stem.png``, ``stem.svg`` and ``stem.pdf``, each whole or not at all.

    Returns the paths.
    """
    paths = []
    for format, content in render_formats(figure, formats).items():
        paths.append(Path(f"{stem}.{format}"))
        with atomic_write(paths[-1]) as scratch:
            scratch.write_bytes(content)
    return paths


def check_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """The formats as a tuple."""
    formats = tuple(formats)
    for format in formats:
        if format not in _OPTIONS:
            raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    return formats
