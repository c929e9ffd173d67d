"""Fingerprints: short digests by which different data or weights are recognized."""

from collections.abc import Iterable
from hashlib import blake2b

import torch
from torch import Tensor


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """A digest of the shapes, types and values of tensors, in their order."""
    digest = blake2b(digest_size=6)
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        values = tensor.detach().cpu().contiguous().flatten()
        digest.update(values.view(torch.uint8).numpy().data)
    return digest.hexdigest()
