"""Parquet files as Hugging Face lays them out: a column of image files, one of classes."""

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from visprism.core.errors import InputError
from visprism.data.columns import chosen_column, class_names
from visprism.data.decode import decode, fault
from visprism.data.image_set import DATA, SPLITS, ImageSet, chosen_split

if TYPE_CHECKING:
    from pyarrow import ChunkedArray, DataType, Schema
    from pyarrow.parquet import ParquetFile

_MOST_BYTES = 2**28  # of row groups in memory


def _split_of(file: Path, root: Path) -> str:
    """The split in a file's name, as ``train-00000-of-00002.parquet``, or its folder's."""
    parts = file.relative_to(root).with_suffix("").parts
    words = (re.split(r"[-_.]", part, maxsplit=1)[0] for part in reversed(parts))
    return next((word for word in words if word.lower() in SPLITS), "")


def _features(schema: "Schema") -> dict[str, Any]:
    """What Hugging Face's ``datasets`` notes about the columns; empty where it did not."""
    try:
        notes = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = notes.get("info", {}).get("features", {})
    except (ValueError, AttributeError, RecursionError):  # other programs write there too
        return {}
    if not isinstance(features, dict):
        return {}
    return {k: v for k, v in features.items() if isinstance(v, dict) and k in schema.names}


class _Rows:
    """The cells of one column over several files; up to 256 MiB of row groups are in memory.

    Images are read in random order, in which any two of a batch lie in different groups.
    """

    def __init__(self, files: Sequence["ParquetFile"], column: str) -> None:
        self._column = column
        self._groups = [(file, g) for file in files for g in range(file.num_row_groups)]
        counts = [file.metadata.row_group(g).num_rows for file, g in self._groups]
        self._starts = np.cumsum([0, *counts])
        self._one_at_a_time = Lock()  # pyarrow's reader of a file crashes in two threads
        sizes = [file.metadata.row_group(g).total_byte_size for file, g in self._groups]
        largest = max(1, *sizes, 0)
        self._cells = lru_cache(maxsize=max(2, _MOST_BYTES // largest))(self._load)

    def _load(self, group: int) -> "ChunkedArray":
        file, g = self._groups[group]
        with self._one_at_a_time:
            return file.read_row_group(g, columns=[self._column]).column(0)

    def __getitem__(self, row: int) -> bytes:
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        cell = self._cells(group)[row - int(self._starts[group])].as_py()
        return image_bytes(cell)


def image_bytes(cell: bytes | dict[str, Any] | None) -> bytes:
    """The bytes of an image file in a cell: as they are, or in a struct with its path."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    return content or b""  # an empty file is what decoding it will then report


@DATA.register
def parquet(
    path: str, *, split: str | None = None, image: str = "", label: str = ""
) -> ImageSet:
    """Images in Parquet files as Hugging Face stores them; `image` and `label` name columns."""
    name = f"parquet:{path}"
    try:
        from pyarrow import ArrowException, ArrowInvalid, types
        from pyarrow.parquet import ParquetFile
    except ModuleNotFoundError as error:
        raise InputError(
            f"{name} needs the package pyarrow. Install it with "
            "pip install 'visprism[parquet]'."
        ) from error
    paths, split = _files(Path(path).expanduser(), split, name)
    try:
        files = [ParquetFile(file, memory_map=True) for file in paths]
    except (ArrowInvalid, OSError) as error:
        raise InputError(f"{name} is not a Parquet file: {error}") from error
    schema, features = files[0].schema_arrow, _features(files[0].schema_arrow)

    def is_image(kind: "DataType") -> bool:
        if types.is_struct(kind):
            return kind.get_field_index("bytes") >= 0
        return types.is_binary(kind) or types.is_large_binary(kind)

    def columns(feature: str, plain: Callable[["DataType"], bool]) -> list[str]:
        noted = [key for key, metadata in features.items() if metadata.get("_type") == feature]
        return noted or [field.name for field in schema if plain(field.type)]

    images = columns("Image", is_image)
    labels = columns("ClassLabel", types.is_integer)
    image = chosen_column(image, images, kind="image", option="image", name=name)
    label = chosen_column(label, labels, kind="class", option="label", name=name)
    try:
        targets = np.concatenate(
            [
                file.read(columns=[label]).column(0).fill_null(-1).to_numpy().astype(np.int64)
                for file in files
            ]
        )
    except (ArrowException, OSError, ValueError, TypeError, IndexError) as error:
        raise InputError(f"the classes in {name} cannot be read ({error})") from error
    rows = _Rows(files, image)

    def row_fault(i: int) -> str | None:
        try:
            reason = fault(rows[i])
        except (ArrowException, OSError) as error:  # its whole row group is damaged
            reason = str(error)
        return reason and f"row {i} ({reason})"

    return ImageSet(
        source=name,
        split=split,
        class_names=class_names(features.get(label, {}).get("names"), targets, name),
        targets=targets,
        read=lambda indices: [decode(rows[i]) for i in indices],
        fault=row_fault,
    )


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
