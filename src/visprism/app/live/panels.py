"""Panels by name: each answers a request about one model and a few images."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import cross_entropy

from visprism.analyses.attention.attention_maps import (
    Query,
    attention_maps,
    class_tokens,
    rollouts,
)
from visprism.analyses.features.fourier import Fourier, HighFrequency, Spectrum
from visprism.analyses.features.receptive_field import receptive_map
from visprism.analyses.predictions.bands import band, filtered, with_rms
from visprism.analyses.predictions.frequency_noise import white_noise
from visprism.anatomy.blocks.attention import attentions
from visprism.anatomy.run.ablations import combine_ablations
from visprism.anatomy.trace.token_grids import OFF_GRID
from visprism.app.live.pool import Pool, Specimen
from visprism.core.errors import InputError
from visprism.core.options import Option, OptionInfo
from visprism.images.corruptions.corrupt import CORRUPTIONS, corrupt
from visprism.kit.needs import Needs
from visprism.loss.directions import gaussian
from visprism.loss.points import displaced_weights
from visprism.one_image.inside import look_inside
from visprism.one_image.look import Look, title_of
from visprism.passes.features import observations

Values = Mapping[str, Any]
Panel = Callable[[Specimen, Values], dict[str, Any]]
PANELS: dict[str, Panel] = {}

_TOP = 5
_MOST_SUBJECTS = 2  # that the page of live panels loads


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


def number_of(values: Values, name: str, low: float, high: float, default: Any = None) -> float:
    """A number of a request within limits."""
    return _checked(values.get(name, default), name, float, low, high)


def integer_of(values: Values, name: str, low: int, high: int) -> int:
    """An integer of a request within limits."""
    return _checked(values.get(name), name, int, low, high)


def _checked(value: Any, name: str, kind: type, low: Any, high: Any) -> Any:
    Option(name, kind, None, OptionInfo(name, minimum=low, maximum=high)).check(value)
    return kind(value)


def predictions(
    specimen: Specimen, logits: Tensor, indices: Sequence[int]
) -> list[dict[str, Any]]:
    """The most probable classes of each image, and the true one if it is known."""
    probabilities = logits.double().softmax(-1)
    names = specimen.class_names
    targets = targets_of(specimen)
    answers = []
    for row, probability, index in zip(logits, probabilities, indices, strict=True):

        def described(k: int, row: Tensor = row, probability: Tensor = probability) -> dict:
            return {
                "class": k,
                "name": names[k] if names else f"class {k}",
                "probability": round(float(probability[k]), 5),
                "logit": round(float(row[k]), 3),
            }

        order = probability.argsort(descending=True)[:_TOP].tolist()
        true = None if targets is None else described(int(targets[index]))
        answers.append({"top": [described(k) for k in order], "true": true})
    return answers


def targets_of(specimen: Specimen) -> np.ndarray | None:
    """The class of each image; None if it is unknown or the model has other classes."""
    subject = specimen.subject
    return None if subject.missing(Needs.TARGETS) else subject.images.targets


def rounded(values: np.ndarray | Sequence[float]) -> list[float | None]:
    """Numbers to four significant digits; None where there is no number."""
    flat = np.asarray(values, dtype=float).ravel()
    return [float(f"{v:.4g}") if np.isfinite(v) else None for v in flat]


def picture(pixels: Tensor) -> str:
    """An image of eight bits (3, H, W) as an address that a page can show."""
    buffer = io.BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


@panel
def model(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Blocks, attentions, size and number of images."""
    anatomy = specimen.anatomy
    subject = specimen.subject
    return {
        "name": subject.name,
        "trained": subject.trained,
        "parameters": sum(p.numel() for p in anatomy.model.parameters()),
        "size": list(specimen.preprocessing.size),
        "classes": subject.num_classes,
        "images": len(subject.images),
        "labels": None if subject.images.targets is None else _labels(specimen),
        "without_targets": subject.missing(Needs.TARGETS),
        "class_token": specimen.has_attention
        and bool(class_tokens(anatomy, specimen.normalized(specimen.pixels([0]))).any()),
        "blocks": [
            {
                "name": block.name,
                "kind": block.kind,
                "stage": block.stage,
                "depth": round(block.depth, 4),
                "grid": None if block.layout is None else list(block.shape[-2:]),
                "ablatable": block.name in specimen.ablations,
            }
            for block in anatomy
        ],
        "attentions": [
            {
                "name": a.name,
                "heads": a.geometry.heads,
                "grid": list(a.geometry.keys.grid),
                "others": bool((a.geometry.keys.index == OFF_GRID).any()),
            }
            for a in (attentions(anatomy) if specimen.has_attention else ())
        ],
    }


