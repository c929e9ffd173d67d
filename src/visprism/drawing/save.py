"""Files: a figure as PNG, SVG and PDF, the same bytes every time."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.drawing.style import paper_style

# Metadata of files: no dates and versions, and what each format calls the provenance.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_PROVENANCE = {"png": "Description", "svg": "Description", "pdf": "Subject"}
FORMATS = tuple(_METADATA)


def render_figure(figure: Figure, format: str) -> bytes:
    """The figure as the content of a file; the same figure gives the same bytes."""
    return render_formats(figure, [format])[format]


def render_formats(figure: Figure, formats: Iterable[str]) -> dict[str, bytes]:
    """The content of a file in each format; the layout is computed once for all."""
    rendered = {}
    formats = check_formats(formats)
    with paper_style():
        settle_layout(figure)
        for format in formats:
            file = BytesIO()
            metadata = dict(_METADATA[format])
            if figure.get_label():
                metadata[_PROVENANCE[format]] = figure.get_label()
            figure.savefig(file, format=format, metadata=metadata)
            rendered[format] = file.getvalue()
    return rendered


def settle_layout(figure: Figure) -> None:
    """Compute the layout once, as each file would compute it twice.

    It is computed at the resolution of the files: at a lower one letters are narrower.
    """
    if (layout := figure.get_layout_engine()) is None:
        return
    dpi = figure.dpi
    figure.set_dpi(mpl.rcParams["savefig.dpi"])
    layout.execute(figure)
    figure.set_dpi(dpi)
    mpl.rcParams["figure.constrained_layout.use"] = False
    figure.set_layout_engine(None)


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
        if format not in _METADATA:
            raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    return formats
