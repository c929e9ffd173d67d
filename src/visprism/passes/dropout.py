"""Monte Carlo dropout: stochastic passes of a model in which nothing but dropout is random.

Source: Gal and Ghahramani (2016), Dropout as a Bayesian approximation.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from visprism.core.devices import Compute
from visprism.core.run import stream

_DROPOUT = nn.modules.dropout._DropoutNd
# Modules of stochastic depth drop residual branches, not units.
_STOCHASTIC_DEPTH = ("DropPath", "StochasticDepth")


def dropout_modules(model: nn.Module) -> list[nn.Module]:
    """The modules whose training mode turns dropout on.

    These are dropout modules, and modules that own a dropout probability and ask for their own
    mode, as fused attention and functional dropout do: those with a dropout module as a child,
    or with a number whose name contains "drop". Modules that contain a normalization with
    running statistics are left out.
    """
    return [module for module in model.modules() if _has_dropout(module)]


@contextmanager
def stochastic(model: nn.Module, compute: Compute, seed: int, *use: object) -> Iterator[None]:
    """Inside, dropout is active, with a random stream; nothing else is in training mode."""
    device = compute.torch_device
    generator = stream(seed, "dropout", *use)
    modules = dropout_modules(model)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.random.set_rng_state(generator.get_state())
        if device.type == "cuda":
            torch.cuda.manual_seed(generator.initial_seed())
        try:
            for module in modules:
                module.training = True  # its children keep their mode
            yield
        finally:
            for module in modules:
                module.training = False


def _has_dropout(module: nn.Module) -> bool:
    if isinstance(module, _DROPOUT):
        return module.p > 0
    if type(module).__name__ in _STOCHASTIC_DEPTH or _has_running_statistics(module):
        return False
    children = any(isinstance(child, _DROPOUT) and child.p > 0 for child in module.children())
    return children or any(
        isinstance(value, float) and 0 < value < 1
        for name, value in vars(module).items()
        if "drop" in name and "path" not in name and "depth" not in name
    )


def _has_running_statistics(module: nn.Module) -> bool:
    return any("running_" in name for name, _ in module.named_buffers())
