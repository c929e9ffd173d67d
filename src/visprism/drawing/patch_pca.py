"""Figure of `PatchComponents`: a picture for each image and block."""

import numpy as np
from matplotlib.axes import Axes

from visprism.drawing.registry import figure
from visprism.drawing.style import INK, tip
from visprism.results.patch_pca import PatchComponents

_GAP = 0.06  # between pictures, of the side of one


@figure(width=6.0, height=4.0, across=1, share=False)
def _(result: PatchComponents, ax: Axes, *, images: int = 4) -> Axes:
    """Blocks from left to right, the first images from top to bottom; background is white."""
    pictures = result.pictures()
    blocks = list(dict.fromkeys(block for block, _ in pictures))
    chosen = list(dict.fromkeys(image for _, image in pictures))[:images]
    step = 1 + _GAP
    for (block, image), picture in pictures.items():
        if image not in chosen:
            continue
        left, top = blocks.index(block) * step, chosen.index(image) * step
        picture_of = ax.imshow(
            np.nan_to_num(picture, nan=1.0),
            extent=(left, left + 1, top + 1, top),
            interpolation="nearest",
        )
        picture_of.set_gid(tip(f"{block} · image {image}"))
    for i, block in enumerate(blocks):
        ax.annotate(
            block,
            (i * step + 0.5, len(chosen) * step),
            xytext=(0, -2),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=6,
            color=INK,
        )
    ax.set(xlim=(0, len(blocks) * step), ylim=(len(chosen) * step, 0), aspect="equal")
    ax.axis("off")
    return ax
