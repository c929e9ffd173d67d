"""Fingerprints of models: what tells that a stored result belongs to the model at hand."""

import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from visprism.analyses.base import Analysis
from visprism.analyses.subject import Subject
from visprism.anatomy import forward
from visprism.anatomy.trace.operations import tensors_in
from visprism.core.provenance import bytes_of
from visprism.core.run import Run
from visprism.passes.batches import on_device

_NUMBERS = 64  # of the outputs, that are stored and compared
_RTOL, _ATOL = 1e-3, 1e-5  # rounding differs between machines and numbers of threads


def fingerprint_of(model: nn.Module) -> str:
    """A digest of the parameters, the buffers, the structure and the code of a model.

    Of each module it covers the methods of its class, unless it is one of torch, and attributes
    that are numbers, strings or tuples of these.
    """
    digest = blake2b(str(model).encode(), digest_size=16)
    codes: dict[type, str] = {}
    for name, module in model.named_modules():
        kind = type(module)
        if kind not in codes:
            codes[kind] = code_of(kind)
        settings = {k: v for k, v in sorted(vars(module).items()) if _is_setting(k, v)}
        digest.update(f"{name}{codes[kind]}{settings}".encode())
    for name, value in model.state_dict().items():
        for tensor in tensors_in(value):  # quantized layers hold theirs in tuples
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(bytes_of(tensor))
    return digest.hexdigest()


def code_of(cls: type) -> str:
    """A digest of the methods of a class and of its bases outside of torch and Python."""
    digest = blake2b(digest_size=16)
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in ("torch", "builtins", "abc", "typing"):
            continue
        for name, value in sorted(vars(base).items()):
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if isinstance(function, FunctionType):
                digest.update(f"{name}{_code_text(function.__code__)}".encode())
    return digest.hexdigest()


def plug_in_code(cls: type[Analysis]) -> str:
    """A digest of the file of an analysis outside of visprism, or of its class without a file.

    Empty for those of visprism, which its version covers.
    """
    if cls.__module__.partition(".")[0] == "visprism":
        return ""
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if path is None or not Path(path).is_file():
        return code_of(cls)
    return blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()


def _code_text(code: CodeType) -> str:
    """What a function does, without the places of its lines."""
    constants = [
        _code_text(c)
        if isinstance(c, CodeType)
        else repr(sorted(map(repr, c)) if isinstance(c, frozenset) else c)
        for c in code.co_consts
    ]
    return repr((code.co_code, constants, code.co_names, code.co_varnames))


def _is_setting(name: str, value: Any) -> bool:
    """Whether an attribute of a module is a plain value that `forward` may use."""
    values = value if isinstance(value, tuple | list) else (value,)
    plain = all(isinstance(v, bool | int | float | str | None) for v in values)
    return plain and name != "training" and not name.startswith("_")


def outputs_of(subject: Subject, run: Run) -> list[float]:
    """The first numbers of what a model returns for its first images.

    Weights and methods do not tell everything that `forward` uses; outputs do.

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
