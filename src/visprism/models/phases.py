"""Phases of training: one model with the weights of several checkpoints."""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from pathlib import Path

from torch import nn

from visprism.core.errors import InputError
from visprism.models.checkpoints import load_checkpoint


def phases(model: nn.Module, checkpoints: Sequence[Path]) -> Iterator[tuple[str, nn.Module]]:
    """Name and model of each phase: a copy with the weights of each checkpoint, in turn.

    Without checkpoints the model itself is the only phase, with an empty name. Phases are named
    after their files, with folders where the names would be equal.

    Raises:
        InputError: if a checkpoint is given twice, or does not fit the model.
    """
    if not checkpoints:
        yield "", model
    if len(set(checkpoints)) < len(checkpoints):
        raise InputError("checkpoints must be different files, got one of them twice")
    stems = [path.stem for path in checkpoints]
    unique = len(set(stems)) == len(stems)
    for path in checkpoints:
        other = deepcopy(model)
        load_checkpoint(other, path)
        yield (path.stem if unique else str(path.with_suffix(""))), other.eval()
