"""Live perturbations: noise of one frequency band, and corruptions by severity."""

from typing import Any

import torch

from visprism.app.live.panels import (
    Values,
    indices_of,
    integer_of,
    number_of,
    panel,
    picture,
    predictions,
)
from visprism.app.live.pool import Specimen
from visprism.core.errors import InputError
from visprism.data.corruptions import CORRUPTIONS, corrupt
from visprism.analyses.predictions.bands import band, filtered, with_rms
from visprism.analyses.predictions.frequency_noise import white_noise


@panel
def frequency_noise(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Predictions under noise about one frequency, of a given root mean square."""
    frequency = number_of(values, "frequency", 0.0, 1.0)
    rms = number_of(values, "rms", 0.0, 1.0, 0.1)
    indices = indices_of(values)
    pixels = specimen.pixels(indices).float() / 255
    mask = band((pixels.shape[-2], pixels.shape[-1]), frequency)
    if not mask.any():
        raise InputError(f"images must have frequencies about {frequency:g} π rad/pixel")
    white = torch.cat([white_noise(pixels[:1], 0, range(i, i + 1)) for i in indices])
    noisy = pixels + (with_rms(filtered(white, mask), rms) if rms else 0.0)
    logits = specimen.logits(specimen.normalized(noisy))
    clipped = (noisy.clamp(0, 1) * 255).round().byte()
    return {
        "pictures": [picture(one) for one in clipped],
        "predictions": predictions(specimen, logits),
    }


@panel
def corruption(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Predictions of corrupted images; severity 0 is the clean image."""
    name = values.get("corruption")
    if name not in list(CORRUPTIONS):
        raise InputError(f"corruption must be one of {', '.join(CORRUPTIONS)}, got {name!r}")
    severity = integer_of(values, "severity", 0, 5)
    indices = indices_of(values)
    pixels = specimen.pixels(indices)
    if severity:
        pixels = corrupt(pixels, str(name), severity, numbers=indices)
    logits = specimen.logits(specimen.normalized(pixels))
    return {
        "pictures": [picture(one) for one in pixels],
        "predictions": predictions(specimen, logits),
    }
