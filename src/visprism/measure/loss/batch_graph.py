"""Graphs of single batches, from the parameters to the loss."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy import Images, forward


@dataclass(frozen=True)
class BatchGraph:
    """The computation of one batch's loss from the parameters, as autograd holds it."""

    leaves: list[Tensor]  # the chosen parameters
    logits: Tensor
    loss: Float[Tensor, ""]  # sum over the examples
    examples: int


class LogitsModule(nn.Module):
    """A model as a module whose `forward` returns logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Images) -> Tensor:
        """The logits."""
        return forward(self.model, images)


def flatten(tensors: Sequence[Tensor]) -> Float[Tensor, " p"]:
    """Tensors as one vector."""
    return torch.cat([tensor.flatten() for tensor in tensors])
