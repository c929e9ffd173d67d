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
        digest.update(bytes_of(tensor))
    return digest.hexdigest()


def bytes_of(tensor: Tensor) -> memoryview:
    """The values of a tensor as they lie in memory; quantized ones as numbers."""
    values = tensor.detach().cpu()
    if values.is_quantized:
        values = values.dequantize()
    values = values.contiguous().reshape(-1)
    # A view of no entries as another type is not possible.
    return (values.view(torch.uint8) if values.numel() else values).numpy().data
