"""Cost: parameters and arithmetic of each block."""

import numpy as np

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.results.anatomy import Costs, map_size


def costs(anatomy: Anatomy) -> Costs:
    """Parameters and multiply-accumulates of each block, for one image.

    Matrix products, convolutions and attention are counted, elementwise operations are not, as
    in published tables of FLOPs (4.1 G for ResNet-50). A parameter that two blocks share is
    counted in both rows. The counts were taken when the model was dissected.
    """
    numbers = {name: p.numel() for name, p in anatomy.model.named_parameters()}
    sizes = np.array([map_size(block.shape) for block in anatomy])
    return Costs(
        block=np.array([b.name for b in anatomy]),
        kind=np.array([b.kind for b in anatomy]),
        stage=np.array([b.stage for b in anatomy]),
        depth=np.array([b.depth for b in anatomy]),
        subsampling=np.array([b.subsampling for b in anatomy]),
        channels=sizes[:, 0],
        height=sizes[:, 1],
        width=sizes[:, 2],
        parameters=np.array([sum(numbers[p] for p in b.parameters) for b in anatomy]),
        macs=np.array([anatomy.graph.macs(b.start, b.end) for b in anatomy]),
        distinct_parameters=sum(numbers.values()),
    )
