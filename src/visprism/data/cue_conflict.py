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
from visprism.data.image_set import ImageSet
from visprism.data.registry import DATA

# cat1-elephant2.png: the first cat's shape, the second elephant's texture
_NAME = re.compile(r"(?P<shape>[A-Za-z_ ]+?)\d*-(?P<texture>[A-Za-z_ ]+?)\d*")


@DATA.register
def cue_conflict(path: str, *, split: str | None = None) -> ImageSet:
    """Images named SHAPE-TEXTURE, as cat1-car2.png, random_start in DIR; the class is the shape.

    Raises:
        InputError: if there is no such folder, no image, or one that is not named so.
    """
    name = f"cue_conflict:{path}"
    root = Path(path).expanduser()
    if not root.is_dir():
        raise InputError(f"{name}: there is no folder {root}; give the path of one")
    if split is not None:
        raise InputError(f"{name} has no split {split!r}; it has no splits")
    files = images_below(root)
    if not files:
        raise InputError(f"{name} holds no image; wants files such as cat/cat1-car2.png")
    named = [_NAME.fullmatch(file.stem) for file in files]
    others = [file.name for file, parts in zip(files, named, strict=True) if parts is None]
    if others:
        raise InputError(
            f"{name}: {len(others)} of {len(files)} images, the first {others[0]}, are not "
            "named SHAPE-TEXTURE; wants names such as cat1-car2.png"
        )
    cues = [(parts["shape"], parts["texture"]) for parts in named if parts is not None]
    categories = sorted({category for pair in cues for category in pair})
    shapes, textures = np.array([[categories.index(c) for c in pair] for pair in cues]).T
    relative = [file.relative_to(root) for file in files]

    def found(i: int) -> str | None:
        reason = fault(files[i])
        return reason and f"{relative[i]} ({reason})"

    return ImageSet(
        source=name,
        split="",
        class_names=tuple(categories),
        targets=shapes,
        read=lambda some: [decode(files[i]) for i in some],
        fault=found,
        textures=textures,
    )
