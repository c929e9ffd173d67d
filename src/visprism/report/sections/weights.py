"""What a page says about `PatchFilters` and `PositionalSimilarity`."""

from visprism.measure.weights import PatchFilters, PositionalSimilarity
from visprism.report.section import Section

PATCH_FILTERS = Section(
    result=PatchFilters,
    stem="patch-filters",
    title="First kernels",
    shows=(
        "Each picture is a principal component of the kernels with which the model first reads "
        "its images, in the image's colours; grey is zero. Below stands its share of the "
        "variance between kernels."
    ),
    columns={},
)

POSITIONAL_SIMILARITY = Section(
    result=PositionalSimilarity,
    stem="positional-similarity",
    title="Similarity of positions",
    shows=(
        "Each map stands where its position stands in the image, and shows how alike the "
        "model's entry for that position is to those for all others: 1 for itself. A model "
        "that knows which places are near has maps that fade with distance; crosses are of one "
        "that knows rows and columns."
    ),
    columns={},
)
