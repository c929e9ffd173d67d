"""The folder of a monitor: a study for each step of a training."""

import re
import shutil
from pathlib import Path

from visprism.study.store import INDEX

REPLACED = "replaced"  # folder of studies of other weights than a training has now
_STEP = re.compile(r"step-(\d+)")


def step_folder(folder: Path, step: int) -> Path:
    """The folder of the study after so many updates."""
    return folder / f"step-{step:08d}"


def step_folders(folder: Path) -> dict[int, Path]:
    """The studies of a monitor's folder that are whole, by step, in order."""
    paths = {int(m[1]): p for p in folder.glob("step-*") if (m := _STEP.fullmatch(p.name))}
    return {step: path for step, path in sorted(paths.items()) if (path / INDEX).is_file()}


def steps_of_run(folder: Path) -> dict[int, Path]:
    """The steps of a monitor's folder, or of a run that has it as its folder ``monitor``."""
    return step_folders(folder) or step_folders(folder / "monitor")


def set_aside(folder: Path, first: int) -> None:
    """Move the studies from a step on into the folder ``replaced``."""
    for step, path in step_folders(folder).items():
        if step >= first:
            aside = folder / REPLACED / path.name
            shutil.rmtree(aside, ignore_errors=True)
            aside.parent.mkdir(exist_ok=True)
            path.rename(aside)
