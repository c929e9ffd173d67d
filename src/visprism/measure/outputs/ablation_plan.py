"""Plans of ablation: which parts of a model are ablated, one by one and together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from visprism.anatomy import (
    Ablation,
    Anatomy,
    Block,
    ReplacedPart,
    block_ablations,
    block_parts,
    channel_parts,
    combine_ablations,
    convolution_ablations,
    convolution_parts,
    convolutional_blocks,
    head_ablations,
    head_parts,
    inner_blocks,
    token_parts,
)
from visprism.core.errors import InputError
from visprism.core.run import stream

Planned = Ablation | ReplacedPart
Plan = tuple[Sequence[Planned], Sequence[str]]  # and why other parts cannot be ablated
REPLACEMENTS = ("zero", "mean", "shuffle")


@dataclass(frozen=True)
class AblationSpec:
    """Which parts are ablated, and what replaces their activations."""

    parts: Sequence[str] = ("blocks", "convolutions")
    replacement: str = "zero"  # "zero", "mean" over images and positions, or "shuffle"
    num_channels: int = 4  # of each block, at random
    seed: int = 0  # of the channels
    # Role of each token off the grid, by name of the block; other blocks have none.
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [part for part in self.parts if part not in _PLANS]
        if unknown or not self.parts:
            raise InputError(
                f"parts must be some of {', '.join(_PLANS)}, got "
                f"{', '.join(self.parts) or 'none'}"
            )
        if self.replacement not in REPLACEMENTS:
            raise InputError(
                f"replacement must be one of {', '.join(REPLACEMENTS)}, got "
                f"{self.replacement!r}"
            )


def plan_ablations(
    anatomy: Anatomy, spec: AblationSpec
) -> tuple[list[Planned], tuple[str, ...]]:
    """Ablations of single parts, and why other parts cannot be ablated.

    A part that is not replaced by a constant waits for its replacement.
    """
    plans = [_PLANS[part](anatomy, spec) for part in dict.fromkeys(spec.parts)]
    planned = [ablation for plan, _ in plans for ablation in plan]
    return planned, tuple(dict.fromkeys(reason for _, reasons in plans for reason in reasons))


def _blocks(anatomy: Anatomy, spec: AblationSpec) -> Plan:
    if spec.replacement == "zero":
        return block_ablations(anatomy)
    return block_parts(inner_blocks(anatomy), anatomy)


def _convolutions(anatomy: Anatomy, spec: AblationSpec) -> Plan:
    if spec.replacement == "zero":
        return convolution_ablations(anatomy)
    return convolution_parts(convolutional_blocks(anatomy), anatomy)


def _heads(anatomy: Anatomy, spec: AblationSpec) -> Plan:
    if spec.replacement == "zero":
        return head_ablations(anatomy)
    return head_parts(anatomy.blocks, anatomy)


def _channels(anatomy: Anatomy, spec: AblationSpec) -> Plan:
    channels: dict[Block, list[int]] = {}
    for block in inner_blocks(anatomy):
        if block.layout is not None:
            generator = stream(spec.seed, "ablated channels", block.name)
            order = torch.randperm(block.shape[0], generator=generator)
            channels[block] = sorted(order[: spec.num_channels].tolist())
    return channel_parts(channels, anatomy)


def _tokens(anatomy: Anatomy, spec: AblationSpec) -> Plan:
    roles = {block: spec.roles.get(block.name, ()) for block in inner_blocks(anatomy)}
    parts, reasons = token_parts(roles, anatomy)
    if not parts:
        reasons = [f"{type(anatomy.model).__name__} has no class tokens or registers"]
    return parts, reasons


_PLANS: Mapping[str, Callable[[Anatomy, AblationSpec], Plan]] = {
    "blocks": _blocks,
    "convolutions": _convolutions,
    "heads": _heads,
    "channels": _channels,
    "tokens": _tokens,
}


def ablation_passes(
    anatomy: Anatomy, spec: AblationSpec, joint: Sequence[int] = (), draws: int = 0
) -> float:
    """Expected cost of `ablation` in forward passes of each image.

    An ablation computes what follows it: half of a pass on average. Means take one pass more.
    """
    single, _ = plan_ablations(anatomy, spec)
    means = 1.2 if spec.replacement == "mean" else 0.0
    return 1.5 + means + 0.55 * (len(single) + draws * len(joint))


def joint_plan(
    single: Sequence[Ablation], numbers: Sequence[int], draws: int, seed: int
) -> list[Ablation]:
    """Random sets of blocks ablated together, all by one experiment.

    Whole blocks where some are ablated one by one, otherwise convolutions, so that a joint drop
    can be compared with the sum of the single drops.
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
