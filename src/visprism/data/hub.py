"""Data sets of the Hugging Face hub, through its library ``datasets``."""

import numpy as np

from visprism.core.errors import InputError
from visprism.data.columns import chosen_column, class_names
from visprism.data.decode import decode, fault
from visprism.data.image_set import DATA, ImageSet, chosen_split
from visprism.data.parquet import image_bytes


@DATA.register
def hf(
    path: str, *, split: str | None = None, config: str = "", image: str = "", label: str = ""
) -> ImageSet:
    """A data set of the Hugging Face hub; `image` and `label` name columns."""
    name = f"hf:{path}"
    try:
        import datasets  # pyrefly: ignore[missing-import]
    except ModuleNotFoundError as error:
        raise InputError(
            f"{name} needs the package datasets. Install it with pip install 'visprism[hf]'."
        ) from error
    try:
        names = datasets.get_dataset_split_names(path, config or None)
        split = chosen_split(names, split, name)
        table = datasets.load_dataset(path, config or None, split=split)
    except InputError:
        raise
    except Exception as error:  # the library's own, those of the hub, and those of the network
        raise InputError(f"{name} cannot be loaded: {error}") from error

    def columns(kind: type) -> list[str]:
        return [name for name, feature in table.features.items() if isinstance(feature, kind)]

    image = chosen_column(
        image, columns(datasets.Image), kind="image", option="image", name=name
    )
    label = chosen_column(
        label, columns(datasets.ClassLabel), kind="class", option="label", name=name
    )
    targets = np.array(table[label], dtype=np.int64)
    rows = table.select_columns([image]).cast_column(image, datasets.Image(decode=False))

    def row_fault(i: int) -> str | None:
        reason = fault(image_bytes(rows[i][image]))
        return reason and f"row {i} ({reason})"

    return ImageSet(
        source=name,
        split=split,
        class_names=class_names(table.features[label].names, targets, name),
        targets=targets,
        read=lambda indices: [decode(image_bytes(rows[i][image])) for i in indices],
        fault=row_fault,
    )
