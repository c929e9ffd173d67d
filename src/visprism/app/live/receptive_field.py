"""Live receptive field: the pixels that one position of a block depends on."""

from typing import Any

from visprism.app.live.panels import Values, indices_of, number_of, panel, rounded
from visprism.app.live.pool import Specimen
from visprism.core.errors import InputError
from visprism.measure.features.receptive_field_gradients import receptive_map


@panel
def receptive_field(specimen: Specimen, values: Values) -> dict[str, Any]:
    """The weight of each pixel for a position, relative to the largest."""
    blocks = {b.name: b for b in specimen.anatomy if b.layout is not None}
    name = values.get("block")
    if name not in blocks:
        raise InputError(f"block must be one of {', '.join(blocks)}, got {name!r}")
    block = blocks[name]
    rows, columns = block.shape[-2:]
    row = min(int(number_of(values, "y", 0.0, 1.0) * rows), rows - 1)
    column = min(int(number_of(values, "x", 0.0, 1.0) * columns), columns - 1)
    images = specimen.normalized(specimen.pixels(indices_of(values)[:1]))
    weights = receptive_map(specimen.anatomy, images, block, (row, column))[0]
    largest = float(weights.max())
    relative = weights / largest if largest > 0 else weights
    return {
        "block": name,
        "position": [row, column],
        "grid": [rows, columns],
        "rows": weights.shape[0],
        "columns": weights.shape[1],
        "weights": rounded(relative.numpy()),
    }
