"""Attribution: gradient maps of any block, and how faithful they are to the model.

Source: Selvaraju et al. (2017), Grad-CAM, eq. 1 and 2; Petsiuk et al. (2018), RISE: randomized
input sampling for explanation of black-box models, sec. 4.3, for deletion and insertion.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from visprism.anatomy import Anatomy, Block, forward
from visprism.anatomy.run.interception import intercept
from visprism.anatomy.trace.forward import as_written
from visprism.core.errors import InputError
from visprism.core.processes import gather
from visprism.core.run import DEFAULT_RUN, Run, stream
from visprism.core.statistics import mean_interval
from visprism.passes.batches import Batch, blocks_on_grid, image_shape, images_of, positioned
from visprism.passes.blocks import block_columns
from visprism.results.attribution import (
    GRAD_CAM,
    GRADIENT_ACTIVATION,
    METHODS,
    RANDOM,
    AttributionMaps,
    AttributionScores,
)

_BLUR = 1 / 8  # standard deviation of the blur, of the shorter side
_PICTURES = 4  # images whose maps are returned
Map = Float[Tensor, "b y x"]
Maps = dict[tuple[str, Block], Map]  # by method and block
Scores = dict[tuple[str, str, Block], Float[np.ndarray, " n"]]  # by score, method and block


def attribution(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    *,
    blocks: int = 4,
    steps: int = 10,
    run: Run = DEFAULT_RUN,
) -> tuple[AttributionScores, AttributionMaps]:
    """Gradient maps of blocks, with insertion and deletion scores and a random baseline.

    With A the feature map of a block, y the largest logit and G = dy/dA, the maps are

        gradient x activation  sum_c G_c A_c
        Grad-CAM               max(0, sum_c (mean over positions of G_c) A_c)

    A map is enlarged to the image bilinearly. Pixels are inserted into a blurred image, or
    replaced by the mean color of the normalization (deletion), those of the highest values
    first, in `steps` equal parts; the score is the area under the probability of the predicted
    class against the fraction of pixels (trapezoids). Positions of equal value are in random
    order. The baseline is a random map on the grid of each block.

    Costs 3 forward passes, a forward and backward pass for each block, and 2 (steps - 1)
    forward passes for each map.

    Args:
        anatomy: of a model in evaluation mode that returns logits.
        batches: each is images, or (images, targets).
        blocks: number of blocks, spread evenly over the depth; the last is among them.
        steps: parts in which pixels are inserted and deleted.
        run: device, precision, seed of random maps, progress and provenance.

    Returns:
        Scores, and the Grad-CAM maps of the first images.
    """
    chosen = _spread(blocks_on_grid(anatomy), blocks)
    parts: list[tuple[int, Scores, list[dict[Block, np.ndarray]]]] = []
    largest = 0
    with run.compute.borrow(anatomy.model), as_written():
        shared = run.track_share(batches, "attribution")
        for start, batch in positioned(_with_numbers(shared, anatomy, run)):
            images = batch[0]  # pyrefly: ignore
            assert isinstance(images, Tensor)  # of `_with_numbers`
            with run.compute.autocast():
                target, maps = gradient_maps(anatomy, chosen, images)
                indices = range(start, start + len(images))
                random = {(RANDOM, b): _random_map(b, indices, run.seed) for b in chosen}
                order = maps | {key: m.to(images.device) for key, m in random.items()}
                scores = faithfulness(
                    anatomy, images, target, order, steps=steps, seed=run.seed, indices=indices
                )
            pictures = {b: maps[GRAD_CAM, b].cpu().numpy() for b in chosen}
            parts.append((start, scores, [pictures] if start < _PICTURES else []))
            largest = max(largest, len(images))
    parts = sorted((p for process in gather(parts) for p in process), key=lambda p: p[0])
    if not parts:
        raise InputError("batches must hold at least one image, got none")
    values = {key: np.concatenate([s[key] for _, s, _ in parts]) for key in parts[0][1]}
    count = len(next(iter(values.values())))
    origin = run.measured(images=count, batch_size=largest, image_shape=image_shape(anatomy))
    scores = AttributionScores(**_columns(chosen, values), steps=steps, provenance=origin)
    by_block = {
        b: np.concatenate([p[b] for _, _, ps in parts for p in ps])[:_PICTURES] for b in chosen
    }
    return scores, AttributionMaps(**_pictures(by_block), provenance=origin)


def _with_numbers(
    batches: Iterable[Batch], anatomy: Anatomy, run: Run
) -> Iterator[tuple[Tensor, range]]:
    """The images of each batch, with a number for each."""
    for batch in batches:
        images = images_of(batch, anatomy, run.compute)
        if not isinstance(images, Tensor):
            raise InputError("batches must hold images as one tensor, got a mapping")
        yield images, range(len(images))


def _spread(blocks: Sequence[Block], number: int) -> list[Block]:
    positions = np.linspace(len(blocks) - 1, 0, min(number, len(blocks))).round().astype(int)
    return [blocks[i] for i in sorted(set(positions.tolist()))]


def gradient_maps(
    anatomy: Anatomy, blocks: Sequence[Block], images: Float[Tensor, "b c h w"]
) -> tuple[Int64[Tensor, " b"], Maps]:
    """The predicted classes, and both maps of each block on its grid.

    Costs a forward and a backward pass for each block.
    """
    maps: Maps = {}
    target = torch.empty(0, dtype=torch.long)
    for block in blocks:
        assert block.layout is not None  # of `blocks_on_grid`
        target, activation, gradient = _gradient(anatomy, block, images)
        a, g = (block.layout.to_map(x).float() for x in (activation, gradient))
        maps[GRADIENT_ACTIVATION, block] = (g * a).sum(1)
        maps[GRAD_CAM, block] = (g.mean((2, 3), keepdim=True) * a).sum(1).clamp(min=0)
    return target, maps


def _gradient(
    anatomy: Anatomy, block: Block, images: Float[Tensor, "b c h w"]
) -> tuple[Int64[Tensor, " b"], Tensor, Tensor]:
    """The predicted classes, the output of a block, and the gradient of their logits for it.

    One block in each pass: the output is exchanged for a copy, in place where the model works
    in place, and a gradient that passes through such an output could not be computed.
    """
    outputs: list[Tensor] = []

    def exchange(x: Tensor) -> Tensor:
        outputs[:] = [x.detach().clone().requires_grad_()]
        return outputs[0].clone()

    with torch.enable_grad(), intercept(anatomy, reads={}, changes={block.end: exchange}):
        logits = forward(anatomy.model, images)
        if logits.ndim != 2:
            raise InputError(
                f"{type(anatomy.model).__name__} must return logits (images, classes), got "
                f"shape {tuple(logits.shape)}"
            )
        target = logits.argmax(1)
        score = logits.gather(1, target[:, None]).sum()
        gradient = None
        if score.requires_grad:
            (gradient,) = torch.autograd.grad(score, outputs, allow_unused=True)
    if gradient is None:
        raise InputError(
            f"block {block.name!r} must reach the logits by a gradient, and it does not"
        )
    return target, outputs[0].detach(), gradient


def _random_map(block: Block, indices: range, seed: int) -> Map:
    """Uniform numbers on the grid of a block, by image."""
    grid = block.shape[-2:]
    return torch.stack(
        [torch.rand(grid, generator=stream(seed, "random map", *grid, i)) for i in indices]
    )


@torch.no_grad()
def faithfulness(
    anatomy: Anatomy,
    images: Float[Tensor, "b c h w"],
    target: Int64[Tensor, " b"],
    maps: Maps,
    *,
    steps: int,
    seed: int,
    indices: range,
) -> Scores:
    """Insertion and deletion score of each image, by score, method and block."""

    def probability(x: Tensor) -> Float[Tensor, " b"]:
        logits = forward(anatomy.model, x).double()
        return logits.softmax(1).gather(1, target[:, None])[:, 0]

    blurred, empty = _blurred(images), torch.zeros_like(images)
    size = images.shape[-2:]
    jitter = torch.stack(
        [torch.rand(size, generator=stream(seed, "order of ties", i)) for i in indices]
    ).to(images)
    ends = {"insertion": (blurred, images), "deletion": (images, empty)}
    at_ends = {id(x): probability(x) for x in (images, blurred, empty)}
    scores: Scores = {}
    for (method, block), values in maps.items():
        rank = _ranks(values, size, jitter)
        for name, (before, after) in ends.items():
            total = (at_ends[id(before)] + at_ends[id(after)]) / 2
            for step in range(1, steps):
                done = (rank < step / steps)[:, None]
                total = total + probability(torch.where(done, after, before))
            scores[name, method, block] = (total / steps).cpu().numpy()
    return scores


def _ranks(
    values: Map, size: torch.Size, jitter: Float[Tensor, "b h w"]
) -> Float[Tensor, "b h w"]:
    """Fraction of the pixels that come before each pixel, the highest values first."""
    large = functional.interpolate(values[:, None], tuple(size), mode="bilinear")[:, 0]
    shuffled = jitter.flatten(1).argsort(1)
    values_shuffled = large.flatten(1).gather(1, shuffled)
    order = values_shuffled.argsort(dim=1, descending=True, stable=True)
    pixels = order.shape[1]
    ranks = torch.empty_like(jitter).flatten(1)
    places = torch.arange(pixels, device=ranks.device, dtype=ranks.dtype) / pixels
    ranks.scatter_(1, shuffled.gather(1, order), places.expand_as(ranks))
    return ranks.unflatten(1, tuple(size))


def _blurred(images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """Gaussian blur with reflected borders."""
    sigma = _BLUR * min(images.shape[-2:])
    radius = min(ceil(3 * sigma), min(images.shape[-2:]) - 1)
    x = torch.arange(-radius, radius + 1, device=images.device, dtype=images.dtype)
    kernel = torch.exp(-(x**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).expand(images.shape[1], 1, 1, -1)
    padded = functional.pad(images, (radius,) * 4, mode="reflect")
    groups = images.shape[1]
    rows = functional.conv2d(padded, kernel, groups=groups)
    return functional.conv2d(rows, kernel.mT, groups=groups)


def _columns(blocks: Sequence[Block], values: Scores) -> dict[str, np.ndarray]:
    rows = [(method, block) for method in METHODS for block in blocks]
    columns = block_columns([block for _, block in rows])
    columns["method"] = np.array([method for method, _ in rows])
    for score in ("insertion", "deletion"):
        scores = [values[score, method, block] for method, block in rows]
        gains = [v - values[score, RANDOM, b] for v, (_, b) in zip(scores, rows, strict=True)]
        intervals = np.array([mean_interval(gain) for gain in gains])
        columns[score] = np.array([v.mean() for v in scores])
        columns[f"{score}_error"] = np.array(
            [v.std(ddof=1) / np.sqrt(len(v)) if len(v) > 1 else np.nan for v in scores]
        )
        columns[f"{score}_gain"] = np.array([gain.mean() for gain in gains])
        columns[f"{score}_gain_low"], columns[f"{score}_gain_high"] = intervals.T
    return columns


def _pictures(maps: Mapping[Block, np.ndarray]) -> dict[str, np.ndarray]:
    names, rows, columns, values = [], [], [], []
    for number in range(len(next(iter(maps.values())))):
        for block, pictures in maps.items():
            picture = pictures[number] / max(pictures[number].max(), np.finfo(np.float32).tiny)
            row, column = np.indices(picture.shape).reshape(2, -1)
            names.append(np.full(picture.size, f"image {number}, {block.name}"))
            rows.append(row)
            columns.append(column)
            values.append(picture.ravel())
    return {
        "picture": np.concatenate(names),
        "row": np.concatenate(rows),
        "column": np.concatenate(columns),
        "relevance": np.concatenate(values),
    }
