"""Ablation contrasts: mean drops by kind of block, and differences between groups of blocks."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float

from visprism.anatomy import Ablation
from visprism.core.provenance import Provenance
from visprism.core.statistics import mean_interval
from visprism.results.ablation import LATE_MINUS_EARLY, KindAblations, mean_drop_label
from visprism.results.per_image import PerImage

# Experiment, comparison, number of blocks, and its value for each image.
Contrast = tuple[str, str, int, Float[np.ndarray, " n"]]


def summarize_by_kind(
    ablations: Sequence[Ablation],
    drops: Float[np.ndarray, "n ablations"],
    images: np.ndarray,
    provenance: Provenance,
    replacement: str = "zero",
) -> tuple[KindAblations, PerImage]:
    """Means by kind, differences between kinds, and late minus early blocks of a kind.

    With d_ib the drop of image i without block b (1, 0 or -1), the mean of a group G is that of
    d_iG = mean over b in G of d_ib, and its interval is over images.

    Args:
        ablations: the experiments, in the order of the columns of `drops`.
        drops: correct without ablation (1 or 0) minus correct with each.
        images: index of each image in the data.
        provenance: of the measurement.
        replacement: of the activations of the parts.
    """
    contrasts = list(_contrasts(ablations, drops))
    intervals = [mean_interval(values) for *_, values in contrasts]
    kinds = KindAblations(
        ablated=np.array([c[0] for c in contrasts], dtype=str),
        comparison=np.array([c[1] for c in contrasts], dtype=str),
        num_blocks=np.array([c[2] for c in contrasts], dtype=int),
        drop=np.array([c[3].mean() for c in contrasts], dtype=float),
        drop_low=np.array([low for low, _ in intervals], dtype=float),
        drop_high=np.array([high for _, high in intervals], dtype=float),
        replacement=replacement,
        provenance=provenance,
    )
    names = [mean_drop_label(c[0], c[1], replacement) for c in contrasts]
    per_image = PerImage(
        quantity=np.repeat(np.array(names, dtype=str), len(images)),
        image=np.tile(images, len(contrasts)),
        value=np.concatenate([np.zeros(0), *(c[3] for c in contrasts)]),
        provenance=provenance,
    )
    return kinds, per_image


def _contrasts(
    ablations: Sequence[Ablation], drops: Float[np.ndarray, "n ablations"]
) -> Iterator[Contrast]:
    for experiment in ("block", "convolution"):
        columns = [i for i, a in enumerate(ablations) if a.ablated == experiment]
        kinds = dict.fromkeys(ablations[i].blocks[0].kind for i in columns)
        groups = {
            kind: [i for i in columns if ablations[i].blocks[0].kind == kind] for kind in kinds
        }
        for kind, group in groups.items():
            yield experiment, kind, len(group), drops[:, group].mean(1)
        for first, second in combinations(groups, 2):
            both = groups[first], groups[second]
            values = drops[:, both[0]].mean(1) - drops[:, both[1]].mean(1)
            yield experiment, f"{first} minus {second}", sum(map(len, both)), values
        for kind, group in groups.items():
            halves = _halves(ablations, group)
            early = [i for first, _ in halves.values() for i in first]
            late = [i for _, second in halves.values() for i in second]
            if not halves:
                continue
            name = f"{kind}, {LATE_MINUS_EARLY}"
            values = drops[:, late].mean(1) - drops[:, early].mean(1)
            yield experiment, name, len(early) + len(late), values
            if len(halves) > 1:
                for stage, (first, second) in halves.items():
                    values = drops[:, second].mean(1) - drops[:, first].mean(1)
                    yield experiment, f"{name}, stage {stage}", 2 * len(first), values


def _halves(
    ablations: Sequence[Ablation], group: Sequence[int]
) -> dict[int, tuple[list[int], list[int]]]:
    """The first and the last half of the blocks of each stage, the middle one in neither."""
    halves = {}
    for stage in dict.fromkeys(ablations[i].blocks[0].stage for i in group):
        members = [i for i in group if ablations[i].blocks[0].stage == stage]
        half = len(members) // 2
        if half:
            halves[stage] = members[:half], members[-half:]
    return halves
