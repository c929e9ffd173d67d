"""Inquiries: what a user wants to have measured, on which images, and how."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from visprism.core.devices import CPU, Compute


@runtime_checkable
class Progress(Protocol):
    """Wraps what is gone through, and shows how far it is under a label."""

    def __call__(self, items: Iterable, label: str) -> Iterable:
        """The same items."""
        ...


@dataclass(frozen=True)
class Inquiry:
    """What to measure, on which images, and how."""

    data: str  # as `load_data` takes it
    analyses: tuple[str, ...] = (
        "fourier",
        "variance",
        "attention",
        "cka",
        "receptive-field",
        "weights",
        "uncertainty",
        "hessian",
        "density",
        "landscape",
        "robustness",
        "lesion",
        "noise",
        "attack",
        "shape-bias",
    )
    split: str | None = None
    limit: int | None = None  # number of images
    field_images: int | None = 8  # at most, for receptive fields; None: all
    batch_size: int = 16
    size: tuple[int, int] | None = None  # (height, width); None: what each model wants
    skip_bad: bool = False  # leave out images that cannot be read
    seed: int = 0
    compute: Compute = CPU
    protocol: Literal["default", "paper"] = "default"
    profile: Literal["diagonal", "radial"] = "diagonal"
    minutes: float = 3.0  # for what `visprism.examine.budget.SHARES` names, of each model
    kernel: str = "linear"  # of CKA; or "rbf"
    command: str = ""  # for the provenance
