"""CIFAR, and stored sets of corrupted images: CIFAR-10-C, CIFAR-100-C, ImageNet-C.

The images of ImageNet-C have been resized to 256 and cropped to 224 before they were corrupted.
A model's own preprocessing would do both once more, which blurs the corruption, so stored sets
are marked as framed, and images are not cropped.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np
from jaxtyping import Int64
from PIL import Image

from visprism.core.errors import InputError
from visprism.images.corruptions.severities import check_severity
from visprism.images.folders import folder
from visprism.images.image_set import DATA, ImageSet, chosen_split

_CIFAR10 = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_SEVERITIES, _NOISE = 5, "gaussian_noise"


def home() -> Path:
    """The folder of downloads: the variable VISPRISM_HOME, or ~/.cache/visprism."""
    return Path(os.environ.get("VISPRISM_HOME", "~/.cache/visprism")).expanduser()


@DATA.register
def cifar10(*, split: str | None = None) -> ImageSet:
    """60,000 photographs of 32x32 pixels in ten classes; downloaded (170 MB) where missing."""
    return _cifar("cifar10", split)


@DATA.register
def cifar100(*, split: str | None = None) -> ImageSet:
    """60,000 photographs of 32x32 pixels in a hundred classes; downloaded (169 MB)."""
    return _cifar("cifar100", split)


def _cifar(name: str, split: str | None) -> ImageSet:
    from torchvision import datasets  # takes a second to import

    split = chosen_split(("train", "test"), split, name)
    kind = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    root = home() / "data"
    try:
        stored = kind(str(root), train=split == "train", download=True)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"{name} is not in {root} and could not be downloaded ({error}). Put its folder "
            f"{kind.base_folder} there."
        ) from error
    targets = np.array(stored.targets)
    images = _array_set(name, tuple(stored.classes), targets, stored.data.__getitem__)
    return replace(images, split=split, framed=False)


@DATA.register
def cifar10_c(
    path: str, *, split: str | None = None, corruption: str = _NOISE, severity: int = 3
) -> ImageSet:
    """CIFAR-10-C, from DIR with CORRUPTION.npy and labels.npy; severity 1 to 5."""
    return _cifar_c("cifar10_c", path, split, corruption, severity, 10)


@DATA.register
def cifar100_c(
    path: str, *, split: str | None = None, corruption: str = _NOISE, severity: int = 3
) -> ImageSet:
    """CIFAR-100-C, from DIR with CORRUPTION.npy and labels.npy; severity 1 to 5."""
    return _cifar_c("cifar100_c", path, split, corruption, severity, 100)


@DATA.register
def imagenet_c(
    path: str, *, split: str | None = None, corruption: str = _NOISE, severity: int = 3
) -> ImageSet:
    """ImageNet-C, from DIR with CORRUPTION/SEVERITY/CLASS/IMAGE; severity 1 to 5."""
    check_severity(severity)
    chosen_split(("test",), split, "imagenet_c")
    root = Path(path).expanduser()
    available = {p.parent.name for p in root.glob(f"*/{severity}") if p.is_dir()}
    if corruption not in available:
        missing = f"{corruption}/{severity}/CLASS"
        raise InputError(_missing("imagenet_c", root, missing, available))
    images = folder(str(root / corruption / str(severity)))
    return replace(images, source=f"imagenet_c:{path}", framed=True)


def stored_conditions(spec: str) -> list[str]:
    """The specification of each corruption and severity of a stored set; others as they are.

    ``imagenet_c:DIR`` without options becomes one for each CORRUPTION/SEVERITY in DIR, and
    ``cifar10_c:DIR`` and ``cifar100_c:DIR`` one for each CORRUPTION.npy and severity.
    """
    name, _, path = spec.partition(":")
    if name not in _CORRUPTED or "?" in path:
        return [spec]
    root = Path(path).expanduser()
    if name == "imagenet_c":
        cases = {(p.parent.name, p.name) for p in root.glob("*/[1-5]") if p.is_dir()}
    else:
        files = {p.stem for p in root.glob("*.npy")} - {"labels"}
        cases = {(stem, str(s)) for stem in files for s in range(1, _SEVERITIES + 1)}
    if not cases:
        raise InputError(f"{spec} must hold corruptions and severities, got none in {root}")
    return [f"{spec}?corruption={c}&severity={s}" for c, s in sorted(cases)]


def condition_of(spec: str) -> tuple[str, int]:
    """Corruption and severity of a stored set with one; ("", 0) for others.

    Example:
        >>> condition_of("imagenet_c:DIR?corruption=fog&severity=5")
        ('fog', 5)
    """
    body, _, query = spec.partition("?")
    if body.partition(":")[0] not in _CORRUPTED:
        return "", 0
    options = {"corruption": _NOISE, "severity": "3"} | dict(parse_qsl(query))
    return options["corruption"], int(options["severity"])


_CORRUPTED = ("cifar10_c", "cifar100_c", "imagenet_c")


def _cifar_c(
    name: str, path: str, split: str | None, corruption: str, severity: int, classes: int
) -> ImageSet:
    check_severity(severity)
    chosen_split(("test",), split, name)
    root = Path(path).expanduser()
    images = _array(name, root, corruption, 4)
    labels = _array(name, root, "labels", 1)
    number, rest = divmod(len(images), _SEVERITIES)
    if rest or len(labels) != len(images):
        raise InputError(
            f"{name} must have one label per image of each of {_SEVERITIES} severities, got "
            f"{len(images)} images in {corruption}.npy and {len(labels)} labels in labels.npy"
        )
    first = (severity - 1) * number
    targets = labels[first : first + number].astype(np.int64)
    names = _CIFAR10 if classes == 10 else tuple(map(str, range(classes)))
    return _array_set(f"{name}:{path}", names, targets, lambda i: images[first + i])


def _array_set(
    source: str,
    class_names: tuple[str, ...],
    targets: Int64[np.ndarray, " n"],
    pixels: Callable[[int], np.ndarray],
) -> ImageSet:
    return ImageSet(
        source=source,
        split="",
        class_names=class_names,
        targets=targets,
        read=lambda indices: [Image.fromarray(np.array(pixels(i))) for i in indices],
        framed=True,
    )


def _array(name: str, root: Path, stem: str, axes: int) -> np.ndarray:
    """A stored array, which stays on the disk."""
    file = root / f"{stem}.npy"
    if not file.is_file():
        available = {p.stem for p in root.glob("*.npy")} - {"labels"}
        raise InputError(_missing(name, root, f"{stem}.npy", available))
    try:
        stored = np.load(file, mmap_mode="r")
    except (ValueError, EOFError, OSError, TypeError) as error:
        raise InputError(
            f"{file} of {name} is damaged or incomplete ({error}). Download it again."
        ) from error
    right_type = stored.dtype == np.uint8 if axes > 1 else stored.dtype.kind in "iu"
    right_shape = stored.ndim == axes and len(stored) and (axes == 1 or stored.shape[-1] == 3)
    if not (right_type and right_shape):
        kind = "labels (n,)" if axes == 1 else "images (..., height, width, 3) of uint8"
        raise InputError(
            f"{file} of {name} must hold {kind}, got {stored.dtype} of shape {stored.shape}"
        )
    return stored


def _missing(name: str, root: Path, wanted: str, available: set[str]) -> str:
    there = f"it has {', '.join(sorted(available))}" if available else "it holds no such set"
    return f"{name}: there is no {root}/{wanted}; {there}"
