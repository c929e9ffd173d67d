"""Fingerprints of models: what tells that a stored result belongs to the model at hand."""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from visprism.analyses.subject import Subject
from visprism.anatomy import forward
from visprism.core.run import Run
from visprism.measure.batches import on_device

_NUMBERS = 64  # of the outputs, that are stored and compared
_RTOL, _ATOL = 1e-3, 1e-5  # rounding differs between machines and numbers of threads


def fingerprint_of(model: nn.Module) -> str:
    """A digest of the parameters, the buffers and the structure of a model."""
    digest = blake2b(str(model).encode(), digest_size=16)
    for name, tensor in model.state_dict().items():
        if hasattr(tensor, "detach"):
            values = tensor.detach().cpu().contiguous()
            digest.update(f"{name}{tuple(values.shape)}{values.dtype}".encode())
            view = torch.uint8 if values.numel() else values.dtype
            digest.update(values.reshape(-1).view(view).numpy().tobytes())
    return digest.hexdigest()


def outputs_of(subject: Subject, run: Run) -> list[float]:
    """The first numbers of what a model returns for its first images.

    Weights do not tell how `forward` uses them; outputs do.

    Cost: one forward pass of at most two images.
    """
    (batch,) = subject.limited(min(2, subject.num_images)).batches(2)
    images = batch[0] if isinstance(batch, tuple | list) else batch
    with torch.no_grad(), run.compute.borrow(subject.model):
        outputs = forward(subject.model, on_device(images, run.compute))
    tensors = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
    numbers = [t.detach().flatten()[:_NUMBERS].double().cpu() for t in tensors if t.numel()]
    return torch.cat(numbers)[:_NUMBERS].tolist() if numbers else []


def version_of(outputs: Sequence[float], earlier: list[Sequence[float]]) -> int:
    """Index of the outputs among those of earlier runs, to which new ones are added."""
    for index, stored in enumerate(earlier):
        if len(stored) == len(outputs) and np.allclose(
            outputs, stored, rtol=_RTOL, atol=_ATOL, equal_nan=True
        ):
            return index
    earlier.append(list(outputs))
    return len(earlier) - 1
