"""Random numbers for the augmentation of a batch, drawn together on the CPU."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Generator, Tensor

from visprism.data.augmentation.crops import draw_windows
from visprism.data.augmentation.erasing import draw_boxes
from visprism.data.augmentation.rand_augment import OFF, OPERATIONS
from visprism.data.augmentation.settings import Augmentation, RandAugment


@dataclass(frozen=True)
class RandomNumbers:
    """The random choices for each image of a batch; the last axis is that of images."""

    corner: Int64[Tensor, "2 b"]  # (top, left) of the crop out of the padded image
    flip: Bool[Tensor, " b"]
    operation: Int64[Tensor, "n b"]  # of RandAugment: its index in timm's list, or OFF
    magnitude: Float64[Tensor, "n b"]
    negative: Bool[Tensor, "n b"]  # the sign, where an operation has two directions
    cubic: Bool[Tensor, "n b"]  # bicubic instead of bilinear interpolation
    box: Int64[Tensor, "4 b"]  # erased: top, bottom, left, right; empty where none is
    noise: Int64[Tensor, " b"]  # seed of the noise in the box
    window: Int64[Tensor, "4 b"]  # (top, left, height, width) of the crop that is resized
    crop_cubic: Bool[Tensor, " b"]  # bicubic interpolation of the crop, where it is random

    def of(self, indices: Int64[Tensor, " m"]) -> "RandomNumbers":
        """The choices for some of the images."""
        return RandomNumbers(
            **{f.name: getattr(self, f.name)[..., indices] for f in fields(self)}
        )


def concatenated(batches: Sequence[RandomNumbers]) -> RandomNumbers:
    """The choices for the images of several batches, one batch after the other."""
    names = [f.name for f in fields(RandomNumbers)]
    return RandomNumbers(
        **{name: torch.cat([getattr(batch, name) for batch in batches], -1) for name in names}
    )


def draw(
    augmentation: Augmentation, count: int, size: Sequence[int], generator: Generator
) -> RandomNumbers:
    """The random choices for `count` images of (height, width) `size`."""
    top, left, flip = _uniform(3, count, generator)
    windows = 2 * augmentation.padding + 1
    return RandomNumbers(
        corner=torch.stack([(windows * top).long(), (windows * left).long()]),
        flip=flip < augmentation.flip,
        **_operations(augmentation.operations, count, generator),
        box=draw_boxes(augmentation.erasing, count, size, generator),
        noise=torch.randint(2**62, (count,), generator=generator),
        window=draw_windows(augmentation.area, count, size, generator),
        # Last, and only where it is needed: other settings draw what they always drew.
        crop_cubic=(
            torch.rand(count, generator=generator) < 0.5
            if augmentation.crop_interpolation == "random"
            else torch.zeros(count, dtype=torch.bool)
        ),
    )


def _operations(
    settings: RandAugment | None, count: int, generator: Generator
) -> dict[str, Tensor]:
    """Operations and their magnitudes, distributed as in timm."""
    settings = settings or RandAugment(layers=0)
    n = settings.layers
    which, whether, sign, kernel = _uniform(4 * n, count, generator).view(4, n, count)
    normal = torch.randn(n, count, generator=generator, dtype=torch.float64)
    operation = (len(OPERATIONS) * which).long()
    return {
        "operation": operation.masked_fill(whether >= settings.probability, OFF),
        "magnitude": (settings.magnitude + settings.deviation * normal).clamp(
            0, settings.highest
        ),
        "negative": sign < 0.5,
        "cubic": kernel < 0.5,
    }


def _uniform(rows: int, count: int, generator: Generator) -> Float64[Tensor, "{rows} {count}"]:
    return torch.rand(rows, count, generator=generator, dtype=torch.float64)
