"""PCA of patch features: three principal components of the tokens of several images as colors.

The components are those of all images together, so that one color means one direction of the
features in every image. Their signs are fixed, so that a picture does not change from run to
run.

Source: Oquab et al. (2024), DINOv2, fig. 1 and sec. 7.6.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from visprism.anatomy import Anatomy, Block, batch_size, forward, watch
from visprism.core.errors import InputError
from visprism.core.run import Run
from visprism.passes.batches import Batch, blocks_on_grid, image_shape, images_of
from visprism.passes.blocks import block_columns, grid_of
from visprism.results.patch_pca import PatchComponents

COMPONENTS = 3
_PERCENTILES = (1, 99)  # of the scores of all images, which become 0 and 1
_FEWEST = COMPONENTS + 1  # foreground patches that a second PCA takes


def patch_pca(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    *,
    num_blocks: int = 6,
    background_threshold: float | None = None,
    run: Run,
) -> PatchComponents:
    """Scores of three principal components of each patch of each image, from 0 to 1.

    With the tokens of all images as rows of X less their mean, the components are the leading
    right singular vectors of X, each with the sign that gives its scores a positive third
    moment. Scores become 0 at their 1% and 1 at their 99% percentile. Memory is the feature
    maps of all images; costs one forward pass and an eigendecomposition of each block.

    Args:
        anatomy: of a model in evaluation mode.
        batches: a few images.
        num_blocks: number of blocks, spread evenly over the depth, the last one among them.
        background_threshold: patches whose first score is not above it are background, and the
            components are those of the other patches; None: of all patches.
        run: device and provenance.
    """
    chosen = _spread(
        [b for b in blocks_on_grid(anatomy) if np.prod(grid_of(b)) > 1], num_blocks
    )
    maps: dict[str, list[Tensor]] = {block.name: [] for block in chosen}
    sizes: list[int] = []
    with (
        run.compute.borrow(anatomy.model),
        torch.no_grad(),
        watch(anatomy, blocks=chosen) as seen,
        run.compute.autocast(),
    ):
        for batch in run.track(batches, "patch features"):
            images = images_of(batch, anatomy, run.compute)
            forward(anatomy.model, images)
            sizes.append(batch_size(images))
            for name, values in seen.items():
                maps[name].append(values.cpu())
    if not sizes:
        raise InputError("batches must hold at least one image, got none")
    columns: list[dict[str, np.ndarray]] = []
    for block in chosen:
        x = torch.cat(maps[block.name]).double().numpy()
        columns.append(_of_block(block, x, background_threshold))
    rows = [b for b, c in zip(chosen, columns, strict=True) for _ in c["image"]]
    return PatchComponents(
        **block_columns(rows),
        **{name: np.concatenate([c[name] for c in columns]) for name in columns[0]},
        background_threshold=np.nan if background_threshold is None else background_threshold,
        provenance=run.measured(
            images=sum(sizes), batch_size=max(sizes), image_shape=image_shape(anatomy)
        ),
    )


def _spread(blocks: Sequence[Block], number: int) -> list[Block]:
    if not blocks:
        raise InputError("model must have a block with several positions, and has none")
    places = np.linspace(len(blocks) - 1, 0, min(number, len(blocks))).round().astype(int)
    return [blocks[i] for i in sorted(set(places.tolist()))]


def _of_block(
    block: Block, x: Float[np.ndarray, "b c h w"], background_threshold: float | None
) -> dict[str, np.ndarray]:
    images, _, height, width = x.shape
    tokens = x.transpose(0, 2, 3, 1).reshape(-1, x.shape[1])
    scores, explained = principal_scores(tokens)
    inside = np.ones(len(tokens), dtype=bool)
    if background_threshold is not None:
        inside = scaled(scores[:, :1])[:, 0] > background_threshold
        if inside.sum() < _FEWEST:
            raise InputError(
                f"background_threshold must leave at least {_FEWEST} patches of "
                f"{block.name!r}, got "
                f"{background_threshold:g}, which leaves {inside.sum()}"
            )
        scores, explained = principal_scores(tokens[inside])
    colors = _placed(scaled(scores), inside)
    image, row, column = np.indices((images, height, width)).reshape(3, -1)
    return {
        "image": image,
        "row": row,
        "column": column,
        "first": colors[:, 0],
        "second": colors[:, 1],
        "third": colors[:, 2],
        "explained": np.full(len(tokens), explained),
    }


def _placed(
    values: Float[np.ndarray, "m k"], inside: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, "n k"]:
    placed = np.full((len(inside), values.shape[1]), np.nan)
    placed[inside] = values
    return placed


def principal_scores(
    tokens: Float[np.ndarray, "n c"],
) -> tuple[Float[np.ndarray, "n 3"], float]:
    """Scores of the first three components, and the fraction of the variance that they hold.

    A component that does not exist has scores of 0. The sign is that of a positive sum of
    cubes: it depends neither on the order of patches nor on a rotation of the channels.
    """
    rows = tokens - tokens.mean(0)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    number = min(COMPONENTS, len(values))
    scores = np.zeros((len(rows), COMPONENTS))
    scores[:, :number] = rows @ vectors[:, ::-1][:, :number]
    total = max(values.sum(), np.finfo(float).tiny)
    scores *= np.where((scores**3).sum(0) < 0, -1, 1)
    return scores, float(values[::-1][:number].sum() / total)


def scaled(scores: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Scores from 0 at their 1% to 1 at their 99% percentile; 0.5 if all are equal."""
    low, high = np.percentile(scores, _PERCENTILES, axis=0)
    spread = high - low
    values = (scores - low) / np.where(spread > 0, spread, 1)
    return np.where(spread > 0, values.clip(0, 1), 0.5)
