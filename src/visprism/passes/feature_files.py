"""Files of pooled features: one array for each block, with provenance."""

import json
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import numpy as np

from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.core.provenance import Provenance
from visprism.passes.pooled import PooledFeatures

FORMATS = ("safetensors", "parquet")


def save_features(pooled: PooledFeatures, path: Path | str, provenance: Provenance) -> None:
    """Write pooled features, whole or not at all; the suffix says the format.

    ``.safetensors`` holds one float32 array (images, channels) for each block by its name, and
    the class indices as ``targets``. ``.parquet`` has one row for each image: a list column for
    each block, and ``target``. Both hold the provenance as JSON in their metadata.
    """
    path = Path(path)
    arrays = {block.name: values for block, values in pooled.features.items()}
    metadata = {"provenance": json.dumps(asdict(provenance))}
    if path.suffix == ".safetensors":
        _save_safetensors(path, arrays, pooled.targets, metadata)
    elif path.suffix == ".parquet":
        _save_parquet(path, arrays, pooled.targets, metadata)
    else:
        raise InputError(
            f"path must end in {' or '.join(f'.{f}' for f in FORMATS)}, got {path.name}"
        )


def _save_safetensors(
    path: Path,
    arrays: dict[str, np.ndarray],
    targets: np.ndarray | None,
    metadata: dict[str, str],
) -> None:
    from safetensors.numpy import save_file

    labels = {} if targets is None else {"targets": targets}
    contiguous = {n: np.ascontiguousarray(a) for n, a in (arrays | labels).items()}
    with atomic_write(path) as scratch:
        save_file(contiguous, scratch, metadata=metadata)


def _save_parquet(
    path: Path,
    arrays: dict[str, np.ndarray],
    targets: np.ndarray | None,
    metadata: dict[str, str],
) -> None:
    try:
        pyarrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise InputError(
            "Parquet files need pyarrow, which is not installed. Install visprism[parquet], or "
            "write safetensors."
        ) from error
    columns = {
        name: pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(a.ravel()), a.shape[1])
        for name, a in arrays.items()
    }
    if targets is not None:
        columns["target"] = pyarrow.array(targets)
    table = pyarrow.table(columns).replace_schema_metadata(metadata)
    with atomic_write(path) as scratch:
        parquet.write_table(table, scratch)
