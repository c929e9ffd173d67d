"""Models whose probabilities are a mean: over several models, or over passes with dropout."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy.trace.forward import Images, batch_size, forward, pixels
from visprism.core.errors import InputError
from visprism.core.provenance import fingerprint
from visprism.core.run import stream

_DROPOUT = nn.modules.dropout._DropoutNd
# Modules of stochastic depth drop residual branches, not units.
_STOCHASTIC_DEPTH = ("DropPath", "StochasticDepth")


class Ensemble(nn.Module):
    """The log of the mean probability of several classifiers with the same classes.

    Any analysis of outputs takes it, as it takes one model. Costs a pass of each model.

    Args:
        models: in evaluation mode, on one device; they state the same preprocessing, or none.

    Example:
        >>> model = Ensemble([nn.Identity(), nn.Identity()])
        >>> model(torch.tensor([[0.0, 0.0]])).exp()
        tensor([[0.5000, 0.5000]])

    Source: Lakshminarayanan et al. (2017), Simple and scalable predictive uncertainty
    estimation using deep ensembles.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        if not models:
            raise InputError("models must hold at least one, got none")
        self.models = nn.ModuleList(models)
        self.training = self.models.training = False  # the models keep their modes
        _state_as(self, models)

    def forward(self, images: Images) -> Float[Tensor, "b k"]:
        """Log-probabilities."""
        logits = [forward(model, images) for model in self.models]
        return _log_mean_probability(torch.stack(logits))


class MonteCarloDropout(nn.Module):
    """The log of the mean probability of several passes of a classifier with dropout.

    Only dropout is active, also inside fused attention: normalization and stochastic depth stay
    as they are. Draws follow from the seed and the image, so that the same image has the same
    output in every batch. Any analysis of outputs takes it, as it takes one model. Costs
    `passes` passes, in batches of as many copies of each image.

    Args:
        model: in evaluation mode.
        passes: number of passes.
        seed: of the random numbers.

    Source: Gal and Ghahramani (2016), Dropout as a Bayesian approximation.
    """

    def __init__(self, model: nn.Module, passes: int = 5, *, seed: int = 0) -> None:
        super().__init__()
        if passes < 1:
            raise InputError(f"passes must be at least 1, got {passes}")
        if not dropout_modules(model):
            raise InputError(
                "model must have dropout with a probability above 0, got "
                f"{type(model).__name__} without it"
            )
        self.model, self.passes, self.seed = model, passes, seed
        self.training = False  # the model keeps its mode
        _state_as(self, [model])

    def forward(self, images: Images) -> Float[Tensor, "b k"]:
        """Log-probabilities."""
        rows = []
        # Two copies in a batch would be taken for the two images of a dissection.
        sizes = [1, 1] if self.passes == 2 else [self.passes]
        with _dropping(self.model, pixels(images).device):
            for index, image in enumerate(pixels(images)):
                _seed(image.device, stream(self.seed, "dropout", fingerprint([image])))
                parts = [forward(self.model, _copies(images, index, n)) for n in sizes]
                rows.append(_log_mean_probability(torch.cat(parts)))
        return torch.stack(rows)


def dropout_modules(model: nn.Module) -> list[nn.Module]:
    """The modules whose training mode turns dropout on.

    These are dropout modules, and modules that own a dropout probability and ask for their own
    mode, as fused attention and functional dropout do: those with a dropout module as a child,
    or with a number whose name contains "drop". Modules that contain a normalization with
    running statistics are left out.
    """
    return [module for module in model.modules() if _has_dropout(module)]


def _state_as(model: nn.Module, members: Sequence[nn.Module]) -> None:
    """Let a model state the preprocessing that its members state, which must be the same."""
    for name in ("preprocessing", "pretrained_cfg", "default_cfg"):
        stated = [getattr(member, name, None) for member in members]
        if any(_settings(one) != _settings(stated[0]) for one in stated):
            texts = " and ".join(map(str, map(_settings, stated)))
            raise InputError(f"models must state the same preprocessing, got {texts}")
        setattr(model, name, stated[0])


def _settings(stated: Any) -> Any:
    """What says how images are prepared, of a configuration of timm."""
    if isinstance(stated, Mapping):
        return {name: stated.get(name) for name in ("input_size", "mean", "std")}
    return stated


def _seed(device: torch.device, generator: torch.Generator) -> None:
    """Let dropout on a device draw from the seed of a generator."""
    torch.default_generator.manual_seed(generator.initial_seed())
    if device.type == "cuda":
        with torch.cuda.device(device):  # it seeds the current one
            torch.cuda.manual_seed(generator.initial_seed())


def _copies(images: Images, index: int, number: int) -> Images:
    """A batch of copies of one image, with what a mapping holds for all images."""
    rows, images_there = [index] * number, batch_size(images)
    if isinstance(images, Mapping):
        return {n: t[rows] if len(t) == images_there else t for n, t in images.items()}
    return images[rows]


def _log_mean_probability(logits: Float[Tensor, "n *b k"]) -> Float[Tensor, "*b k"]:
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return exact.log_softmax(-1).logsumexp(0) - math.log(len(exact))


@contextmanager
def _dropping(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside, dropout is active; afterwards modes and random states are as before."""
    modes = {module: module.training for module in dropout_modules(model)}
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            for module in modes:
                module.training = True  # its children keep their mode
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode


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
