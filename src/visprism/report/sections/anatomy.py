"""What a page says about `Costs`."""

from visprism.anatomy.blocks.cost import Costs
from visprism.report.section import Section

ANATOMY = Section(
    result=Costs,
    stem="anatomy",
    title="Anatomy",
    shows=(
        "Each slab is a block, in forward order: its colour tells what the block computes, "
        "its height how fine its grid of positions is. The strips below tell where the "
        "arithmetic is done and where the parameters are."
    ),
    columns={
        "block": "Block",
        "kind": "Kind",
        "stage": "Stage",
        "subsampling": "Subsamples",
        "shape": "Output shape",
        "parameters": "Parameters",
        "macs": "MACs per image",
    },
)
