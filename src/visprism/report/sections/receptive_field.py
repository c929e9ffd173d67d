"""What a page says about `ReceptiveField` and `ReceptiveMaps`."""

from visprism.measure.features import ReceptiveField, ReceptiveMaps
from visprism.report.section import Section

RECEPTIVE_FIELD = Section(
    result=ReceptiveField,
    stem="receptive-field",
    title="Effective receptive field",
    shows=(
        "Each point is how far around itself the centre of a block's feature map looks in the "
        "image: the root mean squared distance, along one axis, of the pixels that it answers "
        "to. The dashed line is where a block would be that weighs the whole image evenly."
    ),
    columns={
        "block": "Block",
        "kind": "Kind",
        "stage": "Stage",
        "depth": "Depth",
        "sigma": "Sigma (pixels)",
        "sigma_error": "Standard error",
        "side_50": "Side of 50 % (pixels)",
        "side_95": "Side of 95 % (pixels)",
        "area_20": "Area of 20 % / image",
        "area_30": "Area of 30 % / image",
        "area_50": "Area of 50 % / image",
        "area_99": "Area of 99 % / image",
    },
)

RECEPTIVE_MAPS = Section(
    result=ReceptiveMaps,
    stem="receptive-maps",
    title="Maps of receptive fields",
    shows=(
        "Each picture is the whole image: the brighter a place, the more the centre of the "
        "block's feature map changes with it, on a logarithmic scale. Below stand the block "
        "and its depth."
    ),
    columns={},
)
