"""Decoding: from an image file of any format to eight-bit RGB."""

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from visprism.core.errors import InputError

Source = Path | bytes  # a file, or what stands in one

_SIXTEEN_BIT = {"I", "I;16", "I;16L", "I;16B", "I;16N"}


def _opened(source: Source) -> Image.Image:
    return Image.open(BytesIO(source) if isinstance(source, bytes) else source)


def decode(source: Source) -> Image.Image:
    """The image as RGB, rotated by its EXIF orientation, on white where it is transparent."""
    try:
        with _opened(source) as image:
            return to_rgb(ImageOps.exif_transpose(image))
    except Exception as error:  # Pillow raises nearly any type on a damaged file
        reason = str(error) or type(error).__name__
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
        return str(error) or type(error).__name__
    return None


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
