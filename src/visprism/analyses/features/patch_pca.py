"""PCA of patch features: three principal components of the tokens of several images as colors.

With the tokens of all images as rows of X less their mean, the components are the leading right
singular vectors of X, each with the sign that gives its scores a positive third moment, so that
a picture does not change from run to run. One color means one direction of the features in
every image. Scores become 0 at their 1% and 1 at their 99% percentile.

Source: Oquab et al. (2024), DINOv2, fig. 1 and sec. 7.6.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from visprism import kit
from visprism.analyses.pictures import image_pictures, pictures_section
from visprism.anatomy.run.surgery import watch
from visprism.anatomy.trace.forward import batch_size, forward
from visprism.drawing.color_bars import caption, picture
from visprism.estimates.text import images_text
from visprism.passes.batches import blocks_on_grid, images_of
from visprism.passes.blocks import grid_of, spread
from visprism.table.result import column as quantity

_COMPONENTS = 3
_PERCENTILES = (1, 99)  # of the scores of all images, which become 0 and 1
_FEWEST = _COMPONENTS + 1  # foreground patches that a second PCA takes
_MOST_IMAGES = 16  # whose feature maps are in memory at once
_DRAWN = 4  # images in the figure
_GAP = 0.06  # between pictures, of the side of one


@kit.result("patch-components", "Principal components of patch features", table=False)
class PatchComponents(kit.Valued, kit.PerBlock):
    """Scores of three principal components; one row for each block, image and patch.

    Each row is an image and each column a block; red, green and blue are the first three
    principal components of the patches of all images together. Patches of one color have
    similar features, also across images.

    NaN for patches of the background, where there is one.
    """

    value_name = "first"

    image: np.ndarray = quantity(
        "Image", "", "index of the image; in a study, into `Study.positions`"
    )
    row: np.ndarray = quantity("Row", "", "of the grid, from 0 at the top")
    column: np.ndarray = quantity("Column", "", "of the grid, from 0 at the left")
    first: np.ndarray = quantity(
        "First component", "", "score, 0 at the 1% and 1 at the 99% percentile of all images"
    )
    second: np.ndarray = quantity("Second component", "", "score, scaled as the first")
    third: np.ndarray = quantity("Third component", "", "score, scaled as the first")
    explained: np.ndarray = quantity(
        "Explained variance", "", "fraction that the three components of the block hold"
    )
    background_threshold: float = kit.scalar(
        "Background threshold",
        "",
        "score of the first component up to which a patch is background; NaN: none is",
    )

    def pictures(self) -> dict[tuple[str, int], Float[np.ndarray, "h w 3"]]:
        """Red, green and blue from the three components, by block and image."""
        colors = np.stack([self.first, self.second, self.third], axis=1)
        keys = list(dict.fromkeys(zip(self.block.tolist(), self.image.tolist(), strict=True)))
        colored = {}
        for block, image in keys:
            rows = (self.block == block) & (self.image == image)
            shape = self.row[rows].max() + 1, self.column[rows].max() + 1
            picture = np.full((*shape, 3), np.nan)
            picture[self.row[rows], self.column[rows]] = colors[rows]
            colored[block, image] = picture
        return colored

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Explained variance of the first and the last block."""
        starts = np.flatnonzero(self.first_rows())
        texts = [f"{self.explained[i]:.0%} at {self.block[i]}" for i in starts[[0, -1]]]
        images = images_text(len(np.unique(self.image)), self.provenance.split)
        yield (
            "share of variance that three principal components of the patches explain, "
            f"over {images}: {', '.join(dict.fromkeys(texts))}"
        )


