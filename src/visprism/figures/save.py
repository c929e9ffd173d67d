"""Files: a figure as PNG, SVG and PDF, the same bytes every time."""

from pathlib import Path

from matplotlib.figure import Figure

from visprism.core.files import atomic_write
from visprism.figures.style import paper_style

# Without dates and versions; what the formats call their fields.
_METADATA = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def save_figure(figure: Figure, stem: Path | str) -> list[Path]:
    """Write ``stem.png``, ``stem.svg`` and ``stem.pdf``, each whole or not at all.

    The same figure gives the same bytes. Returns the paths.
    """
    paths = [Path(f"{stem}{suffix}") for suffix in _METADATA]
    for path in paths:
        with atomic_write(path) as scratch, paper_style():
            figure.savefig(scratch, metadata=_METADATA[path.suffix])
    return paths