def _labels(specimen: Specimen) -> list[str]:
    names = specimen.subject.images.class_names
    targets = specimen.subject.images.targets
    assert targets is not None
    return [names[k] if k < len(names) else f"class {k}" for k in targets.tolist()]


@panel
def images(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Images as the model sees them, with its predictions."""
    indices = indices_of(values)
    pixels = specimen.pixels(indices)
    logits = specimen.logits(specimen.normalized(pixels))
    return {
        "pictures": [picture(one) for one in pixels],
        "predictions": predictions(specimen, logits, indices),
    }


def looked_at(pool: Pool, subjects: Sequence[Values], index: Any) -> str:
    """The page of `visprism look` on an image of the first model's data."""
    if not 1 <= len(subjects) <= _MOST_SUBJECTS:
        raise InputError(f"subjects must be 1 to {_MOST_SUBJECTS}, got {len(subjects)}")
    models = {}
    for values in subjects:
        specimen = pool.specimen(values)
        specimen.pixels(indices_of({"images": [index]}))  # checks the index
        name = specimen.subject.name
        name = f"{name} (2)" if name in models else name
        models[name] = look_inside(specimen.subject, index)
    return Look(title_of(list(models)), [models], {}).html()


@panel
def attention(specimen: Specimen, values: Values) -> dict[str, Any]:
    """The attention weights of one query, by attention layer and head."""
    height, width = specimen.preprocessing.size
    query: Query
    if values.get("query") == "class":
        query = "class"
    else:
        query = (
            integer_of(values, "row", 0, height - 1),
            integer_of(values, "column", 0, width - 1),
        )
    image = specimen.normalized(specimen.pixels(indices_of(values)[:1]))
    maps = attention_maps(specimen.anatomy, image, query=query)
    layers = []
    for name in dict.fromkeys(maps.block.tolist()):
        selected = maps.select(maps.block == name)
        heads, rows, columns = (
            int(column.max()) + extra
            for column, extra in ((selected.head, 0), (selected.row, 1), (selected.column, 1))
        )
        weights = selected.weight.reshape(heads, rows, columns)
        layers.append(
            {
                "name": name,
                "rows": rows,
                "columns": columns,
                "heads": [rounded(head) for head in weights],
                "on_grid": rounded(weights.sum((1, 2))),
            }
        )
    return {"layers": layers}


@panel
def rollout(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Attention rollout and gradient rollout of one image."""
    image = specimen.normalized(specimen.pixels(indices_of(values)[:1]))
    results, reason = rollouts(specimen.anatomy, image)
    if not results:
        raise InputError(reason)
    return {
        "maps": [
            {
                "method": result.method,
                "rows": int(result.row.max()) + 1,
                "columns": int(result.column.max()) + 1,
                "weights": rounded(np.asarray(result.weight)),
            }
            for result in results
        ]
    }


@panel
def ablation(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Predictions without the named blocks, and the spectrum of each block's feature map."""
    names = values.get("blocks", [])
    if not isinstance(names, list) or len(set(map(str, names))) != len(names):
        raise InputError(f"blocks must be a list of different names, got {names!r}")
    for name in names:
        if name not in specimen.ablations:
            raise InputError(
                f"blocks must be of {', '.join(specimen.ablations)}, which keep the shape of "
                f"their feature map, got {name!r}"
            )
    chosen = [specimen.ablations[name] for name in names]
    surgery = combine_ablations(chosen).surgery() if chosen else nullcontext()
    indices = indices_of(values)
    images = specimen.normalized(specimen.pixels(indices))
    logits: list[torch.Tensor] = []

    def keep(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
        logits.append(output.cpu())

    with surgery:
        handle = specimen.anatomy.model.register_forward_hook(keep)
        try:
            ((spectrum, high, *_),) = observations(specimen.anatomy, [images], Fourier())
        finally:
            handle.remove()
    assert isinstance(spectrum, Spectrum)
    assert isinstance(high, HighFrequency)
    last = spectrum.block.tolist()[-1]
    profile = spectrum.select(spectrum.block == last)
    return {
        "predictions": predictions(specimen, logits[0], indices),
        "spectrum": {
            "block": last,
            "frequency": rounded(profile.frequency),
            "relative": rounded(profile.relative),
        },
        "high": {
            "blocks": high.block.tolist(),
            "depth": rounded(high.depth),
            "relative": rounded(high.relative),
        },
    }


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
        "predictions": predictions(specimen, logits, indices),
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
        "predictions": predictions(specimen, logits, indices),
    }


@panel
def receptive_field(specimen: Specimen, values: Values) -> dict[str, Any]:
    """The weight of each pixel for a position, relative to the largest."""
    blocks = {b.name: b for b in specimen.anatomy if b.layout is not None}
    name = values.get("block")
    if name not in blocks:
        raise InputError(f"block must be one of {', '.join(blocks)}, got {name!r}")
    block = blocks[name]
    rows, columns = block.shape[-2:]
    row = min(int(number_of(values, "y", 0.0, 1.0) * rows), rows - 1)
    column = min(int(number_of(values, "x", 0.0, 1.0) * columns), columns - 1)
    images = specimen.normalized(specimen.pixels(indices_of(values)[:1]))
    weights = receptive_map(specimen.anatomy, images, block, (row, column))[0]
    largest = float(weights.max())
    relative = weights / largest if largest > 0 else weights
    return {
        "block": name,
        "position": [row, column],
        "grid": [rows, columns],
        "rows": weights.shape[0],
        "columns": weights.shape[1],
        "weights": rounded(relative.numpy()),
    }


_DIRECTIONS = 8  # that a form offers


@panel
def landscape(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Predictions at w + t d, d a filter-normalized Gaussian direction."""
    distance = number_of(values, "distance", -1.0, 1.0)
    indices = indices_of(values)
    images = specimen.normalized(specimen.pixels(indices))
    with _line(specimen, values) as move:
        move(distance, 0.0)
        logits = specimen.logits(images)
    return {"distance": distance, "predictions": predictions(specimen, logits, indices)}


@panel
def loss_curve(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Mean NLL in nats of the first images at w + t d, for t from -1 to 1."""
    targets = targets_of(specimen)
    if targets is None:
        raise InputError(
            f"images must have classes of the model for a loss: "
            f"{specimen.subject.missing(Needs.TARGETS)}"
        )
    number, points = (16, 21) if specimen.is_small else (4, 11)
    number = min(number, len(targets))
    pixels = [specimen.pixels([index]) for index in range(number)]
    images = specimen.normalized(torch.cat(pixels))
    distances = np.linspace(-1, 1, points)
    classes = torch.from_numpy(targets[:number])
    losses = []
    with _line(specimen, values) as move:
        for distance in distances:
            move(float(distance), 0.0)
            logits = specimen.logits(images)
            losses.append(float(cross_entropy(logits, classes)))
    return {"distances": rounded(distances), "losses": rounded(losses), "images": number}


def _line(specimen: Specimen, values: Values) -> AbstractContextManager:
    """Moves the model along the direction of a request."""
    model = specimen.anatomy.model
    seed = integer_of(values, "direction", 1, _DIRECTIONS)
    return displaced_weights(model, gaussian(model, 0, 1, seed=seed), {})
