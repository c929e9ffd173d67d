"""ImageNet-1k: a folder or Parquet files of its 1,000 classes, with their names."""

from dataclasses import replace
from pathlib import Path

from visprism.core.errors import InputError
from visprism.data.folder import folder
from visprism.data.image_set import DATA, ImageSet
from visprism.data.parquet import parquet


@DATA.register
def imagenet(path: str, *, split: str | None = None) -> ImageSet:
    """ImageNet-1k in DIR/SPLIT/WORDNET-ID/IMAGE, or in the Parquet files of its hub page.

    Classes are in the order of WordNet identifiers, as in published models, and named in words.
    On the Hugging Face hub it is ``hf:ILSVRC/imagenet-1k``.

    Raises:
        InputError: if there is no such folder or split, or its classes are not ImageNet's.
    """
    from timm.data import ImageNetInfo

    name, root = f"imagenet:{path}", Path(path).expanduser()
    tables = root.is_dir() and any(root.rglob("*.parquet"))
    images = (parquet if tables else folder)(path, split=split)
    info = ImageNetInfo()
    identifiers = info.label_names()
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
    names = (info.index_to_description(i) for i in range(len(identifiers)))
    return replace(images, source=name, class_names=tuple(names))
