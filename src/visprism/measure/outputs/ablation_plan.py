"""Plans of ablation: which parts of a model are ablated, one by one and together."""

from collections.abc import Sequence

import torch

from visprism.anatomy import (
    Ablation,
    Anatomy,
    block_ablations,
    combine_ablations,
    convolution_ablations,
    head_ablations,
)
from visprism.core.errors import InputError
from visprism.core.rng import stream

_PLANS = {
    "blocks": block_ablations,
    "convolutions": convolution_ablations,
    "heads": head_ablations,
}


def plan_ablations(
    anatomy: Anatomy, parts: Sequence[str]
) -> tuple[list[Ablation], tuple[str, ...]]:
    """Ablations of single parts, and why other parts cannot be ablated.

    Raises:
        InputError: if `parts` holds an unknown part or none.
    """
    unknown = [part for part in parts if part not in _PLANS]
    if unknown or not parts:
        raise InputError(
            f"parts must be some of {', '.join(_PLANS)}, got {', '.join(parts) or 'none'}"
        )
    plans = [_PLANS[part](anatomy) for part in dict.fromkeys(parts)]
    ablations = [ablation for plan, _ in plans for ablation in plan]
    return ablations, tuple(dict.fromkeys(reason for _, reasons in plans for reason in reasons))


def ablation_passes(
    anatomy: Anatomy, parts: Sequence[str], joint: Sequence[int] = (), draws: int = 0
) -> float:
    """Expected cost of `ablation` in forward passes of each image.

    An ablation computes what follows it: half of a pass on average.
    """
    single, _ = plan_ablations(anatomy, parts)
    return 1.5 + 0.55 * (len(single) + draws * len(joint))


def joint_plan(
    single: Sequence[Ablation], numbers: Sequence[int], draws: int, seed: int
) -> list[Ablation]:
    """Random sets of blocks ablated together, all by one experiment.

    Whole blocks where some are ablated one by one, otherwise convolutions, so that a joint drop
    can be compared with the sum of the single drops.

    Raises:
        InputError: if a number is below 1 or above the number of ablated blocks.
    """
    blocks = [a for a in single if a.ablated == "block"]
    blocks = blocks or [a for a in single if a.ablated == "convolution"]
    joint = []
    for number in numbers:
        if not 1 <= number <= len(blocks):
            raise InputError(
                f"joint must be between 1 and {len(blocks)}, the number of blocks that can be "
                f"ablated, got {number}"
            )
        for draw in range(draws):
            generator = stream(seed, "joint ablations", number, draw)
            order = torch.randperm(len(blocks), generator=generator)
            joint.append(combine_ablations([blocks[i] for i in order[:number].tolist()]))
    return joint