@kit.analysis
class PatchPCA(kit.Analysis):
    """Pictures of the principal components of patch features, joint over images, by block."""

    name = "patch-pca"
    needs = kit.Needs.FEATURES
    images = kit.Sizes(quick=_MOST_IMAGES, standard=_MOST_IMAGES, full=_MOST_IMAGES)
    passes = 1.5
    source = "Oquab et al. (2024), fig. 1"
    gives = (
        PatchComponents,
        pictures_section("Images of the principal components"),
    )

    num_blocks: int = kit.option(
        6, "number of blocks with pictures, spread over the depth", minimum=1
    )
    background_threshold: float | None = kit.option(
        None,
        "score of the first component, in [0, 1], up to which a patch is background; the "
        "components are fitted again on the other patches; none: all patches are used",
        minimum=0,
        below=1,
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """The scores of the first images; costs an eigendecomposition of each block."""
        anatomy = subject.anatomy
        blocks = [b for b in blocks_on_grid(anatomy) if np.prod(grid_of(b)) > 1]
        if not blocks:
            raise kit.InputError("the model has no block with several positions")
        blocks = spread(blocks, self.num_blocks)
        batches = subject.limited(min(subject.num_images, _MOST_IMAGES)).batches()
        maps: dict[str, list[Tensor]] = {block.name: [] for block in blocks}
        sizes: list[int] = []
        with (
            run.compute.borrow(anatomy.model),
            torch.no_grad(),
            watch(anatomy, blocks=blocks) as seen,
            run.compute.autocast(),
        ):
            for batch in run.track(batches, "patch features"):
                images = images_of(batch, anatomy, run.compute)
                forward(anatomy.model, images)
                sizes.append(batch_size(images))
                for name, values in seen.items():
                    maps[name].append(values.cpu())
        columns = [
            self._of_block(b.name, torch.cat(maps[b.name]).double().numpy()) for b in blocks
        ]
        rows = [b for b, c in zip(blocks, columns, strict=True) for _ in c["image"]]
        threshold = self.background_threshold
        components = PatchComponents(
            **kit.block_columns(rows),
            **{name: np.concatenate([c[name] for c in columns]) for name in columns[0]},
            background_threshold=np.nan if threshold is None else threshold,
            provenance=run.measured(
                images=sum(sizes), batch_size=max(sizes), image_shape=anatomy.image_shape
            ),
        )
        return components, *image_pictures(subject, _DRAWN, components.provenance)

    def _of_block(self, name: str, x: Float[np.ndarray, "b c h w"]) -> dict[str, np.ndarray]:
        images, channels, height, width = x.shape
        if not np.isfinite(x).all():
            raise kit.InputError(
                f"feature maps must be finite, got NaN or infinity from block {name!r}. Check "
                "the weights and the preprocessing."
            )
        tokens = x.transpose(0, 2, 3, 1).reshape(-1, channels)
        scores, explained = principal_scores(tokens)
        inside = np.ones(len(tokens), dtype=bool)
        threshold = self.background_threshold
        if threshold is not None:
            inside = scaled(scores[:, :1])[:, 0] > threshold
            if inside.sum() < _FEWEST:
                raise kit.InputError(
                    f"background_threshold must leave at least {_FEWEST} patches of {name!r}, "
                    f"got {threshold:g}, which leaves {inside.sum()}"
                )
            scores, explained = principal_scores(tokens[inside])
        colors = np.full((len(tokens), _COMPONENTS), np.nan)
        colors[inside] = scaled(scores)
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


def principal_scores(
    tokens: Float[np.ndarray, "n c"],
) -> tuple[Float[np.ndarray, "n 3"], float]:
    """Scores of the first three components, and the fraction of the variance that they hold.

    A component that does not exist has scores of 0. The sign gives a positive sum of
    cubes: it depends neither on the order of patches nor on a rotation of the channels.
    """
    rows = tokens - tokens.mean(0)
    few = len(rows) < rows.shape[1]  # scores are eigenvectors of the smaller Gram matrix
    values, vectors = np.linalg.eigh(rows @ rows.T if few else rows.T @ rows)
    number = min(_COMPONENTS, len(values))
    leading = vectors[:, ::-1][:, :number]
    scores = np.zeros((len(rows), _COMPONENTS))
    lengths = np.sqrt(values[::-1][:number].clip(0))
    scores[:, :number] = leading * lengths if few else rows @ leading
    total = max(values.sum(), np.finfo(float).tiny)
    scores *= np.where((scores**3).sum(0) < 0, -1, 1)
    return scores, float(values[::-1][:number].sum() / total)


def scale_of(
    scores: Float[np.ndarray, "n k"],
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """The 1% and the 99% percentile of scores, which become 0 and 1."""
    low, high = np.percentile(scores, _PERCENTILES, axis=0)
    return low, high


def scaled(scores: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Scores from 0 at their 1% to 1 at their 99% percentile; 0.5 if all are equal."""
    low, high = scale_of(scores)
    spread = high - low
    values = (scores - low) / np.where(spread > 0, spread, 1)
    return np.where(spread > 0, values.clip(0, 1), 0.5)


@kit.figure(width=6.0, height=4.0, across=1, share=False)
def _(result: PatchComponents, ax: Axes, *, images: int = _DRAWN) -> Axes:
    """Blocks from left to right, the first images from top to bottom; background is white."""
    pictures = result.pictures()
    blocks = list(dict.fromkeys(block for block, _ in pictures))
    chosen = list(dict.fromkeys(image for _, image in pictures))[:images]
    step = 1 + _GAP
    for (block, image), colors in pictures.items():
        if image not in chosen:
            continue
        left, top = blocks.index(block) * step, chosen.index(image) * step
        about = f"{block} · image {image}"
        picture(ax, np.nan_to_num(colors, nan=1.0), left, top, about=about)
    for i, block in enumerate(blocks):
        caption(ax, block, (i * step + 0.5, len(chosen) * step))
    ax.set(xlim=(0, len(blocks) * step), ylim=(len(chosen) * step, 0), aspect="equal")
    ax.axis("off")
    return ax
