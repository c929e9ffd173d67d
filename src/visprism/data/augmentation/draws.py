"""Draws: all that is random in the augmentation of a batch, drawn at once on the CPU."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Generator, Tensor

from visprism.data.augmentation.erasing import draw_boxes
from visprism.data.augmentation.rand_augment import OFF, OPERATIONS
from visprism.data.augmentation.rand_augment_spec import RandAugment
from visprism.data.augmentation.random_resized_crop import draw_windows
from visprism.data.augmentation.settings import Augmentation


@dataclass(frozen=True)
class Drawn:
    """What happens to each image of a batch; the last axis counts images."""

    corner: Int64[Tensor, "2 b"]  # (top, left) of the crop out of the padded image
    flip: Bool[Tensor, " b"]
    operation: Int64[Tensor, "n b"]  # of RandAugment, by its place in timm's list, or OFF
    magnitude: Float64[Tensor, "n b"]
    negative: Bool[Tensor, "n b"]  # the sign of what has two directions
    cubic: Bool[Tensor, "n b"]  # bicubic interpolation, not bilinear
    box: Int64[Tensor, "4 b"]  # that is erased: top, bottom, left, right; empty where none is
    noise: Int64[Tensor, " b"]  # seed of what fills the box
    window: Int64[Tensor, "4 b"]  # (top, left, height, width) that is cut out and resized

    def of(self, some: Int64[Tensor, " m"]) -> "Drawn":
        """That of some of the images."""
        return Drawn(**{f.name: getattr(self, f.name)[..., some] for f in fields(self)})


def joined(drawn: Sequence[Drawn]) -> Drawn:
    """That of several batches, one after the other."""
    return Drawn(
        **{f.name: torch.cat([getattr(d, f.name) for d in drawn], -1) for f in fields(Drawn)}
    )


def draw(
    augmentation: Augmentation, count: int, size: Sequence[int], generator: Generator
) -> Drawn:
    """What happens to `count` images of (height, width) `size`."""
    top, left, flip = _uniform(3, count, generator)
    windows = 2 * augmentation.padding + 1
    return Drawn(
        corner=torch.stack([(windows * top).long(), (windows * left).long()]),
        flip=flip < augmentation.flip,
        **_operations(augmentation.operations, count, generator),
        box=draw_boxes(augmentation.erasing, count, size, generator),
        noise=torch.randint(2**62, (count,), generator=generator),
        window=draw_windows(augmentation.area, count, size, generator),
    )


def _operations(
    settings: RandAugment | None, count: int, generator: Generator
) -> dict[str, Tensor]:
    """Which operations, and how strong, as timm draws them."""
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
