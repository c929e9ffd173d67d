"""Displaced weights: a model's weights at another point for a while."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from visprism.anatomy import forward
from visprism.core.devices import delayed_interrupts
from visprism.measure.inference.memory_format import channels_last_kernels, to_channels_last
from visprism.measure.loss.cached_batches import CachedBatches
from visprism.measure.loss.landscape.directions import Direction, named_parameters

Move = Callable[[float, float], None]  # a, b


@contextmanager
def displaced_weights(model: nn.Module, first: Direction, second: Direction) -> Iterator[Move]:
    """Inside, ``move(a, b)`` gives the model the weights w + a first + b second.

    On exit it has its original tensors. Needs three times the memory of the parameters that
    move.
    """
    names = first.keys() | second.keys()
    parameters = {name: p for name, p, _ in named_parameters(model) if name in names}
    original = {name: parameter.data for name, parameter in parameters.items()}
    steps = [
        {n: d[n].to(original[n]).to(memory_format=_format(original[n])) for n in d}
        for d in (first, second)
    ]
    clear_caches = clear_weight_caches(model)

    def move(a: float, b: float) -> None:
        for name, parameter in parameters.items():
            parameter.data.copy_(original[name])
            for step, coordinate in zip(steps, (a, b), strict=True):
                if name in step:
                    parameter.data.add_(step[name], alpha=coordinate)
        clear_caches()

    try:
        for name, parameter in parameters.items():
            parameter.data = original[name].clone()
        yield move
    finally:
        with delayed_interrupts():
            for name, parameter in parameters.items():
                parameter.data = original[name]
            clear_caches()


def _format(tensor: Tensor) -> torch.memory_format:
    last = tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def clear_weight_caches(model: nn.Module) -> Callable[[], None]:
    """A function that clears what modules in evaluation mode have cached from their weights.

    LeViT, among others, caches its attention biases until it is next put into training mode.
    """
    caching = [m for m in model.modules() if type(m).train is not nn.Module.train]

    def clear() -> None:
        if caching:
            model.train(), model.eval()

    return clear


@contextmanager
def channels_last(model: nn.Module, samples: CachedBatches) -> Iterator[CachedBatches]:
    """Inside, kernels and samples have the memory format channels last, which is faster.

    Where the model fails with it, because it views feature maps as contiguous, nothing is
    changed. Models without 4-D kernels do not gain from it.
    """
    if not any(parameter.ndim == 4 for parameter in model.parameters()):
        yield samples
        return
    with ExitStack() as stack:
        stack.enter_context(channels_last_kernels(model))
        converted = _converted(samples)
        if not _runs(model, converted):
            stack.close()
            converted = samples
        yield converted


def _converted(samples: CachedBatches) -> CachedBatches:
    batches = ((to_channels_last(images), targets) for images, targets in samples.batches)
    return CachedBatches(tuple(batches), samples.image_shape)


def _runs(model: nn.Module, samples: CachedBatches) -> bool:
    try:
        with torch.no_grad():
            forward(model, samples.first_images())
    except RuntimeError:
        return False
    return True
