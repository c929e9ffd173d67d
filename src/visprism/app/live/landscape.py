"""Live landscape: predictions along a random direction of the weights."""

from typing import Any

from visprism.app.live.panels import (
    Values,
    indices_of,
    integer_of,
    number_of,
    panel,
    predictions,
)
from visprism.app.live.pool import Specimen
from visprism.loss.planes import random_planes
from visprism.loss.points import displaced_weights

_DIRECTIONS = 8  # that a form offers


@panel
def landscape(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Predictions at w + t d, d a filter-normalized Gaussian direction."""
    seed = integer_of(values, "direction", 1, _DIRECTIONS)
    distance = number_of(values, "distance", -1.0, 1.0)
    images = specimen.normalized(specimen.pixels(indices_of(values)))
    model = specimen.anatomy.model
    (line,) = random_planes(model, lines=True, points=3, seed=seed)
    with displaced_weights(model, line.first, {}) as move:
        move(distance, 0.0)
        logits = specimen.logits(images)
    return {"distance": distance, "predictions": predictions(specimen, logits)}
