"""What results written by hand share: blocks, provenance, columns."""

from dataclasses import MISSING, fields

import numpy as np

from visprism import Provenance
from visprism.estimates.estimated import Estimated, Number

PROVENANCE = Provenance(
    model="hand:net",
    data="folder:cats/val",
    images=8,
    image_shape=(3, 32, 32),
    preprocessing="32x32 bicubic",
    visprism="0.1",
    torch="2.6",
)
BLOCKS = {
    "block": np.array(["stem", "conv1", "down", "attn", "mlp"]),
    "kind": np.array(["stem", "conv", "downsample", "attention", "mlp"]),
    "stage": np.array([0, 0, 1, 1, 1]),
    "depth": np.array([0.0, 0.25, 0.5, 0.75, 1.0]),
    "subsampling": np.array([False, False, True, False, False]),
}


def within(values, error):
    """An estimate with 95% intervals over 8 images, of this standard error."""
    values, margin = np.array(values), 2.364624 * np.array(error)
    return Estimated(values, values - margin, values + margin)


CHANGES = {"change": within([np.nan, 0.5, np.nan, -0.7, 0.2], [np.nan, 0.1, np.nan, 0.1, 0.1])}
FREQUENCIES = 3  # of each block
NEIGHBORS = {"previous": np.array(["", "stem", "", "down", "attn"]), "between": np.full(5, "")}


def complete(cls, **columns):
    """A result whose columns that are not given hold NaN, those of text nothing.

    Estimates that are given as plain numbers have no intervals.
    """
    columns.setdefault("provenance", PROVENANCE)
    rows = len(next(v for v in columns.values() if isinstance(v, np.ndarray)))
    empty = {np.ndarray: np.full(rows, np.nan), Estimated: Estimated(np.full(rows, np.nan))}
    for f in fields(cls):
        if f.name not in columns and f.default is MISSING and f.default_factory is MISSING:
            columns[f.name] = empty[f.type] if f.type in empty else f.type(0)
    for name in cls.estimates():
        value = columns.get(name)
        if isinstance(value, np.ndarray) and not isinstance(value, Estimated):
            columns[name] = Estimated(value)
        elif isinstance(value, float) and not isinstance(value, Number):
            columns[name] = Number(value)
    return cls(**columns)
