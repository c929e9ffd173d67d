"""Bands of the frequency plane: rings of one width, and noise that lies in one of them.

Frequencies are in pi rad/pixel. A ring is symmetric about frequency 0, so what it lets pass of
a real image is real.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, fft

from visprism.core.errors import InputError

WIDTH = 0.1  # in pi rad/pixel
RINGS = ("square", "round")
_EXACT = 1e-9
CENTRES = tuple(round(0.1 * i, 1) for i in range(1, 10))


def check_ring(ring: str) -> None:
    """Whether there is such a ring.

    Raises:
        InputError: if not.
    """
    if ring not in RINGS:
        raise InputError(f"ring is {ring!r}; wants {' or '.join(RINGS)}")


def check_band(centre: float, width: float = WIDTH) -> None:
    """Whether there can be frequencies in a band.

    Raises:
        InputError: if not.
    """
    if not 0 < width <= 2:
        raise InputError(f"width is {width}; wants more than 0, and at most 2, in pi rad/pixel")
    if not 0 <= centre <= 2**0.5:
        raise InputError(
            f"there is no band at {centre}; wants the middle of one, 0 to 1 in pi rad/pixel"
        )


def radius(size: tuple[int, int], ring: str = "square") -> Float[Tensor, "h w"]:
    """Distance of each frequency from 0, in the order of `torch.fft.fft2`.

    The larger of its two parts where rings are square, its length where they are round; 1 is
    the Nyquist frequency of an axis.

    Raises:
        InputError: if there is no such ring.
    """
    check_ring(ring)
    vertical, horizontal = (2 * fft.fftfreq(n, dtype=torch.float64).abs() for n in size)
    if ring == "square":
        return torch.maximum(vertical[:, None], horizontal[None])
    return torch.hypot(vertical[:, None], horizontal[None])


def band(
    size: tuple[int, int], centre: float, *, width: float = WIDTH, ring: str = "square"
) -> Bool[Tensor, "h w"]:
    """The frequencies from centre - width / 2 up to but not centre + width / 2.

    Bands at 0, width, 2 width, ... share no frequency and leave none out. Of small images a
    band may hold none.

    Raises:
        InputError: if there cannot be such a band.
    """
    check_band(centre, width)
    # In whole widths: 0.1, 0.2, ... are not exact, and no frequency may be lost between two.
    steps = (radius(size, ring) - centre) / width
    return (steps >= -0.5 - _EXACT) & (steps < 0.5 - _EXACT)


def paper_band(size: tuple[int, int], centre: float) -> Bool[Tensor, "h w"]:
    """The ring of Park and Kim's code: between two squares of whole frequencies.

    Half its width is 0.2 rad/pixel. Its squares reach from -m to m - 1, so that it is not
    symmetric; of what it lets pass the real part is taken.
    """

    def within(reach: float) -> Bool[Tensor, "h w"]:
        axes = []
        for n in size:
            half = min(max(int(reach * n / (2 * torch.pi)), 0), n // 2)
            number = (n * fft.fftfreq(n, dtype=torch.float64)).round()
            axes.append((number >= -half) & (number < half))
        return axes[0][:, None] & axes[1][None]

    middle = centre * torch.pi
    return within(middle + 0.2) & ~within(middle - 0.2)


def filtered(x: Float[Tensor, "*b h w"], mask: Bool[Tensor, "h w"]) -> Float[Tensor, "*b h w"]:
    """What of each image lies in a band."""
    return fft.ifft2(fft.fft2(x) * mask.to(x.device)).real


def of_rms(x: Float[Tensor, "b c h w"], rms: float) -> Float[Tensor, "b c h w"]:
    """Each image scaled to a root mean square over channels and positions."""
    own = x.square().mean((1, 2, 3), keepdim=True).sqrt()
    return x * (rms / own.clamp(min=torch.finfo(x.dtype).tiny))
