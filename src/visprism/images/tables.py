"""Tables of images as Hugging Face lays them out: Parquet files, and data sets of its hub."""

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int64

from visprism.core.errors import InputError
from visprism.images.image_set import DATA, NO_CLASS, ImageSet, chosen_split, split_name
from visprism.images.pixels import decode, fault

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, DataType, Schema
    from pyarrow.parquet import ParquetFile

_MOST_BYTES = 2**28  # of row groups in memory


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
    except Exception as error:  # errors of the library, the hub and the network
        raise InputError(f"{name} cannot be loaded: {error}") from error

    def columns(kind: type) -> list[str]:
        return [name for name, feature in table.features.items() if isinstance(feature, kind)]

    image = _column("image", image, columns(datasets.Image), name)
    label = _column("label", label, columns(datasets.ClassLabel), name)
    rows = table.select_columns([image]).cast_column(image, datasets.Image(decode=False))
    targets = np.array(table[label], dtype=np.int64)
    names = table.features[label].names
    return _row_set(name, split, lambda i: _bytes(rows[i][image]), targets, names)


@DATA.register
def parquet(
    path: str, *, split: str | None = None, image: str = "", label: str = ""
) -> ImageSet:
    """Images in Parquet files as Hugging Face stores them; `image` and `label` name columns."""
    name = f"parquet:{path}"
    try:
        from pyarrow import ArrowException, types
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError as error:
        raise InputError(
            f"{name} needs the package pyarrow. Install it with "
            "pip install 'visprism[parquet]'."
        ) from error
    paths, split = _files(Path(path).expanduser(), split, name)
    try:
        files = [ParquetFile(file, memory_map=True) for file in paths]
        schema = files[0].schema_arrow
    except (ArrowException, ValueError, OSError) as error:
        raise InputError(f"{name} is not a Parquet file: {error}") from error
    features = _features(schema)

    def is_image(kind: "DataType") -> bool:
        if types.is_struct(kind):
            return kind.get_field_index("bytes") >= 0
        return types.is_binary(kind) or types.is_large_binary(kind)

    def columns(feature: str, plain: Callable[["DataType"], bool]) -> list[str]:
        noted = [key for key, metadata in features.items() if metadata.get("_type") == feature]
        return noted or [field.name for field in schema if plain(field.type)]

    image = _column("image", image, columns("Image", is_image), name)
    label = _column("label", label, columns("ClassLabel", types.is_integer), name)
    try:
        labels = [file.read(columns=[label]).column(0).fill_null(-1) for file in files]
        targets = np.concatenate([column.to_numpy().astype(np.int64) for column in labels])
    except (ArrowException, OSError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"the classes in {name} cannot be read ({error})") from error
    names = features.get(label, {}).get("names")
    return _row_set(name, split, _cells(files, image), targets, names)


def _row_set(
    name: str,
    split: str,
    content: Callable[[int], bytes],
    targets: Int64[np.ndarray, " n"],
    names: object,
) -> ImageSet:
    """An image set of the files in the rows of a table."""

    def row_fault(i: int) -> str | None:
        try:
            reason = fault(content(i))
        except Exception as error:  # pyarrow's own: the whole row group is damaged
            reason = str(error)
        return reason and f"row {i} ({reason})"

    return ImageSet(
        source=name,
        split=split,
        class_names=_class_names(names, targets, name),
        targets=targets,
        read=lambda indices: [decode(content(i)) for i in indices],
        fault=row_fault,
    )


def _cells(files: Sequence["ParquetFile"], column: str) -> Callable[[int], bytes]:
    """The cells of one column over several files; up to 256 MiB of row groups are in memory.

    Images are read in random order, in which any two of a batch lie in different groups.
    """
    places = [(file, g) for file in files for g in range(file.num_row_groups)]
    groups = [file.metadata.row_group(g) for file, g in places]
    starts = np.cumsum([0, *(group.num_rows for group in groups)])
    largest = max(1, *(group.total_byte_size for group in groups), 0)
    one_at_a_time = Lock()  # pyarrow's reader of a file crashes in two threads

    @lru_cache(maxsize=max(2, _MOST_BYTES // largest))
    def load(group: int) -> "ChunkedArray":
        file, g = places[group]
        with one_at_a_time:
            return file.read_row_group(g, columns=[column]).column(0)

    def cell(row: int) -> bytes:
        group = int(np.searchsorted(starts, row, side="right")) - 1
        return _bytes(load(group)[row - int(starts[group])].as_py())

    return cell


def _bytes(cell: bytes | dict[str, Any] | None) -> bytes:
    """The bytes of an image file in a cell: as they are, or in a struct with its path."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    return content or b""  # an empty file is what decoding it will then report


def _files(path: Path, split: str | None, name: str) -> tuple[list[Path], str]:
    """The files of the split, and its name."""
    if not path.exists():
        raise InputError(f"{name} must be an existing file or folder, got {path}")
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{name} must hold a .parquet file, got none in {path}")
    root = path if path.is_dir() else path.parent
    of = {file: _split_of(file, root) for file in files}
    splits = sorted({s for s in of.values() if s})
    if not splits and split is None:
        return files, ""
    split = chosen_split(splits, split, name)
    return [file for file in files if of[file] == split], split


def _split_of(file: Path, root: Path) -> str:
    """The split in a file's name, as ``train-00000-of-00002.parquet``, or its folder's."""
    parts = file.relative_to(root).with_suffix("").parts
    words = (re.split(r"[-_.]", part, maxsplit=1)[0] for part in reversed(parts))
    return next(filter(None, map(split_name, words)), "")


def _features(schema: "Schema") -> dict[str, Any]:
    """What Hugging Face's ``datasets`` notes about the columns; empty where it did not."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {k: v for k, v in features.items() if isinstance(v, dict) and k in schema.names}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return {}  # other programs write there too


def _column(option: str, wanted: str, candidates: Sequence[str], name: str) -> str:
    """The column `wanted`, or the only one of its kind if none is named."""
    if wanted in candidates:
        return wanted
    if len(candidates) == 1 and not wanted:
        return candidates[0]
    kind, names = {"image": "image", "label": "class"}[option], ", ".join(candidates) or "none"
    raise InputError(
        f"{option} must be one of the {kind} columns of {name} ({names}), got {wanted!r}. "
        f"Select one, such as ?{option}={candidates[0] if candidates else 'NAME'}."
    )


def _class_names(
    stored: object, targets: Int64[np.ndarray, " n"], name: str
) -> tuple[str, ...]:
    """The names of the classes; none where the data does not name them."""
    if not len(targets):
        raise InputError(f"{name} must have at least one image, got none")
    names = tuple(map(str, stored)) if isinstance(stored, list | tuple) else ()
    number = len(names) or targets.max() + 1
    wrong = (targets < 0) | (targets >= number)
    if wrong.any() and (targets != NO_CLASS).any():  # none has a label in some test splits
        first = targets[wrong][0]
        given = "a missing label (null or -1)" if first == NO_CLASS else first
        raise InputError(
            f"labels of {name} must be in 0 ... {number - 1}, got {given} and "
            f"{wrong.sum() - 1} more"
        )
    return names
