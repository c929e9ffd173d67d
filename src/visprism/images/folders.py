"""Image folders: a folder per class, ImageNet and its variants, and cue conflicts."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Int64
from PIL import Image

from visprism.core.errors import InputError
from visprism.images.image_set import DATA, NO_CLASS, ImageSet, chosen_split, split_name
from visprism.images.pixels import decode, decode_mask, fault
from visprism.images.tables import parquet

# Formats of Pillow that no program but another one decodes, or that hold no single image.
_NOT_DECODED = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "PDF", "WMF"}


@cache
def _extensions() -> frozenset[str]:
    """The extensions of the formats that Pillow decodes here."""
    Image.init()
    formats = Image.registered_extensions().items()
    return frozenset(e for e, f in formats if f in Image.OPEN and f not in _NOT_DECODED)


def is_image(path: Path) -> bool:
    """Whether a file's extension is an image's."""
    return path.suffix.lower() in _extensions() and not path.name.startswith(".")


def _folders(path: Path) -> list[Path]:
    """Folders in `path` by name, or by number if all are named by integers."""
    folders = [p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")]
    numbers = all(p.name.isascii() and p.name.isdigit() for p in folders)
    return sorted(folders, key=lambda p: (int(p.name) if numbers else 0, p.name))


def _images_below(path: Path) -> list[Path]:
    """Image files below `path`, without hidden ones."""
    return sorted(p for p in path.rglob("*") if is_image(p) and p.is_file())


def _left_out(root: Path, used: Sequence[Path]) -> str:
    """How many files of `root` are not read, by extension; empty if none."""
    every = {p for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")}
    others = Counter(p.suffix.lower() or "no extension" for p in every.difference(used))
    counts = ", ".join(f"{number} {kind}" for kind, number in others.most_common())
    return f"files of {root.name} that are not read: {counts}" if counts else ""


def _split_folders(path: Path) -> dict[str, Path]:
    """Folders of a split: named as one, and with class folders instead of images in it."""
    folders = [
        p
        for p in _folders(path)
        if split_name(p.name) and _folders(p) and not any(map(is_image, p.iterdir()))
    ]
    names = [split_name(p.name) for p in folders]
    return {
        name if names.count(name) == 1 else p.name: p
        for name, p in zip(names, folders, strict=True)
    }


def _root(name: str, path: str) -> Path:
    root = Path(path).expanduser()
    if not root.is_dir():
        raise InputError(f"{name} must be an existing folder, got {root}")
    return root


def _file_set(
    name: str,
    split: str,
    class_names: tuple[str, ...],
    root: Path,
    files: list[Path],
    targets: Int64[np.ndarray, " n"],
) -> ImageSet:
    def file_fault(i: int) -> str | None:
        reason = fault(files[i])
        return reason and f"{files[i].relative_to(root)} ({reason})"

    return ImageSet(
        source=name,
        split=split,
        class_names=class_names,
        targets=targets,
        read=lambda indices: [decode(files[i]) for i in indices],
        fault=file_fault,
        size_of=lambda i: files[i].stat().st_size,
    )


@DATA.register
def folder(
    path: str, *, split: str | None = None, masks: str = "", label: str = ""
) -> ImageSet:
    """Images in DIR/CLASS/ or DIR/SPLIT/CLASS/, with classes in the order of their names.

    `masks` is a folder with a mask of each image, of the same name. The table DIR/metadata.csv
    with the column file_name states other targets: a column of texts is classes, columns of
    numbers are labels or the targets of a regression; `label` selects them, as a,b.

    Folders named by integers are in the order of their numbers.

    Images without class folders, and a single image file, have the target `NO_CLASS`.
    """
    name, file = f"folder:{path}", Path(path).expanduser()
    if split is None and is_image(file) and file.is_file():
        return _file_set(name, "", (), file.parent, [file], np.array([NO_CLASS]))
    root = _root(name, path)
    if masks:
        return _with_masks(name, root, _root("masks", masks))
    if (root / _METADATA).is_file():
        return _from_table(name, root, label)
    splits = _split_folders(root)
    if splits or split is not None:
        split = chosen_split(list(splits), split, name)
        root = splits[split]
    classes = _folders(root)
    files = [(file, target) for target, c in enumerate(classes) for file in _images_below(c)]
    if not files:
        classes, files = [], [(file, NO_CLASS) for file in _images_below(root)]
    if not files:
        raise InputError(f"{name} must hold {root}/CLASS/IMAGE or {root}/IMAGE, got no image")
    names = tuple(c.name for c in classes)
    targets = np.array([target for _, target in files])
    paths = [file for file, _ in files]
    numbers = names != tuple(sorted(names))
    notes = (
        "class folders are named by numbers and in numeric order" * numbers,
        _left_out(root, paths),
    )
    images = _file_set(name, split or "", names, root, paths, targets)
    return replace(images, notes=tuple(filter(None, notes)))


_METADATA = "metadata.csv"  # as Hugging Face's image folders have it


def _with_masks(name: str, root: Path, masks: Path) -> ImageSet:
    """Images with the masks of the same names, wherever below the folders they are."""
    files = _images_below(root)
    by_name = {p.relative_to(masks).with_suffix(""): p for p in _images_below(masks)}
    names = [file.relative_to(root).with_suffix("") for file in files]
    missing = [str(n) for n in names if n not in by_name]
    if missing or not files:
        raise InputError(
            f"{masks} must hold a mask of each of {len(files)} images of {root}, got none of "
            f"{', '.join(missing[:3])}"
        )
    images = _file_set(name, "", (), root, files, np.full(len(files), NO_CLASS))
    return replace(images, mask_of=lambda i: decode_mask(by_name[names[i]]))


def _from_table(name: str, root: Path, label: str) -> ImageSet:
    """Images and targets in the rows of the table of a folder."""
    with (root / _METADATA).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    heads = list(rows[0]) if rows else []
    columns = label.split(",") if label else [h for h in heads if h != "file_name"]
    if "file_name" not in heads or not columns or not set(columns) <= set(heads):
        raise InputError(
            f"{root / _METADATA} must have the columns file_name and "
            f"{', '.join(columns) or 'a target'}, got {', '.join(heads) or 'no row'}"
        )
    files = [root / row["file_name"] for row in rows]
    cells = [[row[c] for c in columns] for row in rows]
    try:
        numbers = np.array([[float(c or "nan") for c in row] for row in cells])
    except ValueError:
        if len(columns) > 1:
            raise InputError(
                f"columns {', '.join(columns)} of {root / _METADATA} must be numbers. Select "
                f"one by ?label={columns[0]}"
            ) from None
        names = sorted({row[0] for row in cells})
        targets = np.array([names.index(row[0]) for row in cells])
        return _file_set(name, "", tuple(names), root, files, targets)
    images = _file_set(name, "", (), root, files, np.full(len(files), NO_CLASS))
    return replace(images, numbers=numbers, class_names=tuple(columns))


@DATA.register
def imagenet(path: str, *, split: str | None = None) -> ImageSet:
    """ImageNet-1k in DIR/SPLIT/WORDNET-ID/IMAGE, or in the Parquet files of its hub page.

    Classes are in the order of WordNet identifiers, as in published models, and named in words.
    On the Hugging Face hub it is ``hf:ILSVRC/imagenet-1k``.
    """
    name, root = f"imagenet:{path}", Path(path).expanduser()
    tables = root.is_dir() and any(root.rglob("*.parquet"))
    images = (parquet if tables else folder)(path, split=split)
    identifiers, names = _imagenet_classes()
    if tables:
        fits = images.num_classes == len(identifiers)
    else:
        fits = list(images.class_names) == identifiers
    if not fits:
        raise InputError(
            f"{name} must have the {len(identifiers)} classes {', '.join(identifiers[:2])}, "
            f"..., got {images.num_classes} ({', '.join(images.class_names[:2])}, ...). Read "
            f"other images with folder:{path}."
        )
    return replace(images, source=name, class_names=names)


def _imagenet_classes() -> tuple[list[str], tuple[str, ...]]:
    """WordNet identifiers of the classes of ImageNet-1k, and their names in words."""
    from timm.data import ImageNetInfo  # takes seconds to import

    info = ImageNetInfo()
    identifiers = info.label_names()
    return identifiers, tuple(info.index_to_description(i) for i in range(len(identifiers)))


@DATA.register
def imagenet_r(path: str, *, split: str | None = None) -> ImageSet:
    """ImageNet-R, renditions of 200 classes, from DIR/WORDNET-ID/IMAGE."""
    return _variant("imagenet_r", path, split)


@DATA.register
def imagenet_a(path: str, *, split: str | None = None) -> ImageSet:
    """ImageNet-A, natural adversarial examples of 200 classes, from DIR/WORDNET-ID/IMAGE."""
    return _variant("imagenet_a", path, split)


@DATA.register
def imagenet_sketch(path: str, *, split: str | None = None) -> ImageSet:
    """ImageNet-Sketch, drawings of all classes, from DIR/WORDNET-ID/IMAGE."""
    return _variant("imagenet_sketch", path, split)


def _variant(name: str, path: str, split: str | None) -> ImageSet:
    """Images of some classes of ImageNet, with the indices that these have in ImageNet-1k."""
    images = folder(path, split=split)
    identifiers, names = _imagenet_classes()
    others = [identifier for identifier in images.class_names if identifier not in identifiers]
    if others or not images.class_names:
        raise InputError(
            f"{name}:{path} must have folders named by WordNet identifiers of ImageNet-1k, "
            f"such as n01443537, got {', '.join(others[:2]) or 'images without folders'}"
        )
    classes = np.array([identifiers.index(identifier) for identifier in images.class_names])
    return replace(
        images,
        source=f"{name}:{path}",
        class_names=names,
        targets=classes[images.targets],
        class_subset=tuple(classes.tolist()) if len(classes) < len(identifiers) else (),
    )


# cat1-elephant2.png: the first cat's shape, the second elephant's texture
_CUES = re.compile(r"(?P<shape>[A-Za-z_ ]+?)\d*-(?P<texture>[A-Za-z_ ]+?)\d*")


@DATA.register
def cue_conflict(path: str, *, split: str | None = None) -> ImageSet:
    """Images named SHAPE-TEXTURE, such as cat1-car2.png, below DIR; the class is the shape.

    Source: Geirhos et al. (2019), ImageNet-trained CNNs are biased towards texture; increasing
    shape bias improves accuracy and robustness, whose files are named so.
    """
    name = f"cue_conflict:{path}"
    root = _root(name, path)
    if split is not None:
        chosen_split((), split, name)
    files = _images_below(root)
    if not files:
        raise InputError(f"{name} must hold images such as cat/cat1-car2.png, got none")
    named = [_CUES.fullmatch(file.stem) for file in files]
    others = [file.name for file, parts in zip(files, named, strict=True) if parts is None]
    if others:
        raise InputError(
            f"images of {name} must be named SHAPE-TEXTURE, such as cat1-car2.png, got "
            f"{others[0]} and {len(others) - 1} more of {len(files)}"
        )
    cues = [(parts["shape"], parts["texture"]) for parts in named if parts is not None]
    categories = sorted({category for pair in cues for category in pair})
    shapes, textures = np.array([[categories.index(c) for c in pair] for pair in cues]).T
    images = _file_set(name, "", tuple(categories), root, files, shapes)
    return replace(images, textures=textures)
