"""Live panels: measurements of one image or a few that answer while one watches."""

from visprism.app.live import (  # noqa: F401 (each registers its panels)
    ablation,
    attention,
    landscape,
    model,
    perturbations,
    receptive_field,
)
from visprism.app.live.panels import PANELS
from visprism.app.live.pool import Pool
from visprism.app.live.worker import Worker

__all__ = ["PANELS", "Pool", "Worker"]
