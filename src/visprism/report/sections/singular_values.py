"""What a page says about `SingularValues` and `EffectiveRanks`."""

from visprism.measure.features import EffectiveRanks, SingularValues
from visprism.report.section import Section

SINGULAR_VALUES = Section(
    result=SingularValues,
    stem="singular-values",
    title="Singular values of features",
    shows=(
        "Each curve is a block: how much its features vary along their strongest direction, "
        "the second, and so on. A curve that falls early belongs to features that fill few of "
        "their channels' directions. The second figure takes the mean of each image over its "
        "positions first."
    ),
    columns={},
    figures={"": {}, "-of-images": {"level": "images"}},
)

EFFECTIVE_RANK = Section(
    result=EffectiveRanks,
    stem="effective-rank",
    title="Effective rank",
    shows=(
        "Each point is how many directions a block's tokens fill: that many equal singular "
        "values would be spread as evenly as those above. Where it falls, tokens have become "
        "more alike, or a few directions have grown stronger than the others."
    ),
    columns={
        "block": "Block",
        "kind": "Kind",
        "stage": "Stage",
        "depth": "Depth",
        "channels": "Channels",
        "token_rank": "Effective rank of tokens",
        "token_participation": "Participation ratio of tokens",
        "image_rank": "Effective rank of images",
        "image_participation": "Participation ratio of images",
    },
    figures={"": {}, "-of-images": {"quantity": "image_rank"}},
)
