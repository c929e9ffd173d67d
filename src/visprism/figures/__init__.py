"""Figures: each takes a result and draws it on axes. Nothing here computes.

`plot` draws one result; `panel` sets several models side by side as a figure for a paper;
`save_figure` writes it.
"""

from visprism.figures import (  # noqa: F401 (each registers its figure)
    ablation,
    adversarial,
    anatomy,
    attention,
    cka,
    fourier,
    fourier_sensitivity,
    frequency_noise,
    hessian,
    history,
    landscape,
    receptive_field,
    relative_scores,
    reliability,
    replacement_search,
    rings,
    robustness,
    shape_bias,
    sharpness,
    singular_values,
    spectral_density,
    tally,
    trajectory,
    variance,
    weights,
)
from visprism.figures.overview import overview
from visprism.figures.panel import panel
from visprism.figures.registry import Frame, figure, plot
from visprism.figures.save import save_figure
from visprism.figures.style import paper_style

__all__ = [
    "Frame",
    "figure",
    "overview",
    "panel",
    "paper_style",
    "plot",
    "save_figure",
]
