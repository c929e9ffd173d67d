"""Image folders: a folder per class, as torchvision's ``ImageFolder`` reads them."""

from pathlib import Path

import numpy as np

from visprism.core.errors import InputError
from visprism.data.decode import decode, fault
from visprism.data.image_set import DATA, NO_CLASS, SPLITS, ImageSet, chosen_split

EXTENSIONS = {
    ".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp",
}  # fmt: skip


def _folders(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


def images_below(path: Path) -> list[Path]:
    """Image files below `path`, without hidden ones."""
    return sorted(
        p
        for p in path.rglob("*")
        if p.suffix.lower() in EXTENSIONS and not p.name.startswith(".") and p.is_file()
    )


def _split_folders(path: Path) -> dict[str, Path]:
    """Folders of a split: named as one, and with class folders instead of images in it."""
    return {
        p.name: p
        for p in _folders(path)
        if p.name.lower() in SPLITS
        and _folders(p)
        and not any(q.suffix.lower() in EXTENSIONS for q in p.iterdir())
    }


@DATA.register
def folder(path: str, *, split: str | None = None) -> ImageSet:
    """Images in DIR/CLASS/ or DIR/SPLIT/CLASS/, with classes in the order of their names.

    Images without class folders have the target `NO_CLASS`.
    """
    name = f"folder:{path}"
    root = Path(path).expanduser()
    if not root.is_dir():
        raise InputError(f"{name} must be an existing folder, got {root}")
    splits = _split_folders(root)
    if splits or split is not None:
        split = chosen_split(list(splits), split, name)
        root = splits[split]
    classes = _folders(root)
    files = [(file, target) for target, c in enumerate(classes) for file in images_below(c)]
    if not files:
        classes, files = [], [(file, NO_CLASS) for file in images_below(root)]
    if not files:
        raise InputError(f"{name} must hold {root}/CLASS/IMAGE or {root}/IMAGE, got no image")
    paths = [file for file, _ in files]

    def file_fault(i: int) -> str | None:
        reason = fault(paths[i])
        return reason and f"{paths[i].relative_to(root)} ({reason})"

    return ImageSet(
        source=name,
        split=split or "",
        class_names=tuple(c.name for c in classes),
        targets=np.array([target for _, target in files]),
        read=lambda indices: [decode(paths[i]) for i in indices],
        fault=file_fault,
    )
