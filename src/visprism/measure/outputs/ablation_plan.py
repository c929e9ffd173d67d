"""Plans of a lesion study: what is taken out, one by one and together."""

from collections.abc import Sequence

import torch

from visprism.anatomy import (
    Ablation,
    Anatomy,
    block_ablations,
    combine_ablations,
    head_ablations,
)
from visprism.core.errors import InputError
from visprism.core.rng import stream

PIECES = ("units", "blocks", "heads")


def planned(anatomy: Anatomy, pieces: Sequence[str]) -> tuple[list[Ablation], list[str]]:
    """What to take out one by one, each once, and why other parts stay.

    Raises:
        InputError: if a piece is unknown.
    """
    found: list[Ablation] = []
    reasons: list[str] = []
    for piece in pieces:
        if piece == "units":
            new, why = block_ablations(anatomy)
        elif piece == "blocks":
            new, why = block_ablations(anatomy, whole=[b.kind for b in anatomy])
        elif piece == "heads":
            new, why = head_ablations(anatomy)
        else:
            raise InputError(f"unknown piece {piece!r}; wants some of {', '.join(PIECES)}")
        known = {(r.blocks, r.removed) for r in found}
        found += [r for r in new if (r.blocks, r.removed) not in known]
        reasons += why
    return found, list(dict.fromkeys(reasons))


def joined(
    single: Sequence[Ablation], together: Sequence[int], draws: int, seed: int
) -> list[Ablation]:
    """Several of the removals at once; of a block that has two, the first.

    Raises:
        InputError: if more are to go than there are.
    """
    units = list({r.blocks: r for r in reversed(single)}.values())[::-1]
    found = []
    for number in together:
        if not 1 <= number <= len(units):
            raise InputError(
                f"together is {number}; wants 1 to {len(units)}, as so many blocks can be "
                "lesioned one by one"
            )
        for draw in range(draws):
            generator = stream(seed, "lesions", number, draw)
            some = torch.randperm(len(units), generator=generator)[:number].tolist()
            found.append(combine_ablations([units[i] for i in some]))
    return found
