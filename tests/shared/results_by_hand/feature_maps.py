"""Results of feature maps, written by hand."""

import numpy as np

from results_by_hand.base import (
    BLOCKS,
    CHANGES,
    FREQUENCIES,
    NEIGHBORS,
    PROVENANCE,
    complete,
    within,
)
from visprism.estimates.estimated import Estimated
from visprism.results import (
    BranchGains,
    ChannelMaps,
    Costs,
    FieldSizes,
    HighFrequency,
    KindSummary,
    PatchComponents,
    ReceptiveMaps,
    Similarity,
    SingularSpectrum,
    Spectrum,
    Variances,
)
from visprism.table.kinds import TO_LOWEST, TO_MEAN


def spectrum():
    rows = np.repeat(np.arange(5), FREQUENCIES)
    relative = np.tile([0.0, -1.0, -2.0], 5) * (1 + rows)
    columns = {
        "frequency": np.tile([0.0, 0.5, 1.0], 5),
        "log_amplitude": relative + 3,
        "relative": within(relative, np.tile([0.0, 0.1, 0.2], 5)),
    }
    return complete(
        Spectrum,
        **{name: column[rows] for name, column in (BLOCKS | NEIGHBORS).items()},
        **columns,
    )


def high_frequency():
    columns = CHANGES | {
        "frequency": np.ones(5),
        "relative": within([-2.0, -1.5, -1.0, -1.7, -1.5], [0.1, 0.1, 0.1, 0.2, 0.2]),
        "relative_lowest": within([-1.0, -0.5, -0.6, -0.7, -0.5], 0.1),
    }
    return complete(HighFrequency, **BLOCKS, **NEIGHBORS, **columns)


def branch_transfer():
    rows = np.repeat(np.arange(5), FREQUENCIES)
    columns = {
        "frequency": np.tile([0.0, 0.5, 1.0], 5),
        "gain": within(np.tile([0.0, -0.5, -1.0], 5) * (1 + rows), 0.1),
    }
    blocks = {name: column[rows] for name, column in BLOCKS.items()}
    return complete(BranchGains, **blocks, **columns, provenance=PROVENANCE)


def variances():
    return Variances(
        **BLOCKS,
        **CHANGES,
        variance=within([1.0, 2.0, 0.5, 0.25, 40.0], [0.1, 0.1, 0.05, 0.02, 1.0]),
        relative=within([0.5, 0.6, 0.3, 0.2, 0.9], 0.01),
        **NEIGHBORS,
        feature_change=np.array([np.nan, 0.5, np.nan, 0.3, 0.2]),
        dead_channels=np.zeros(5),
        provenance=PROVENANCE,
    )


def receptive_field():
    sides = np.array([3.0, 5.0, 9.0, 20.0, 24.0])
    areas = {f"area_{t}": sides**2 / 1024 for t in (20, 30, 50, 99)}
    return complete(
        FieldSizes,
        **BLOCKS,
        **areas,
        sigma=within([1.0, 2.0, 4.0, 8.0, 7.5], [0.0, 0.1, 0.1, 0.5, 0.5]),
        side_50=sides,
        side_95=2 * sides,
        row=np.full(5, 15.5),
        column=np.full(5, 15.5),
        uniform_sigma=9.2,
    )


def receptive_maps():
    relative = np.tile([0.01, 0.1, 0.5, 0.05, 1.0, 0.0], 3) ** np.repeat([1, 2, 3], 6)
    return complete(
        ReceptiveMaps,
        picture=np.repeat(["stem", "conv1", "stages.2.blocks.17.attn"], 6),
        row=np.tile([0, 0, 0, 1, 1, 1], 3),
        column=np.tile([0, 1, 2], 6),
        relative=relative,
    )


def singular_values():
    rows = np.repeat(np.arange(5), 6)
    relative = np.tile([1.0, 0.5, 0.1, 1.0, 0.2, 0.0], 5)
    return complete(
        SingularSpectrum,
        **{name: column[rows] for name, column in BLOCKS.items()},
        level=np.tile(np.repeat(["tokens", "images"], 3), 5),
        rank=np.tile([1, 2, 3], 10),
        relative=relative,
    )


def patch_components():
    block, image, row, column = np.indices((2, 2, 3, 4)).reshape(4, -1)
    rows = {name: values[[0, 4]][block] for name, values in BLOCKS.items()}
    return PatchComponents(
        **rows,
        image=image,
        row=row,
        column=column,
        first=row / 2,
        second=column / 3,
        third=np.where(image == 0, 0.2, np.nan),
        explained=np.where(block == 0, 0.9, 0.6),
        background_threshold=0.5,
        provenance=PROVENANCE,
    )


def channel_maps():
    block, channel, row, column = np.indices((2, 2, 3, 4)).reshape(4, -1)
    return ChannelMaps(
        **{name: values[[0, 4]][block] for name, values in BLOCKS.items()},
        channel=channel,
        row=row,
        column=column,
        activation=(block + 1.0) * (row - column) + channel,
        provenance=PROVENANCE,
    )


def kind_summary():
    return KindSummary(
        kind=np.array(["attention", "attention", "mlp", "mlp"]),
        quantity=np.array([TO_MEAN.id, TO_LOWEST.id, TO_MEAN.id, TO_LOWEST.id]),
        blocks=np.array([3, 3, 1, 1]),
        falls=np.array([2, 1, 0, 0]),
        rises=np.array([0, 2, 1, 0]),
        mean=Estimated(
            [-0.4, 0.1, 0.2, 0.0], [-0.9, 0.05, np.nan, -0.1], [0.1, 0.15, np.nan, 0.1]
        ),
        provenance=PROVENANCE,
    )


def similarity():
    first, other = (axis.ravel() for axis in np.indices((5, 5)))
    cka = 0.8 ** abs(first - other)
    others = {f"other_{name}": BLOCKS[name][other] for name in ("kind", "stage", "depth")}
    return complete(
        Similarity,
        **{name: column[first] for name, column in BLOCKS.items()},
        other=BLOCKS["block"][other],
        **others,
        cka=cka,
        biased=cka**0.5,
        null_deviation=np.full(25, 0.05),
        batches=2,
    )


def structure():
    return similarity().block_structure()


def costs():
    return Costs(
        block=np.append(BLOCKS["block"], "head"),
        kind=np.append(BLOCKS["kind"], "head"),
        stage=np.append(BLOCKS["stage"], 1),
        depth=np.append(BLOCKS["depth"], 1.0),
        subsampling=np.append(BLOCKS["subsampling"], values=False),
        channels=np.array([8, 8, 16, 16, 16, 10]),
        height=np.array([16, 16, 4, 4, 4, 1]),
        width=np.array([16, 16, 4, 4, 4, 1]),
        parameters=np.array([100, 200, 300, 400, 500, 0]),
        macs=np.array([1000, 4000, 2000, 500, 500, 0]),
        distinct_parameters=1500,
        provenance=PROVENANCE,
    )
