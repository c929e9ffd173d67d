"""Cost: parameters and arithmetic of each block."""

import numpy as np

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.results.base import Result, column, result_type, scalar


@result_type("costs")
class Costs(Result):
    """What a model is made of; one row per block, in forward order."""

    block: np.ndarray = column("Block", "", "name of the block")
    kind: np.ndarray = column("Kind")
    stage: np.ndarray = column("Stage")
    depth: np.ndarray = column("Depth")
    subsampling: np.ndarray = column(
        "Subsamples", "", "whether its grid is smaller than that of the block before"
    )
    shape: np.ndarray = column(
        "Output shape", "", "CxHxW of its feature map; without a grid, of its output"
    )
    parameters: np.ndarray = column(
        "Parameters", "", "numbers in the parameters that the block reads"
    )
    macs: np.ndarray = column("MACs per image", "", "multiply-accumulates for one image")
    distinct_parameters: int = scalar(
        "Distinct parameters", "", "of the whole model, those that blocks share counted once"
    )


def costs(anatomy: Anatomy) -> Costs:
    """Parameters and multiply-accumulates of each block, for one image.

    Matrix products, convolutions and attention are counted, elementwise operations are not:
    what the field's tables call FLOPs (4.1 G for ResNet-50). A parameter that two blocks share
    stands in both rows. Takes no time: the numbers were taken when the model was dissected.
    """
    sizes = {name: p.numel() for name, p in anatomy.model.named_parameters()}
    return Costs(
        block=np.array([b.name for b in anatomy]),
        kind=np.array([b.kind for b in anatomy]),
        stage=np.array([b.stage for b in anatomy]),
        depth=np.array([b.depth for b in anatomy]),
        subsampling=np.array([b.subsampling for b in anatomy]),
        shape=np.array(["x".join(map(str, b.shape)) for b in anatomy]),
        parameters=np.array([sum(sizes[p] for p in b.parameters) for b in anatomy]),
        macs=np.array([anatomy.graph.macs(b.start, b.end) for b in anatomy]),
        distinct_parameters=sum(sizes.values()),
    )
