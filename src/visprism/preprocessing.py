"""Preprocessing: from a decoded image to the tensor that a model was trained on."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Preprocessing:
    """Resize, centre crop, scale to 0 ... 1, and standardise, as a model's authors did it."""

    size: tuple[int, int]  # (height, width) of the model's input
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # per channel, of pixels in 0 ... 1
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    interpolation: str = "bicubic"  # "nearest", "bilinear" or "bicubic"; antialiased
    crop: float = 1.0  # side of the centre crop over that of the resized image

    def __str__(self) -> str:
        """One phrase for the line of protocol under a figure."""
        h, w = self.size
        crop = f", crop {self.crop:g}" if self.crop != 1 else ""
        return f"{h}x{w} {self.interpolation}{crop}"
