"""ImageNet-1k and its variants: folders of its 1,000 classes, or of a part of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from visprism.core.errors import InputError
from visprism.data.folder import folder
from visprism.data.image_set import DATA, ImageSet
from visprism.data.parquet import parquet


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
    from timm.data import ImageNetInfo

    images, info = folder(path, split=split), ImageNetInfo()
    index = {identifier: i for i, identifier in enumerate(info.label_names())}
    others = [identifier for identifier in images.class_names if identifier not in index]
    if others or not images.class_names:
        raise InputError(
            f"{name}:{path} must have folders named by WordNet identifiers of ImageNet-1k, "
            f"such as n01443537, got {', '.join(others[:2]) or 'images without folders'}"
        )
    classes = np.array([index[identifier] for identifier in images.class_names])
    return replace(
        images,
        source=f"{name}:{path}",
        class_names=tuple(info.index_to_description(i) for i in range(len(index))),
        targets=classes[images.targets],
        class_subset=tuple(classes.tolist()) if len(classes) < len(index) else (),
    )


@DATA.register
def imagenet(path: str, *, split: str | None = None) -> ImageSet:
    """ImageNet-1k in DIR/SPLIT/WORDNET-ID/IMAGE, or in the Parquet files of its hub page.

    Classes are in the order of WordNet identifiers, as in published models, and named in words.
    On the Hugging Face hub it is ``hf:ILSVRC/imagenet-1k``.
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
