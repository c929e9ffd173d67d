"""Graphs: one batch's way from the parameters to the loss, and how a model is called for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy import Images, forward, pixels


@dataclass(frozen=True)
class Graph:
    """One batch's way from the parameters to the loss, as autograd keeps it."""

    leaves: list[Tensor]  # the chosen parameters
    logits: Tensor
    loss: Float[Tensor, ""]  # the sum over the examples
    examples: int


class Logits(nn.Module):
    """The model, called as `forward` calls it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Images) -> Tensor:
        """The logits."""
        return forward(self.model, images)


def flat(parts: Sequence[Tensor]) -> Float[Tensor, " p"]:
    """Tensors as one vector."""
    return torch.cat([part.flatten() for part in parts])


def moved(part: Images, device: torch.device) -> Images:
    """The images on a device."""
    if isinstance(part, Mapping):
        return {name: tensor.to(device) for name, tensor in part.items()}
    return part.to(device)


def first_images(images: Images) -> Images:
    """Two images at most."""
    count = len(pixels(images))
    if isinstance(images, Mapping):
        return {n: t[:2] if len(t) == count else t for n, t in images.items()}
    return images[:2]
