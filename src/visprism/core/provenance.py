"""Provenance: where a result comes from; the machine, the code, and digests of data."""

import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_version = cache(version)  # of a package; reading it takes a millisecond


@dataclass(frozen=True)
class Provenance:
    """Where a result comes from: all that is needed to reproduce it."""

    model: str = ""  # as the user named it
    data: str = ""  # as the user named it, with its split
    split: str = ""  # "train" or "test"; "" where the data has one part only
    images: int = 0  # how many were measured
    image_shape: tuple[int, ...] = ()  # (channels, height, width)
    batch_size: int = 0
    preprocessing: str = ""
    task: str = "classification"  # what outputs and targets mean
    protocol: str = "default"  # "default", or "paper" for what the reference's code does
    precision: str = "fp32"
    device: str = "cpu"
    processes: int = 1
    seed: int = 0
    command: str = ""
    created: str = ""  # ISO date
    visprism: str = field(default_factory=lambda: _version("visprism"))
    torch: str = field(default_factory=lambda: _version("torch"))
    python: str = field(default_factory=platform.python_version)

    def sentence(self) -> str:
        """The provenance in one line, as in the caption of every figure."""
        shape = "x".join(map(str, self.image_shape))
        parts = [
            self.model,
            f"{self.images} image{'s' * (self.images != 1)} of {self.data or 'unnamed data'}"
            if self.images
            else self.data,
            shape,
            self.preprocessing,
            "" if self.task == "classification" else f"task: {self.task}",
            f"protocol: {self.protocol}",
            f"{self.precision} on {self.device}",
            f"visprism {self.visprism}, torch {self.torch}",
        ]
        return " · ".join(part for part in parts if part)


def machine() -> str:
    """Processor and threads, such as ``4-core x86_64 CPU (AVX512), 2 threads``."""
    import torch  # seconds

    instructions = torch.backends.cpu.get_cpu_capability()
    threads = torch.get_num_threads()
    return (
        f"{os.cpu_count()}-core {platform.machine()} CPU ({instructions}), {threads} "
        f"thread{'' if threads == 1 else 's'}"
    )


_ROOT = Path(__file__).parents[3]  # of a checkout
_SECONDS = 10


@cache
def revision(root: Path = _ROOT) -> str:
    """The commit of a checkout, and whether its files differ; "" without a checkout or git."""
    if not (root / ".git").exists():  # a file in a work tree
        return ""
    commit = _git(root, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return ""
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}, with changes that are not committed" if changed else commit


def _git(root: Path, *arguments: str) -> str:
    """What git prints; "" if it fails."""
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def fingerprint(tensors: "Iterable[Tensor]") -> str:
    """A digest of the shapes, types and values of tensors, in their order."""
    digest = blake2b(digest_size=6)
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(bytes_of(tensor))
    return digest.hexdigest()


def bytes_of(tensor: "Tensor") -> memoryview:
    """The values of a tensor as they lie in memory; quantized ones as numbers."""
    import torch

    values = tensor.detach().cpu()
    if values.is_quantized:
        values = values.dequantize()
    values = values.contiguous().reshape(-1)
    # A view of no entries as another type is not possible.
    return (values.view(torch.uint8) if values.numel() else values).numpy().data
