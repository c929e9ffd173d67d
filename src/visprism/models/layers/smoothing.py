"""Spatial smoothing: a squashing non-linearity and a blur before the grid gets smaller."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, pad

_TEMPERATURE = 10.0  # Park and Kim's; values far below it pass unchanged


class SpatialSmoothing(nn.Module):
    """The mean over 2x2 pixels of relu(t tanh(x / t)), with t = 10; it has no parameters.

    The last row and column see their nearest pixels twice, so that a constant map keeps its
    value and the grid its size.

    Source: Park and Kim (2022), Blurs behave like ensembles: spatial smoothings to improve
    accuracy, uncertainty, and robustness, sec. 3.
    """

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The smoothed map."""
        squashed = (_TEMPERATURE * (x / _TEMPERATURE).tanh()).relu()
        return avg_pool2d(pad(squashed, (0, 1, 0, 1), mode="replicate"), 2, stride=1)
