"""Panels by name: each answers a request about one model and a few images."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from visprism.app.live.pool import Specimen
from visprism.core.errors import InputError
from visprism.core.options import Option, OptionInfo

Values = Mapping[str, Any]
Panel = Callable[[Specimen, Values], dict[str, Any]]
PANELS: dict[str, Panel] = {}

_TOP = 5


def panel(function: Panel) -> Panel:
    """Register a panel under the name of its function."""
    PANELS[function.__name__] = function
    return function


def indices_of(values: Values) -> list[int]:
    """The images of a request."""
    images = values.get("images", [0])
    if not isinstance(images, list) or not all(type(i) is int for i in images):
        raise InputError(f"images must be a list of integers, got {images!r}")
    return images


def number_of(
    values: Values, name: str, low: float, high: float, default: float | None = None
) -> float:
    """A number of a request within limits."""
    value = values.get(name, default)
    Option(name, float, default, OptionInfo(name, minimum=low, maximum=high)).check(value)
    return float(value)


def integer_of(values: Values, name: str, low: int, high: int) -> int:
    """An integer of a request within limits."""
    value = values.get(name)
    Option(name, int, None, OptionInfo(name, minimum=low, maximum=high)).check(value)
    return int(value)  # pyrefly: ignore (it is checked)


def predictions(specimen: Specimen, logits: Tensor) -> list[dict[str, Any]]:
    """Of each image the most probable classes, and all logits where there are few classes."""
    probabilities = logits.double().softmax(-1)
    names = specimen.class_names
    answers = []
    for row, probability in zip(logits, probabilities, strict=True):
        order = probability.argsort(descending=True)[:_TOP].tolist()
        answers.append(
            {
                "top": [
                    {
                        "class": k,
                        "name": names[k] if names else f"class {k}",
                        "probability": round(float(probability[k]), 5),
                        "logit": round(float(row[k]), 3),
                    }
                    for k in order
                ]
            }
        )
    return answers


def rounded(values: np.ndarray | Sequence[float]) -> list[float | None]:
    """Numbers to four significant digits; None where there is no number."""
    flat = np.asarray(values, dtype=float).ravel()
    return [float(f"{v:.4g}") if np.isfinite(v) else None for v in flat]


def picture(pixels: Tensor) -> str:
    """An image of eight bits (3, H, W) as an address that a page can show."""
    buffer = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
