"""Views of large images: random resized crop, flip and timm's RandAugment.

timm draws from the global generators of Python and NumPy, which are seeded for each image from
a separate stream and then restored.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageOps
from torch import Tensor

from visprism.core.preprocessing import Preprocessing
from visprism.core.run import stream
from visprism.data.augmentation.settings import Augmentation
from visprism.data.batches import cropped

_GLOBAL = threading.Lock()  # of the generators that all threads share


class Views:
    """Random views: from a decoded image of any size to bytes of the model's size.

    Source: Szegedy et al. (2015), Going deeper with convolutions, section 6, for the crop;
    Cubuk et al. (2020), RandAugment; both as timm has them.
    """

    def __init__(
        self, augmentation: Augmentation, preprocessing: Preprocessing, seed: int
    ) -> None:
        # timm takes seconds to import, and studies of other models do without it.
        from timm.data.auto_augment import rand_augment_transform
        from timm.data.transforms import RandomResizedCropAndInterpolation

        self.size = preprocessing.size
        self._seed = seed
        self._flip = augmentation.flip
        self._whole = augmentation.area == 1
        self._padding = augmentation.padding
        self._preprocessing = preprocessing
        self._crop = RandomResizedCropAndInterpolation(
            preprocessing.size,
            scale=(augmentation.area, 1.0),
            interpolation=(
                "random"
                if augmentation.crop_interpolation == "random"
                else preprocessing.interpolation
            ),
        )
        color = tuple(min(255, round(255 * value)) for value in preprocessing.mean)
        self._rand_augment = (
            rand_augment_transform(augmentation.rand_augment, {"img_mean": color})
            if augmentation.rand_augment
            else None
        )

    def __call__(self, picture: Image.Image, *use: object) -> UInt8[Tensor, "3 h w"]:
        """The view of the picture for one use of it."""
        with _seeded(self._seed, *use):
            view = self._center(picture) if self._whole else self._cut(picture)
            view = self._shifted(view) if self._padding else view
            if random.random() < self._flip:
                view = ImageOps.mirror(view)
            if self._rand_augment is not None:
                view = self._rand_augment(view)
        return torch.from_numpy(np.array(view)).permute(2, 0, 1)

    def _cut(self, picture: Image.Image) -> Image.Image:
        return self._crop(picture)  # pyrefly: ignore

    def _shifted(self, view: Image.Image) -> Image.Image:
        left, top = (random.randint(0, 2 * self._padding) for _ in range(2))
        box = (left, top, left + view.width, top + view.height)
        return ImageOps.expand(view, self._padding).crop(box)

    def _center(self, picture: Image.Image) -> Image.Image:
        pixels = cropped(picture, self._preprocessing)
        return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


@contextmanager
def _seeded(seed: int, *use: object) -> Iterator[None]:
    """Inside, the global generators of Python and NumPy are seeded by a separate stream."""
    draws = torch.randint(2**32, (2,), generator=stream(seed, "view", *use)).tolist()
    with _GLOBAL:
        states = random.getstate(), np.random.get_state()  # noqa: NPY002
        try:
            random.seed(draws[0])
            np.random.seed(draws[1])  # noqa: NPY002
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
