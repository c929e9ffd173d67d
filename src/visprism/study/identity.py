"""Which model a stored result is of: its weights, its code and what it returns."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import nn

from visprism.anatomy.trace.forward import forward
from visprism.anatomy.trace.operations import tensors_in
from visprism.core.errors import InputError
from visprism.core.provenance import bytes_of
from visprism.core.run import Run
from visprism.kit.analysis import Analysis
from visprism.kit.model_on_images import Subject, inputs_of
from visprism.passes.batches import on_device
from visprism.study.record import Header
from visprism.study.store import key_of

_NUMBERS = 64  # of the outputs, that are stored and compared
_APART = 1e-2  # relative; batches of another size are added up in another order
_RTOL, _ATOL = 1e-3, 1e-5  # rounding differs between machines and numbers of threads


@dataclass
class Identities:
    """What determines the results of a study: models, code, options, images and precision."""

    run: Run
    header: Header  # of the study
    # By name of the model: the fingerprint, and which of several models with these weights.
    models: dict[str, tuple[str, int]] = field(default_factory=dict)
    contents: dict[str, list[str]] = field(default_factory=dict)  # by analysis and options

    def add(self, subject: Subject) -> None:
        """Identify a model by its weights, its code and its outputs."""
        fingerprint = fingerprint_of(subject.model)
        stored = self.header.setdefault("outputs", {}).setdefault(fingerprint, [])
        version = version_of(outputs_of(subject, self.run), stored)
        self.models[subject.name] = fingerprint, version

    def key(
        self, analysis: type[Analysis], options: Mapping[str, Any], subjects: Sequence[Subject]
    ) -> str:
        """A digest of all that determines a result of one model, or of two."""
        of_recipe = [(s.weight_decay, s.decayed) if s.weight_decay else () for s in subjects]
        return key_of(
            models=[
                (s.name, *self.models[s.name], str(s.preprocessing), *recipe)
                for s, recipe in zip(subjects, of_recipe, strict=True)
            ],
            analysis=analysis.name,
            code="".join([plug_in_code(analysis), *self._content(analysis, options)]),
            options=options,
            images=subjects[0].num_images,
            batch_size=(subjects[0].batch_size, subjects[0].output_batch_size),
            precision=self.run.compute.precision,
            study=self.header.get("images"),
            training=self.header.get("training images"),
            seed=self.run.seed,
        )

    def _content(self, analysis: type[Analysis], options: Mapping[str, Any]) -> list[str]:
        """Digests of what the options name, read once; none of what cannot be read now."""
        key = f"{analysis.name} {options}"
        if key not in self.contents:
            try:
                self.contents[key] = analysis.content(options)
            except InputError:
                self.contents[key] = []
        return self.contents[key]


def fingerprint_of(model: nn.Module) -> str:
    """A digest of the parameters, the buffers, the structure and the code of a model.

    For each module it covers the methods of its class, unless it is one of torch, and
    attributes that are numbers, strings or tuples of these.
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

    Empty for analyses of visprism, which its version covers.
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

    Weights and methods do not tell everything that `forward` uses; outputs do. An image's
    outputs must not depend on the others of its batch, since analyses cut batches differently.

    Cost: two forward passes of at most two images, and one of each.
    """
    few = subject.limited(min(2, subject.num_images))
    both, *each = (inputs_of(batch) for number in (2, 1) for batch in few.batches(number))
    with torch.no_grad(), run.compute.borrow(subject.model):
        outputs, again, *alone = (
            forward(subject.model, on_device(images, run.compute))
            for images in (both, both, *each)
        )
    alone = torch.cat(alone)
    if alone.shape != outputs.shape:
        raise InputError(
            f"outputs of {subject.name} must have one row for each image, and a single image "
            f"has {len(alone) // len(each)}. squeeze() drops the axis of a single image; "
            "flatten(1) keeps it."
        )
    least = _APART * float(alone.abs().max())
    if float((outputs - again).abs().max()) > least:
        raise InputError(
            f"outputs of {subject.name} must be the same in every pass over the same images. "
            "In evaluation mode it must draw no random numbers, and not change its buffers."
        )
    apart = float((outputs - alone).abs().max())
    if apart > least:
        raise InputError(
            f"outputs of {subject.name} for an image must not depend on other images of its "
            f"batch, and differ by {apart:.3g} in a batch of one. `predict` measures it in "
            "the batches of a loader."
        )
    return outputs.flatten()[:_NUMBERS].cpu().double().tolist()


def version_of(outputs: Sequence[float], earlier: list[list[float | None]]) -> int:
    """Index of the outputs among outputs of earlier runs, to which new ones are added."""
    for index, stored in enumerate(earlier):
        if len(stored) == len(outputs) and np.allclose(
            outputs, np.array(stored, dtype=float), rtol=_RTOL, atol=_ATOL, equal_nan=True
        ):
            return index
    earlier.append(list(outputs))
    return len(earlier) - 1
