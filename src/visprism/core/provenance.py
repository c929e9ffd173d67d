"""Provenance: where a result comes from."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.metadata import version
from typing import Any

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

    @classmethod
    def from_stored(cls, values: Mapping[str, Any]) -> "Provenance":
        """The provenance in a file; unknown entries of other versions are dropped."""
        names = {f.name for f in fields(cls)}
        stored = {name: value for name, value in values.items() if name in names}
        if "image_shape" in stored:
            stored["image_shape"] = tuple(stored["image_shape"])
        return cls(**stored)

    def sentence(self) -> str:
        """The provenance in one line, as in the caption of every figure."""
        shape = "x".join(map(str, self.image_shape))
        parts = [
            self.model,
            f"{self.images} images of {self.data or 'unnamed data'}"
            if self.images
            else self.data,
            shape,
            self.preprocessing,
            f"protocol: {self.protocol}",
            f"{self.precision} on {self.device}",
            f"visprism {self.visprism}, torch {self.torch}",
        ]
        return " · ".join(part for part in parts if part)
