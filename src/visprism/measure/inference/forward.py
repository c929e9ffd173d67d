"""Forward passes without derivatives in the parameters, as inference settings say."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy import Images, forward
from visprism.core.devices import Compute
from visprism.core.inference import Inference
from visprism.measure.inference.batch_norm_folding import folded_constants
from visprism.measure.inference.memory_format import channels_last_kernels, to_channels_last
from visprism.passes.batches import on_device

Forward = Callable[[Images], Float[Tensor, "b ..."]]


@contextmanager
def prepared(
    model: nn.Module, settings: Inference, compute: Compute
) -> Iterator[Callable[[Images], Images]]:
    """Inside, the model runs as the settings say on what the function makes of images.

    The model lies on the device; its parameters keep their values. On exit every tensor, format
    and method of it is what it was, also after an exception.

    Cost: the memory of the kernels, if these are folded or change their format.
    """
    with ExitStack() as stack:
        stack.enter_context(compute.borrow(model))
        if settings.channels_last:
            stack.enter_context(channels_last_kernels(model))
        stack.enter_context(folded_constants(model, settings.folds))
        yield to_channels_last if settings.channels_last else _unchanged


@contextmanager
def inference(
    model: nn.Module, settings: Inference | None, compute: Compute
) -> Iterator[Forward]:
    """Inside, a function from images to the model's output; see `prepared`.

    Without settings the model runs as it is written.
    """
    with prepared(model, settings or Inference(), compute) as prepare:

        @torch.no_grad()
        def run(images: Images) -> Tensor:
            with compute.autocast():
                return forward(model, prepare(on_device(images, compute, copy=True)))

        yield run


def _unchanged(images: Images) -> Images:
    return images
