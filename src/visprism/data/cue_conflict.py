"""Cue conflicts: images with the shape of one category and the texture of another.

Source: Geirhos et al. (2019), ImageNet-trained CNNs are biased towards texture; increasing
shape bias improves accuracy and robustness, whose files are named so.
"""

import re
from pathlib import Path

import numpy as np

from visprism.core.errors import InputError
from visprism.data.decode import decode, fault
from visprism.data.folder import images_below
from visprism.data.image_set import DATA, ImageSet

# cat1-elephant2.png: the first cat's shape, the second elephant's texture
_NAME = re.compile(r"(?P<shape>[A-Za-z_ ]+?)\d*-(?P<texture>[A-Za-z_ ]+?)\d*")


@DATA.register
def cue_conflict(path: str, *, split: str | None = None) -> ImageSet:
    """Images named SHAPE-TEXTURE, such as cat1-car2.png, below DIR; the class is the shape."""
    name = f"cue_conflict:{path}"
    root = Path(path).expanduser()
    if not root.is_dir():
        raise InputError(f"{name} must be an existing folder, got {root}")
    if split is not None:
        raise InputError(f"split must be None for {name}, got {split!r}")
    files = images_below(root)
    if not files:
        raise InputError(f"{name} must hold images such as cat/cat1-car2.png, got none")
    named = [_NAME.fullmatch(file.stem) for file in files]
    others = [file.name for file, parts in zip(files, named, strict=True) if parts is None]
    if others:
        raise InputError(
            f"images of {name} must be named SHAPE-TEXTURE, such as cat1-car2.png, got "
            f"{others[0]} and {len(others) - 1} more of {len(files)}"
        )
    cues = [(parts["shape"], parts["texture"]) for parts in named if parts is not None]
    categories = sorted({category for pair in cues for category in pair})
    shapes, textures = np.array([[categories.index(c) for c in pair] for pair in cues]).T
    relative = [file.relative_to(root) for file in files]

    def file_fault(i: int) -> str | None:
        reason = fault(files[i])
        return reason and f"{relative[i]} ({reason})"

    return ImageSet(
        source=name,
        split="",
        class_names=tuple(categories),
        targets=shapes,
        read=lambda indices: [decode(files[i]) for i in indices],
        fault=file_fault,
        textures=textures,
    )
