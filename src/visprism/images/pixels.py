"""Pixels: from an image file to eight-bit RGB, its center crop, and the model's input."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from PIL import Image, ImageOps
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.images.image_set import ImageSet

Source = Path | bytes  # a file, or what stands in one

_READ = 256  # images at a time
_SIXTEEN_BIT = {"I", "I;16", "I;16L", "I;16B", "I;16N"}


def _opened(source: Source) -> Image.Image:
    return Image.open(BytesIO(source) if isinstance(source, bytes) else source)


def decode(source: Source) -> Image.Image:
    """The image as RGB, rotated by its EXIF orientation, on white where it is transparent."""
    try:
        with _opened(source) as image:
            return rgb_of(image)
    except Exception as error:  # Pillow raises nearly any type on a damaged file
        reason = _reason(error)
        named = f"{source} ({reason})" if isinstance(source, Path) else reason
        raise InputError(f"an image cannot be read: {named}") from error


def fault(source: Source) -> str | None:
    """Why a file cannot be read, or None; reads all of it, but decodes a JPEG at an eighth.

    The header of a truncated file is valid, so that reading less would not suffice.
    """
    try:
        with _opened(source) as image:
            image.draft(None, (1, 1))
            image.load()
            to_rgb(image)
    except Exception as error:  # as above
        return _reason(error)
    return None


def _reason(error: Exception) -> str:
    """Why an image cannot be read, without the address of what holds its bytes."""
    text = re.sub(r" ?<_io\.BytesIO object at \w+>", "", str(error))
    return text or type(error).__name__


def rgb_of(image: Image.Image) -> Image.Image:
    """An opened image as eight-bit RGB, rotated by its EXIF orientation."""
    return to_rgb(ImageOps.exif_transpose(image))


def to_rgb(image: Image.Image) -> Image.Image:
    """Eight-bit RGB of an image in any of Pillow's modes that has a defined white."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode in _SIXTEEN_BIT:
        # Pillow's own conversion clips at 255, which makes nearly every pixel white.
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > 65535:
            raise InputError(f"pixels must be at most 65535, got {values.max()}")
        return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise InputError("pixels must be integers, got floating-point numbers")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert(
            "RGB"
        )
    return image.convert("RGB")


def framing(image_set: ImageSet, preprocessing: Preprocessing) -> Preprocessing:
    """The preprocessing without its center crop if the images are cropped already."""
    return replace(preprocessing, crop=1.0) if image_set.framed else preprocessing


def center_crop(image: Image.Image, preprocessing: Preprocessing) -> Image.Image:
    """The center crop of the image, resized so that its shorter side, or both, fit the crop.

    Source: torchvision and timm, with their rounding.
    """
    height, width = (int(side / preprocessing.crop) for side in preprocessing.size)
    if preprocessing.squash:
        size = width, height
    elif image.height * width <= image.width * height:  # the height is the shorter side
        size = height * image.width // image.height, height
    else:
        size = width, width * image.height // image.width
    if size != image.size:
        image = image.resize(size, Image.Resampling[preprocessing.interpolation.upper()])
    height, width = preprocessing.size
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return image.crop((left, top, left + width, top + height))


def pictures(pixels: UInt8[Tensor, "b 3 h w"]) -> list[Image.Image]:
    """A batch as images; the reverse of `stacked`."""
    return [Image.fromarray(image) for image in pixels.permute(0, 2, 3, 1).cpu().numpy()]


def stacked(images: Iterable[Image.Image]) -> UInt8[Tensor, "b 3 h w"]:
    """Images of one size as a batch."""
    return torch.stack([torch.from_numpy(np.array(i)).permute(2, 0, 1) for i in images])


def crops_of(
    image_set: ImageSet, preprocessing: Preprocessing, positions: Sequence[int]
) -> UInt8[Tensor, "b 3 h w"]:
    """The center crops of some images, in eight bits."""
    way = framing(image_set, preprocessing)
    return stacked(center_crop(image, way) for image in image_set.read(positions))


def masks_of(
    image_set: ImageSet, preprocessing: Preprocessing | None, rows: range
) -> Int64[Tensor, "b h w"]:
    """Masks of some images, cropped like the images and resized by the nearest pixel."""
    assert image_set.mask_of is not None
    assert preprocessing is not None
    way = replace(framing(image_set, preprocessing), interpolation="nearest")
    masks = (center_crop(image_set.mask_of(i), way) for i in rows)
    return torch.stack([torch.from_numpy(np.array(mask, dtype=np.int64)) for mask in masks])


def decode_mask(file: Path) -> Image.Image:
    """A mask of class indices: gray, of a palette, or of two values."""
    with Image.open(file) as image:
        if image.mode not in {"1", "L", "P", *_SIXTEEN_BIT}:
            raise InputError(
                f"masks must hold class indices (gray or palette), got {image.mode}: {file}"
            )
        return image.convert("L") if image.mode == "1" else image.copy()


def in_memory(
    image_set: ImageSet, preprocessing: Preprocessing
) -> tuple[UInt8[Tensor, "n 3 h w"], Int64[Tensor, " n"]]:
    """All images, cropped but not normalized, and their classes; three bytes per pixel."""
    number = len(image_set)
    parts = [range(i, min(i + _READ, number)) for i in range(0, number, _READ)]
    crops = torch.cat([crops_of(image_set, preprocessing, part) for part in parts])
    return crops, torch.from_numpy(image_set.targets)


def normalized(
    images: UInt8[Tensor, "b c h w"], preprocessing: Preprocessing
) -> Float[Tensor, "b c h w"]:
    """Pixels in [0, 1] minus the mean, divided by the standard deviation, by channel."""
    mean, std = (
        torch.tensor(values, device=images.device)[:, None, None]
        for values in (preprocessing.mean, preprocessing.std)
    )
    return images.float().div_(255).sub_(mean).div_(std)
