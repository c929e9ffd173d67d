"""Resuming: the state of a run on disk, from which it ends as if it had never stopped."""

import logging
import os
import pickle
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from visprism.data import Feed
from visprism.errors import InputError
from visprism.result import written_whole
from visprism.training.recipe import Recipe
from visprism.training.settings import flat

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"

_log = logging.getLogger(__name__)


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write ``last.ckpt``, whole or not at all; what it was becomes ``previous.ckpt``.

    Raises:
        InputError: if it cannot be written, as on a full disk; the last good one stays.
    """
    path = folder / LAST
    try:
        with written_whole(path) as scratch:
            with scratch.open("wb") as file:
                torch.save(dict(state), file)
                file.flush()
                os.fsync(file.fileno())  # or a crash of the machine could leave an empty file
            if path.exists():
                path.replace(folder / PREVIOUS)
    except (OSError, RuntimeError) as error:  # torch wraps what the file raises
        reason = error.strerror if isinstance(error, OSError) else _first_line(error)
        raise InputError(
            f"the state after step {state['step']} could not be written to {folder} "
            f"({reason}); the last good one is kept: make room, and go on with --resume"
        ) from error


def read_state(folder: Path) -> dict[str, Any] | None:
    """What `write_state` wrote, or what it was before if that is damaged; None of a new run.

    Raises:
        InputError: if there are files, and none can be read.
    """
    for scratch in (*folder.glob(".*.tmp*"), *folder.glob("*/.*.tmp*")):
        scratch.unlink()  # of a process that was killed while it wrote
    found = [folder / name for name in (LAST, PREVIOUS) if (folder / name).exists()]
    for path in found:
        try:
            with torch.serialization.safe_globals([defaultdict]):
                return torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
            _log.warning(
                "%s is damaged or incomplete (%s) and was not used%s",
                path,
                _first_line(error),
                "" if path == found[-1] else f"; going on from {found[-1].name}",
            )
    if found:
        raise InputError(
            f"no state in {folder} can be read ({', '.join(p.name for p in found)}); remove "
            "them to begin anew, or name another folder"
        )
    return None


def identity(model: nn.Module, train: Feed, recipe: Recipe) -> dict[str, dict[str, Any]]:
    """What must be the same for a run to go on: recipe, model and data, by name."""
    tensors = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    data = {"images": train.images, "classes": train.num_classes}
    return {"recipe": flat(recipe), "model": tensors, "data": data}


def check_same(state: Mapping[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    """The run in the folder is this one.

    Raises:
        InputError: if recipe, model or data differ; the differences are named.
    """
    differences = [
        f"{kind} {name} {then.get(name, 'none')} there, {own.get(name, 'none')} here"
        for kind, own in now.items()
        for then in [state["identity"][kind]]
        for name in dict.fromkeys((*then, *own))
        if then.get(name) != own.get(name)
    ]
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise InputError(
            f"{folder} holds another run: {'; '.join(differences[:3])}{more}; resume it with "
            "what it was begun with, or name another folder"
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).partition("\n")[0].rstrip(".")
