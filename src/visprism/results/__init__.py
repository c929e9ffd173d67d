"""Results: what was measured, as tables of NumPy columns with units."""

from visprism.results import (  # noqa: F401 (each declares its types for `Result.load`)
    attention,
    fourier,
    kind_replication,
    kind_summary,
    receptive_field,
    similarity,
    singular_values,
    variance,
)
