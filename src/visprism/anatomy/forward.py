"""The forward pass of any image classifier: one tensor or a dict in, logits out."""

import inspect
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from visprism.errors import InputError

Images = Tensor | Mapping[str, Tensor]


def forward(model: nn.Module, images: Images) -> Tensor:
    """The model's logits, or its first output where it has no logits.

    A mapping is passed by keyword where the model's ``forward`` has arguments of these names
    (as Hugging Face models have), and as one argument otherwise. Of an output with several
    parts the one called ``logits`` is taken, or else the first tensor.

    Raises:
        InputError: if the output holds no tensor.
    """
    if isinstance(images, Mapping) and set(images) <= set(_arguments(model)):
        return _logits(model(**images), model)
    return _logits(model(images), model)


def as_written() -> AbstractContextManager[Any]:
    """Inside, compiled modules run as they were written, and so show what is in them.

    Torch's compiler takes seconds to import, and where nobody has, nothing is compiled.
    """
    if "torch._dynamo" in sys.modules:
        return torch.compiler.set_stance("force_eager")
    return nullcontext()


def batch_size(images: Images) -> int:
    """Number of images in a batch."""
    first = images if isinstance(images, Tensor) else next(iter(images.values()))
    return len(first)


def _arguments(model: nn.Module) -> list[str]:
    return list(inspect.signature(model.forward).parameters)


def _logits(output: Any, model: nn.Module) -> Tensor:  # noqa: ANN401 (what a model returns)
    if isinstance(output, Tensor):
        return output
    if isinstance(getattr(output, "logits", None), Tensor):
        return output.logits
    if isinstance(output, Mapping):
        parts = [output[k] for k in ("logits", *output) if k in output]
    else:
        parts = list(output) if isinstance(output, tuple | list) else []
    for part in parts:
        if isinstance(part, Tensor):
            return part
    raise InputError(
        f"{type(model).__name__} returns {type(output).__name__} without a tensor in it; "
        "wanted logits, as a tensor or under the name 'logits'"
    )
