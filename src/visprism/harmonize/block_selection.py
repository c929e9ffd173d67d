"""Block selection: which Conv blocks of a CNN are replaced by MSA blocks."""

from collections.abc import Iterable, Sequence
from typing import Literal

from visprism.core.errors import InputError
from visprism.harmonize.conv_blocks import ConvBlock

# A rule, the names of blocks, or the number of blocks per stage.
Placement = Literal["alternate", "end-of-stage"] | Sequence[str] | Sequence[int]

_RULES = ("alternate", "end-of-stage")


def select_blocks(blocks: Sequence[ConvBlock], placement: Placement) -> tuple[str, ...]:
    """The names of the blocks that `placement` selects, in forward order.

    Args:
        blocks: of the network, from `conv_blocks`.
        placement: "alternate": the last block of each stage and every second one before it.
            "end-of-stage": the last block of each stage. Numbers, one per stage: that many
            blocks, the last one and every second one before it, as in Alter-ResNet. Names:
            these blocks.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4.1.
    """
    stages = [
        [block.name for block in blocks if block.stage == stage]
        for stage in sorted({block.stage for block in blocks})
    ]
    if isinstance(placement, str):
        if placement not in _RULES:
            raise InputError(
                f"placement must be {' or '.join(map(repr, _RULES))}, names of blocks, or one "
                f"number per stage, got {placement!r}"
            )
        _refuse_shared(blocks)
        every = placement == "alternate"
        return _alternate(stages, [(len(names) + 1) // 2 if every else 1 for names in stages])
    entries = list(placement) if isinstance(placement, Iterable) else [None]
    if all(isinstance(name, str) for name in entries):
        return _named(stages, [str(name) for name in entries])
    if not all(type(number) is int for number in entries):
        raise InputError(
            f"placement must be names of blocks, or one integer per stage, got {placement!r}"
        )
    counts = [int(number) for number in entries]  # pyrefly: ignore (see above)
    if len(counts) != len(stages):
        raise InputError(
            f"placement must have one number per stage ({len(stages)} stages of "
            f"{', '.join(str(len(names)) for names in stages)} blocks), got {tuple(counts)}"
        )
    for stage, (names, number) in enumerate(zip(stages, counts, strict=True), 1):
        if not 0 <= number <= (len(names) + 1) // 2:
            raise InputError(
                f"placement must be 0 to {(len(names) + 1) // 2} in stage {stage}, where every "
                f"second of {len(names)} blocks can be replaced, got {number}"
            )
    if any(counts):
        _refuse_shared(blocks)
    return _alternate(stages, counts)


def _refuse_shared(blocks: Sequence[ConvBlock]) -> None:
    """Refuse stages with blocks that are called several times, which no rule can count."""
    for block in blocks:
        if block.repeated:
            names = ", ".join(other.name for other in blocks if other.stage == block.stage)
            raise InputError(
                f"placement must be names of blocks, because stage {block.stage} has blocks "
                f"that are called several times ({', '.join(block.repeated)}) and cannot be "
                f"replaced. The blocks of this stage are {names}."
            )


def _alternate(stages: Sequence[list[str]], counts: Sequence[int]) -> tuple[str, ...]:
    """The last blocks of each stage, every second one, as many as counted."""
    return tuple(
        name
        for names, number in zip(stages, counts, strict=True)
        for name in sorted(names[::-1][: 2 * number : 2], key=names.index)
    )


def _named(stages: Sequence[list[str]], names: Sequence[str]) -> tuple[str, ...]:
    available = [name for stage in stages for name in stage]
    unknown = [name for name in names if name not in available]
    if unknown or len(set(names)) < len(names):
        problem = repr(unknown[0]) if unknown else "a name twice"
        raise InputError(
            f"placement must be names of residual Conv blocks ({', '.join(available)}), got "
            f"{problem}"
        )
    return tuple(sorted(names, key=available.index))
