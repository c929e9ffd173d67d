"""Compiling: a model by torch.compile, where the machine has what that needs."""

from typing import cast

import torch
from torch import Tensor, nn

from visprism.core.errors import InputError


def compiled(model: nn.Module, device: torch.device) -> nn.Module:
    """The model compiled, for each size of a batch by itself; it shares the model's tensors.

    Code that serves all sizes would make the bits of a run depend on what it saw first, and a
    run that goes on would not end with the weights of one that was never stopped.

    Raises:
        InputError: if torch cannot compile here, as without a C++ compiler.
    """
    try:
        torch.compile(_tried)(torch.ones(2, device=device))
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputError(
            f"compile is true, but torch.compile does not work here ({reason}); install what "
            "it wants, on a CPU a C++ compiler such as g++, or set compile=false"
        ) from error
    return cast(nn.Module, torch.compile(model, dynamic=False))


def _tried(numbers: Tensor) -> Tensor:
    return torch.relu(numbers + 1)
