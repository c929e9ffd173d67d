"""Forward passes that give logits: the size of their batches, and their memory format, by rule.

Both change speed and rounding, never the quantity. No clock is read: two runs on one machine
are equal bit for bit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.anatomy.trace.forward import Images, forward
from visprism.core.devices import Compute
from visprism.passes.batches import in_halves, on_device

Forward = Callable[[Images], Float[Tensor, "b ..."]]

_PIXELS = {"cpu": 100 * 32 * 32, "other": 2**22}  # of a batch: caches of a CPU, a full GPU
_FEWEST = 16  # images of a batch


def default_batch_size(shape: Sequence[int], compute: Compute) -> int:
    """Images of a forward pass for images (..., height, width), on this kind of device."""
    height, width = shape[-2:]
    kind = "cpu" if compute.torch_device.type == "cpu" else "other"
    return max(_FEWEST, _PIXELS[kind] // max(1, height * width))


@contextmanager
def inference(model: nn.Module, compute: Compute) -> Iterator[Forward]:
    """Inside, a function from images to the model's output, without derivatives.

    The images of a convolutional model on a CPU have the memory format channels last, for which
    kernels are up to 1.5 times as fast, unless the model fails with it, as one that views its
    feature maps as contiguous does. A batch that does not fit the memory runs in halves.
    """
    is_cpu = compute.torch_device.type == "cpu"
    convolutional = any(isinstance(module, nn.Conv2d) for module in model.modules())
    last = is_cpu and convolutional

    @torch.no_grad()
    def run(images: Images) -> Tensor:
        nonlocal last
        with compute.autocast():
            if last:
                try:
                    return forward(model, _channels_last(on_device(images, compute)))
                except RuntimeError:
                    last = False
            return forward(model, on_device(images, compute))

    with compute.borrow(model):
        yield partial(in_halves, run)


def _channels_last(images: Images) -> Images:
    if isinstance(images, Mapping):
        return {name: _channels_last(tensor) for name, tensor in images.items()}  # pyrefly: ignore
    form = torch.channels_last if images.ndim == 4 else torch.preserve_format
    return images.to(memory_format=form)
