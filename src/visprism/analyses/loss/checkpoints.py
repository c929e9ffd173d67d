"""Checkpoints that are options of analyses.

`visprism.models` imports timm, which takes seconds, so it is imported only for checkpoints.
"""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from visprism import kit


def stored_weights(checkpoints: Sequence[Path | str]) -> list[dict[str, Tensor]]:
    """The state dictionary of each checkpoint."""
    if not checkpoints:
        return []
    from visprism.models.state_dicts import read_state_dict

    return [read_state_dict(Path(file)) for file in checkpoints]


def names_of(checkpoints: Sequence[Path | str]) -> list[str]:
    """Names of the files, with folders where they would be equal."""
    paths = [Path(file) for file in checkpoints]
    if len(set(paths)) < len(paths):
        raise kit.InputError("checkpoints must be different files, got one of them twice")
    unique = len({path.stem for path in paths}) == len(paths)
    return [path.name if unique else str(path) for path in paths]
