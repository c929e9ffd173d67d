"""Frequencies: waves, rings in the frequency plane, and noise confined to one of them.

Frequencies are in π rad/pixel. A band is symmetric about frequency 0, so the part of a real
image that it passes is real.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, fft

from visprism import kit
from visprism.core.devices import for_complex

BAND_WIDTH = 0.1  # π rad/pixel
BAND_CENTERS = tuple(round(0.1 * i, 1) for i in range(1, 10))  # π rad/pixel
_EXACT = 1e-9
_HIGHEST = 8  # cycles per image side, unless another is given

Frequency = tuple[int, int]  # cycles over the height and over the width


def radius(size: tuple[int, int]) -> Float[Tensor, "h w"]:
    """The larger component of each frequency, in the order of `torch.fft.fft2`.

    1 is the Nyquist frequency of an axis.
    """
    vertical, horizontal = (2 * fft.fftfreq(n, dtype=torch.float64).abs() for n in size)
    return torch.maximum(vertical[:, None], horizontal[None])


def band(size: tuple[int, int], center: float) -> Bool[Tensor, "h w"]:
    """The frequencies whose larger component is in [center - 0.05, center + 0.05).

    Bands at 0, 0.1, 0.2, ... partition the plane. A band of a small image may be empty.
    """
    # In units of the width: 0.1, 0.2, ... are inexact, and no frequency may fall between bands.
    steps = (radius(size) - center) / BAND_WIDTH
    return (steps >= -0.5 - _EXACT) & (steps < 0.5 - _EXACT)


def paper_band(size: tuple[int, int], center: float) -> Bool[Tensor, "h w"]:
    """The band of Park and Kim's code: between two squares of whole frequencies.

    Half its width is 0.2 rad/pixel. Its squares reach from -m to m - 1, so it is not symmetric;
    the real part of what it passes is taken.
    """

    def square(limit: float) -> Bool[Tensor, "h w"]:
        axes = []
        for n in size:
            half = min(max(int(limit * n / (2 * torch.pi)), 0), n // 2)
            number = (n * fft.fftfreq(n, dtype=torch.float64)).round()
            axes.append((number >= -half) & (number < half))
        return axes[0][:, None] & axes[1][None]

    radians = center * torch.pi
    return square(radians + 0.2) & ~square(radians - 0.2)


def filtered(x: Float[Tensor, "*b h w"], mask: Bool[Tensor, "h w"]) -> Float[Tensor, "*b h w"]:
    """The part of each image in a band."""
    there = for_complex(x)
    return fft.ifft2(fft.fft2(there) * mask.to(there.device)).real.to(x.device)


def with_rms(x: Float[Tensor, "b c h w"], rms: float) -> Float[Tensor, "b c h w"]:
    """Each image scaled to a root mean square over channels and positions."""
    current = x.square().mean((1, 2, 3), keepdim=True).sqrt()
    return x * (rms / current.clamp(min=torch.finfo(x.dtype).tiny))


def basis_image(size: tuple[int, int], frequency: Frequency) -> Float[Tensor, "h w"]:
    """The real image of norm 1 that contains only a frequency, in cycles, and its opposite."""
    spectrum = torch.zeros(size, dtype=torch.complex128)
    (height, width), (i, j) = size, frequency
    spectrum[i % height, j % width] = 1
    spectrum[-i % height, -j % width] = 1
    image = fft.ifft2(spectrum).real
    return (image / image.norm()).float()


def half_plane(size: tuple[int, int], highest: int | None, step: int) -> list[Frequency]:
    """One of each two opposite frequencies, by rows; by default up to 8 cycles."""
    most = (min(size) - 1) // 2  # at Nyquist, a frequency is its own opposite
    highest = min(_HIGHEST, most) if highest is None else highest
    if highest > most:
        raise kit.InputError(
            f"max_frequency must be at most {most}, below the Nyquist frequency of "
            f"{size[0]}x{size[1]} images, got {highest}"
        )
    multiples = range(-(highest // step) * step, highest + 1, step)
    return [(i, j) for i in multiples for j in multiples if i > 0 or (i == 0 and j >= 0)]
