"""Live attention: where each head attends from a patch, and the rollout."""

from typing import Any

import numpy as np

from visprism.app.live.panels import Values, indices_of, integer_of, panel, rounded
from visprism.app.live.pool import Specimen
from visprism.core.errors import InputError
from visprism.analyses.attention.attention_maps import Query, attention_maps
from visprism.analyses.attention.attention_maps import rollouts


@panel
def attention(specimen: Specimen, values: Values) -> dict[str, Any]:
    """The attention weights of one query, by attention layer and head."""
    height, width = specimen.preprocessing.size
    query: Query
    if values.get("query") == "class":
        query = "class"
    else:
        query = (
            integer_of(values, "row", 0, height - 1),
            integer_of(values, "column", 0, width - 1),
        )
    image = specimen.normalized(specimen.pixels(indices_of(values)[:1]))
    maps = attention_maps(specimen.anatomy, image, query=query)
    layers = []
    for name in dict.fromkeys(maps.block.tolist()):
        selected = maps.select(maps.block == name)
        heads, rows, columns = (
            int(column.max()) + extra
            for column, extra in ((selected.head, 0), (selected.row, 1), (selected.column, 1))
        )
        weights = selected.weight.reshape(heads, rows, columns)
        layers.append(
            {
                "name": name,
                "rows": rows,
                "columns": columns,
                "heads": [rounded(head) for head in weights],
                "on_grid": rounded(weights.sum((1, 2))),
            }
        )
    return {"layers": layers}


@panel
def rollout(specimen: Specimen, values: Values) -> dict[str, Any]:
    """Attention rollout and gradient rollout of one image."""
    image = specimen.normalized(specimen.pixels(indices_of(values)[:1]))
    results = rollouts(specimen.anatomy, image)
    if not results:
        raise InputError(
            "model must have the same tokens in all attention layers for a rollout; windows, "
            "pooled and merged tokens have none"
        )
    return {
        "maps": [
            {
                "method": result.method,
                "rows": int(result.row.max()) + 1,
                "columns": int(result.column.max()) + 1,
                "weights": rounded(np.asarray(result.weight)),
            }
            for result in results
        ]
    }
