"""The checkpoints of a training: found by the steps in their names, and loaded."""

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from visprism.core.errors import DamagedError, InputError
from visprism.study.steps import step_folders

# The step in the name of a checkpoint; a number with a point is a metric.
_STEPS = (r"step[-_=]?(\d+)", r"epoch[-_=]?(\d+)", r"(?<![\d.])\d+(?!\d|\.\d)")
_SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".tar")
_WEIGHTS = (  # of Transformers, in a folder for each step
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)  # fmt: skip


def checkpoints_in(folder: Path) -> dict[int, Path]:
    """The checkpoints of a folder by step, in order.

    The checkpoints of a run of visprism are its snapshots and the weights at its end.
    The step is the number after "step" in the name, else that after "epoch", else the last
    integer.
    """
    snapshots = folder / "snapshots"
    inside = sorted((snapshots if snapshots.is_dir() else folder).iterdir())
    steps: dict[int, Path] = {}
    for path in inside:
        weights = next((path / name for name in _WEIGHTS if (path / name).is_file()), None)
        file = path if path.is_file() and path.name.endswith(_SUFFIXES) else weights
        bare = re.sub(r"(\.(safetensors|pt|pth|ckpt|bin|tar))+$", "", path.name)
        numbers = next(filter(None, (re.findall(pattern, bare) for pattern in _STEPS)), None)
        if file is None or numbers is None or path.name.startswith("recovery-"):  # of timm
            continue
        step = int(numbers[-1])
        if step in steps:
            raise InputError(
                f"{folder} must have one checkpoint for each step, got {steps[step].name} and "
                f"{file.name} for {step}. Move one of them away."
            )
        steps[step] = file
    history, end = folder / "history.csv", folder / "model.safetensors"
    if history.is_file() and end.is_file():
        steps[int(history.read_text("utf-8").split()[-1].split(",")[1])] = end
    if len(steps) < 2:
        hint = ". The studies of its monitor need no data" * bool(step_folders(folder))
        if history.is_file():
            hint += ". Train with --set snapshot_every=1, or with --watch"
        raise InputError(
            f"{folder} must hold at least two checkpoints with the number of their step in "
            f"their names, got {len(steps)}{hint}"
        )
    return dict(sorted(steps.items()))


def loaded_checkpoint(path: Path, model: Any) -> Any:
    """The model with the weights of a checkpoint."""
    from visprism.models.checkpoints import load_checkpoint, read_metadata, require_finite
    from visprism.models.loading import LoadedModel, load_model
    from visprism.models.state_dicts import read_state_dict

    if model is None and (path.parent / "config.json").is_file():
        if path.suffix != ".json":  # only Transformers reads the files of an index
            read_state_dict(path)  # says how a file is damaged
        loaded = load_model(f"hf:{path.parent}")
        state = loaded.model.state_dict()
        require_finite(state, state, path)
        return loaded
    if model is None:
        if path.suffix != ".safetensors" or read_metadata(path).provenance is None:
            raise InputError(f"model must be named for {path}, which does not name it")
        return load_model(str(path))
    if isinstance(model, str):
        return load_model(f"{model}@{path}")
    if isinstance(model, LoadedModel):
        return replace(model, model=loaded_checkpoint(path, model.model))
    if not isinstance(model, nn.Module):
        raise InputError(f"model must be an nn.Module or a name, got {type(model).__name__}")
    other = deepcopy(model)
    load_checkpoint(other, path)
    return other.eval()


def of_one_network(
    files: Mapping[int, Path], model: Any
) -> tuple[dict[int, Path], dict[int, str]]:
    """Checkpoints, which must be of one network, and why others are damaged; by step."""
    readable, damaged = {}, {}
    first: tuple[Path, dict[str, tuple[int, ...]]] | None = None
    for step, path in files.items():
        try:
            loaded = loaded_checkpoint(path, model)
        except DamagedError as error:
            damaged[step] = str(error)
            continue
        readable[step] = path
        module = loaded if isinstance(loaded, nn.Module) else loaded.model
        shapes = {name: tuple(p.shape) for name, p in module.named_parameters()}
        first = first or (path, shapes)
        if shapes != first[1]:
            raise InputError(
                f"checkpoints of a run must be of one network, and {path} is of another one "
                f"than {first[0].name}. Move one of them away."
            )
    if not readable:
        raise InputError(next(iter(damaged.values())))
    return readable, damaged
