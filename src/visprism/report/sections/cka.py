"""What a page says about `Similarity` and `BlockStructure`."""

from visprism.measure.features import BlockStructure, Similarity
from visprism.report.section import Section

CKA = Section(
    result=Similarity,
    stem="cka",
    title="Similarity of blocks (CKA)",
    shows=(
        "Each cell is a pair of blocks, the first block at the lower left: bright where both "
        "tell the images apart in the same way, dark where they have nothing in common. "
        "Lines part the stages; a bright square between them is a stage whose blocks are "
        "alike. Grey is a block whose features are the same for all images."
    ),
    columns={
        "block": "Block",
        "other": "Other block",
        "stage": "Stage",
        "other_stage": "Other stage",
        "cka": "CKA",
        "cka_error": "Standard error",
        "biased": "Biased CKA",
        "biased_error": "Standard error",
        "defined": "Defined",
    },
)

BLOCK_STRUCTURE = Section(
    result=BlockStructure,
    stem="block-structure",
    title="Block structure",
    shows=(
        "Each cell is a pair of stages: the mean CKA of their blocks, and below it how far "
        "that lies above the mean of all pairs of blocks that are as far apart. Above 0 on "
        "the diagonal and below 0 beside it, the stages are what orders the similarity, and "
        "not the distance of blocks alone."
    ),
    columns={
        "stage": "Stage",
        "other_stage": "Other stage",
        "pairs": "Pairs of blocks",
        "cka": "Mean CKA",
        "expected": "As far apart",
        "excess": "Difference",
    },
)
