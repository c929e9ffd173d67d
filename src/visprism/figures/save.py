"""Files: a figure as PNG, SVG and PDF, the same bytes every time."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure

from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.figures.style import paper_style

# Without dates and versions; what the formats call their fields.
_METADATA = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
FORMATS = tuple(_METADATA)


def render_figure(figure: Figure, format: str) -> bytes:
    """The figure as the content of a file; the same figure gives the same bytes.

    Raises:
        InputError: if the format is not one of `FORMATS`.
    """
    check_formats([format])
    file = BytesIO()
    with paper_style():
        figure.savefig(file, format=format, metadata=_METADATA[format])
    return file.getvalue()


def save_figure(
    figure: Figure, stem: Path | str, formats: Iterable[str] = FORMATS
) -> list[Path]:
    """Write ``stem.png``, ``stem.svg`` and ``stem.pdf``, each whole or not at all.

    Returns the paths.

    Raises:
        InputError: if a format is not one of `FORMATS`.
    """
    formats = check_formats(formats)
    paths = [Path(f"{stem}.{format}") for format in formats]
    for path, format in zip(paths, formats, strict=True):
        with atomic_write(path) as scratch:
            scratch.write_bytes(render_figure(figure, format))
    return paths


def check_formats(formats: Iterable[str]) -> tuple[str, ...]:
    """The formats as a tuple.

    Raises:
        InputError: if one is not among `FORMATS`.
    """
    formats = tuple(formats)
    for format in formats:
        if format not in _METADATA:
            raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    return formats
