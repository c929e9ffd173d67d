"""Pictures of a page: PNG files of one pixel for each position, never smoothed."""

from base64 import b64encode
from html import escape
from io import BytesIO

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from matplotlib import colormaps
from PIL import Image

MOST = 112  # pixels of a side on the page; of a larger picture every k-th pixel is shown
HEAT = "magma"  # of weights, from 0 to the largest of a picture
SIGNED = "RdBu_r"  # of cosine similarities, from -1 to 1


def png(pixels: UInt8[np.ndarray, "h w *_"], palette: str = "") -> bytes:
    """A PNG file of gray or RGB pixels, or of numbers of 256 colors of a palette."""
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if palette:
        colors = (colormaps[palette](np.arange(256))[:, :3] * 255).round().astype(np.uint8)
        image.putpalette(colors.tobytes())
    file = BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def eight_bit(
    values: Float[np.ndarray, "*_"], low: float | None = None, high: float | None = None
) -> UInt8[np.ndarray, "*_"]:
    """Values as 0 ... 255 from `low` to `high`, by default the smallest and the largest."""
    low = float(values.min()) if low is None else low
    high = float(values.max()) if high is None else high
    scaled = (values - low) / (high - low) if high > low else np.zeros_like(values)
    return (scaled.clip(0, 1) * 255).round().astype(np.uint8)


def reduced(pixels: Shaped[np.ndarray, "h w *_"]) -> Shaped[np.ndarray, "_ _ *_"]:
    """Every k-th pixel of a picture that is larger than `MOST`."""
    step = -(-max(pixels.shape[:2]) // MOST)
    return pixels[step // 2 :: step, step // 2 :: step] if step > 1 else pixels


def atlas(maps: Float[np.ndarray, "p h w"]) -> Float[np.ndarray, "_ _"]:
    """The maps of a square grid of positions as one picture, by rows."""
    side = round(len(maps) ** 0.5)
    _, height, width = maps.shape
    tiles = maps.reshape(side, side, height, width).swapaxes(1, 2)
    return tiles.reshape(side * height, side * width)


def relative(maps: Float[np.ndarray, "p h w"]) -> Float[np.ndarray, "p h w"]:
    """Each map divided by its largest value; a map of zeros stays."""
    largest = maps.max((1, 2), keepdims=True)
    return maps / np.where(largest > 0, largest, 1)


def address(file: bytes) -> str:
    """A PNG file as an address within a page."""
    return f"data:image/png;base64,{b64encode(file).decode()}"


def svg(file: bytes, size: tuple[int, int], title: str) -> str:
    """A PNG file in an SVG file that does not smooth it."""
    height, width = size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">'
        f"<title>{escape(title)}</title>"
        f'<image width="{width}" height="{height}" style="image-rendering: pixelated" '
        f'href="{address(file)}"/></svg>\n'
    )
