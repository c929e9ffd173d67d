"""Figures: each takes a result and draws it on axes. Nothing here computes.

`plot` draws one result; `panel` sets several models side by side as a figure for a paper;
`save_figure` writes it.
"""

from visprism.figures import (  # noqa: F401 (each registers its figure)
    ablation,
    adversarial,
    anatomy,
    attention,
    attention_maps,
    cka,
    claims,
    differing_pictures,
    distribution_shift,
    fourier,
    frequency_noise,
    hessian,
    history,
    kind_summary,
    landscape,
    patch_pca,
    receptive_field,
    relative_scores,
    reliability,
    replacement_search,
    robustness,
    shape_bias,
    shapes,
    singular_values,
    training_curvature,
    trajectory,
    variance,
    weights,
)
from visprism.figures.overview import overview
from visprism.figures.panel import panel
from visprism.figures.registry import Frame, figure, plot
from visprism.figures.save import (
    FORMATS,
    check_formats,
    render_figure,
    render_formats,
    save_figure,
)
from visprism.figures.style import paper_style

__all__ = [
    "FORMATS",
    "Frame",
    "check_formats",
    "figure",
    "overview",
    "panel",
    "paper_style",
    "plot",
    "render_figure",
    "render_formats",
    "save_figure",
]
