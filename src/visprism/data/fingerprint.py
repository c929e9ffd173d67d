"""Fingerprints: short texts by which other data, or another model, is told."""

from collections.abc import Iterable
from hashlib import blake2b

import torch
from torch import Tensor

_SOME = 16  # images, evenly spaced, as all of a large set would take long to read


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """A digest of shapes, types and values, in order: the same for the same ones alone."""
    digest = blake2b(digest_size=6)
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        raw = tensor.detach().cpu().contiguous().flatten()
        digest.update(raw.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def some_images(images: int) -> list[int]:
    """The numbers of the images that stand for all of them, the first and last included."""
    count = min(images, _SOME)
    return torch.linspace(0, max(images - 1, 0), count).round().long().tolist()
