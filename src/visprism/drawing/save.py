"""Files: a figure as PNG, SVG and PDF, the same bytes every time."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.drawing.style import paper_style

# Arguments of `Figure.savefig`: no dates and versions; what the formats call their fields.
_OPTIONS: dict[str, dict[str, Any]] = {
    "png": {"metadata": {"Software": None}},
    "svg": {"metadata": {"Date": None, "Creator": None}},
    "pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
}
FORMATS = tuple(_OPTIONS)


def render_figure(figure: Figure, format: str) -> bytes:
    """The figure as the content of a file; the same figure gives the same bytes."""
    return render_formats(figure, [format])[format]


def render_formats(figure: Figure, formats: Iterable[str]) -> dict[str, bytes]:
    """The content of a file in each format."""
    rendered = {}
    with paper_style():
        for format in check_formats(formats):
            file = BytesIO()
            figure.savefig(file, format=format, **_OPTIONS[format])
            rendered[format] = file.getvalue()
    return rendered


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
