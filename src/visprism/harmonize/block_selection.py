"""Placement: which Conv blocks of a CNN give way to MSA blocks."""

from collections.abc import Iterable, Sequence
from typing import Literal

from visprism.core.errors import InputError
from visprism.harmonize.conv_blocks import ConvBlock

# A rule, the names of blocks, or how many blocks of each stage.
Placement = Literal["alternate", "end-of-stage"] | Sequence[str] | Sequence[int]

_RULES = ("alternate", "end-of-stage")


def placed(blocks: Sequence[ConvBlock], placement: Placement) -> tuple[str, ...]:
    """The names of the blocks that `placement` means, in forward order.

    Args:
        blocks: of the network, from `conv_blocks`.
        placement: "alternate": the last block of each stage and every second one before it.
            "end-of-stage": the last block of each stage. Numbers: so many blocks of each
            stage, its last one and every second one before it, as in Alter-ResNet. Names:
            these blocks.

    Raises:
        InputError: if the rule or a name is unknown, the numbers do not fit the stages, or a
            rule or numbers are given where a stage has blocks that are called several times.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 4.1.
    """
    stages = [
        [block.name for block in blocks if block.stage == stage]
        for stage in sorted({block.stage for block in blocks})
    ]
    if isinstance(placement, str):
        if placement not in _RULES:
            raise InputError(
                f"placement is {placement!r}; wants one of {', '.join(map(repr, _RULES))}, "
                "names of blocks, or a number for each stage"
            )
        _refuse_shared(blocks)
        every = placement == "alternate"
        return _alternate(stages, [(len(names) + 1) // 2 if every else 1 for names in stages])
    entries = list(placement) if isinstance(placement, Iterable) else [None]
    if all(isinstance(name, str) for name in entries):
        return _named(stages, [str(name) for name in entries])
    if not all(type(number) is int for number in entries):
        raise InputError(
            f"placement is {placement!r}; wants names of blocks alone, or whole numbers, one "
            "for each stage"
        )
    counts = [int(number) for number in entries]  # pyrefly: ignore (see above)
    if len(counts) != len(stages):
        raise InputError(
            f"placement {tuple(counts)} has {len(counts)} numbers, but the network has "
            f"{len(stages)} stages of {', '.join(str(len(names)) for names in stages)} blocks"
        )
    for stage, (names, number) in enumerate(zip(stages, counts, strict=True), 1):
        if not 0 <= number <= (len(names) + 1) // 2:
            raise InputError(
                f"placement {tuple(counts)} wants {number} MSA blocks in stage {stage}, but of "
                f"its {len(names)} blocks 0 to {(len(names) + 1) // 2} can alternate with "
                "convolutions"
            )
    if any(counts):
        _refuse_shared(blocks)
    return _alternate(stages, counts)


def _refuse_shared(blocks: Sequence[ConvBlock]) -> None:
    """Check that no stage has blocks that are called several times, which no rule counts."""
    for block in blocks:
        if block.beside:
            names = ", ".join(other.name for other in blocks if other.stage == block.stage)
            raise InputError(
                f"stage {block.stage} has blocks that are called several times in a pass "
                f"({', '.join(block.beside)}) and stay as they are, so which of it is last and "
                f"which every second one is not defined; name blocks, of this stage {names}"
            )


def _alternate(stages: Sequence[list[str]], counts: Sequence[int]) -> tuple[str, ...]:
    """The last block of each stage and every second one before it, so many of each."""
    return tuple(
        name
        for names, number in zip(stages, counts, strict=True)
        for name in sorted(names[::-1][: 2 * number : 2], key=names.index)
    )


def _named(stages: Sequence[list[str]], names: Sequence[str]) -> tuple[str, ...]:
    known = [name for stage in stages for name in stage]
    unknown = [name for name in names if name not in known]
    if unknown or len(set(names)) < len(names):
        problem = f"no Conv block {unknown[0]!r}" if unknown else "a block named twice"
        raise InputError(
            f"placement has {problem}; the residual Conv blocks are {', '.join(known)}"
        )
    return tuple(sorted(names, key=known.index))
