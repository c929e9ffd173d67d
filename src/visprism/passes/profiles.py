"""Profiles: the log amplitude of feature maps as a function of one frequency.

F(k, l) = sum_{u,v} x[u, v] exp(-2 pi i (k u / h + l v / w)) is the Fourier transform of a
feature map, log(|F| + 1e-6) its log amplitude. Channels that are zero everywhere in an image
have no spectrum and are left out of its mean, but not under the paper's protocol. So are
channels with nothing at a frequency (nearest upsampling has nothing at the highest): a zero has
no logarithm, and where no channel has anything, log(1e-6) stands for none. Frequencies
are in pi rad/pixel: 0 is the mean, 1 the highest that an even grid holds along an axis
(Nyquist).

Source: Park and Kim (2022), How do vision transformers work?, fig. 2a.
"""

import math
from functools import cache
from math import gcd, prod

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from visprism.core.devices import for_complex
from visprism.core.errors import InputError

# Keeps log finite where an amplitude is 0; the paper's code has 1e-6 too.
_FLOOR = 1e-6
_ROUNDING = 4  # units of the last digit, of the sum of the absolute values
NO_AMPLITUDE = math.log(_FLOOR)  # of a feature map that is zero everywhere

Grid = tuple[int, int]  # (height, width)


def _mean_over_live(
    amplitude: Float[Tensor, "b c n"], x: Float[Tensor, "b c h w"]
) -> Float[Tensor, "b n"]:
    """Mean log amplitude over the channels of an image that have some at a frequency.

    A dead channel has no spectrum; as a flat one it would draw the mean to 0 at every
    frequency. An amplitude within the rounding of its sum is zero. Where no channel has any,
    the log amplitude is the log of 1e-6, which stands for none.
    """
    changing = (x - x.mean((2, 3), keepdim=True)).abs().sum((2, 3))
    sizes = _ROUNDING * changing + x.abs().amax((2, 3))
    rounding = torch.finfo(x.dtype).eps * sizes.unsqueeze(2)
    live = (~(amplitude <= rounding)).to(amplitude)  # NaN is not dead
    fraction = live.mean(1)
    level = (live * (amplitude + _FLOOR).log()).mean(1) / fraction
    return torch.where(fraction == 0, NO_AMPLITUDE, level)


def log_amplitude_plane(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b h w"]:
    """Log amplitude at all frequencies, mean over channels; frequency 0 at (h // 2, w // 2)."""
    amplitude = torch.fft.fft2(for_complex(x)).abs().to(x.device)
    amplitude = torch.fft.fftshift(amplitude, dim=(-2, -1)).flatten(2)
    return _mean_over_live(amplitude, x).unflatten(1, x.shape[2:])


# Along the diagonal.


def diagonal_frequency(grid: Grid) -> Float[np.ndarray, "k"]:
    """Frequencies, along each axis, that the diagonal of the transform holds."""
    return 2 * np.arange(common_side(grid) // 2 + 1) / common_side(grid)


def diagonal(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
    """Log amplitude on the diagonal, from frequency 0 to the highest; mean over channels.

    With g = gcd(h, w), F(k h/g, k w/g) depends only on u + v mod g: it is the 1-D transform of
    the sums over the wrapped antidiagonals. No 2-D transform is made.
    """
    return _mean_over_live(_diagonal_of(x, common_side((x.shape[2], x.shape[3]))), x)


def _diagonal_of(x: Float[Tensor, "b c h w"], side: int) -> Float[Tensor, "b c k"]:
    """Amplitude on the diagonal."""
    mean = x.mean((2, 3), keepdim=True)
    # A column of zeros more, and place (u, v) comes to u (w + 1) + v = u + v mod side. Without
    # the mean, the sums keep their digits where it is large.
    padded = functional.pad(x - mean, (0, 1))
    antidiagonals = padded.flatten(2).unflatten(2, (-1, side)).sum(2)
    amplitude = torch.fft.rfft(for_complex(antidiagonals)).abs().to(x.device)
    amplitude[..., 0] = mean[..., 0, 0].abs() * prod(x.shape[2:])
    return amplitude


def common_side(grid: Grid) -> int:
    """The side whose frequencies both axes of a grid have."""
    side = gcd(*grid)
    if side == 1 and prod(grid) > 1:
        raise InputError(
            f"height and width must have a common divisor for the diagonal profile, got "
            f"{grid[0]}x{grid[1]}. Use profile='radial'."
        )
    return side


# Along the diagonal, as the paper's code does it.


def paper_frequency(grid: Grid) -> Float[np.ndarray, "k"]:
    """The labels of the paper's figures, wrong for even sides: 1 stands at 1 - 2/n."""
    return np.linspace(0, 1, (grid[0] + 1) // 2)


def paper_diagonal(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
    """As `diagonal`, without the Nyquist frequency, which the paper's code leaves out.

    Channels that are zero everywhere count too, as frequencies of amplitude 1e-6.
    """
    h, w = x.shape[2:]
    if h != w:
        raise InputError(
            f"feature maps must be square for protocol='paper', got {h}x{w}. Use "
            "protocol='default'."
        )
    return (_diagonal_of(x, h)[..., : (h + 1) // 2] + _FLOOR).log().mean(1)


# Over rings.


def radial_frequency(grid: Grid) -> Float[np.ndarray, "k"]:
    """Mean radius of each ring's frequencies."""
    return _rings(grid)[1]


def radial(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
    """Log amplitude, mean over all directions, for rings of the frequency plane, and channels.

    Ring k > 0 holds the radii in (2 (k - 1)/n, 2 k/n], n the shorter side; the last one ends at
    the highest frequency along an axis, so the corners of the plane are in none.
    """
    weights = torch.from_numpy(_rings((x.shape[2], x.shape[3]))[0]).to(x)
    mean = x.mean((2, 3), keepdim=True)
    amplitude = torch.fft.rfft2(for_complex(x - mean)).abs().to(x.device)
    amplitude[..., 0, 0] = mean[..., 0, 0].abs() * prod(x.shape[2:])
    level = _mean_over_live(amplitude.flatten(2), x)
    present = (level != NO_AMPLITUDE).to(level)
    share = present @ weights
    return torch.where(share == 0, NO_AMPLITUDE, (level * present) @ weights / share)


@cache
def _rings(grid: Grid) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, "k"]]:
    """Weight of each frequency of a half plane in each ring, and the rings' mean radii."""
    h, w = grid
    across = 2 * np.abs(np.fft.fftfreq(h))[:, None]
    along = 2 * np.fft.rfftfreq(w)[None]
    radius = np.hypot(across, along)
    shorter = min(grid)
    ring = np.ceil(radius * shorter / 2 - 1e-9).astype(int)  # rounding must not move an edge
    mirrored = np.where((along == 0) | (along == 1), 1, 2)  # columns that stand for two
    weights = (ring[..., None] == np.arange(shorter // 2 + 1)) * mirrored[..., None]
    weights = weights.reshape(-1, weights.shape[-1]) / weights.sum((0, 1))
    return weights, radius.reshape(-1) @ weights
