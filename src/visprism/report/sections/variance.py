"""What a page says about `Variances`."""

from visprism.measure.features import Variances
from visprism.report.section import Section

VARIANCE = Section(
    result=Variances,
    stem="variance",
    title="Feature-map variance",
    shows=(
        "Each point is how much a block's feature maps differ from place to place: a block "
        "that lowers it averages over positions, one that raises it sets them apart. The "
        "second figure divides by the mean square, so that activations which merely grow "
        "with depth leave it unchanged."
    ),
    columns={
        "block": "Block",
        "kind": "Kind",
        "stage": "Stage",
        "depth": "Depth",
        "variance": "Variance",
        "variance_error": "Standard error",
        "relative": "Variance / mean square",
        "relative_error": "Standard error",
        "change": "Change across the block",
        "change_error": "Standard error",
    },
    figures={"": {}, "-scale-free": {"quantity": "relative"}},
    quantity="variance",
)
