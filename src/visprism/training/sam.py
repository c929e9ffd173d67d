"""Sharpness-aware minimisation: the gradient from where the loss is highest nearby.

Sources: Foret et al. (2021), Sharpness-aware minimization; Kwon et al. (2021), ASAM.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

_ETA = 0.01  # keeps weights that are 0 movable (Kwon et al., 2021, sec. 4)


def ascent(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], rho: float, *, adaptive: bool
) -> list[Tensor]:
    """The step d from the weights w to where the loss is highest, to first order.

    SAM: d = rho g / |g|. ASAM: d = rho T² g / |T g| with T = |w| + 0.01, entry by entry. Norms
    are those of all parameters together; where the gradient is zero, so is the step.

    Source: Foret et al. (2021), eq. 2; Kwon et al. (2021), eq. 8.
    """
    scales = [w.abs() + _ETA if adaptive else torch.ones_like(w) for w in weights]
    scaled = [t * g for t, g in zip(scales, gradients, strict=True)]
    length = torch.stack([torch.linalg.vector_norm(s) for s in scaled]).norm()
    factor = torch.where(length > 0, rho / length, 0.0)
    return [factor * t * s for t, s in zip(scales, scaled, strict=True)]


@contextmanager
def ascended(model: nn.Module, rho: float, *, adaptive: bool) -> Iterator[None]:
    """Inside, the weights are where their gradients point; then back, bit for bit.

    CumulativeSums statistics stay those of the weights themselves: they are not updated inside.
    """
    moved = [p for p in model.parameters() if p.grad is not None]
    own = [p.detach().clone() for p in moved]
    steps = ascent(own, [p.grad for p in moved if p.grad is not None], rho, adaptive=adaptive)
    norms = [m for m in model.modules() if isinstance(m, _NormBase) and m.track_running_stats]
    try:
        with torch.no_grad():
            for parameter, step in zip(moved, steps, strict=True):
                parameter.add_(step)
        for norm in norms:
            norm.track_running_stats = False
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
        with torch.no_grad():
            for parameter, weights in zip(moved, own, strict=True):
                parameter.copy_(weights)
