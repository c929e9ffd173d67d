"""``visprism doctor``: versions, devices and folders, for a bug report."""

import os
import platform
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from typing import Any

from visprism.cli.options import json_option
from visprism.cli.output import print_json


def doctor(arguments: Namespace) -> None:
    """Print the environment as lines, or as JSON."""
    values = environment()
    if arguments.json:
        print_json(values)
        return
    for heading, part in values.items():
        print(heading)
        if not part:
            print("  none")
        width = max(map(len, part), default=0)
        for name, value in part.items():
            print(f"  {name:<{width}}  {value}")


def environment() -> dict[str, dict[str, Any]]:
    """What a bug report should state, by heading; values are texts, numbers and flags."""
    return {
        "system": _system(),
        "packages": dict(sorted(_packages(optional=False))),
        "optional packages": dict(sorted(_packages(optional=True))),
        "plug-ins": {
            plugin.name: plugin.value for plugin in entry_points(group="visprism.plugins")
        },
        "devices": _devices(),
        "folders": _folders(),
    }


def _system() -> dict[str, Any]:
    return {
        "visprism": version("visprism"),
        "Python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }


def _packages(*, optional: bool) -> Iterator[tuple[str, str]]:
    """The packages that visprism requires, or those of its extras, and their versions."""
    for requirement in requires("visprism") or ():
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)
        if name is not None and (extra is not None) == optional:
            try:
                yield name[0], version(name[0])
            except PackageNotFoundError:
                remedy = f"; pip install 'visprism[{extra[1]}]'" if extra else ""
                yield name[0], f"not installed{remedy}"


def _devices() -> dict[str, Any]:
    import torch

    devices: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "CPU instructions": torch.backends.cpu.get_cpu_capability(),
        "CUDA build": torch.version.cuda or "none",
        "MPS": torch.backends.mps.is_available(),
    }
    for index in range(torch.cuda.device_count()):
        values = torch.cuda.get_device_properties(index)
        memory = values.total_memory / 2**30
        devices[f"cuda:{index}"] = f"{values.name}, {memory:.0f} GiB"
    return devices


def _folders() -> dict[str, str]:
    """Where data and downloaded weights are, and whether the folder exists."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from torch import hub

    from visprism.images.stored import home

    places = {
        "data sets": home() / "data",
        "weights of torchvision": Path(hub.get_dir()) / "checkpoints",
        "weights of timm and Hugging Face": Path(HF_HUB_CACHE),
    }
    return {
        name: f"{place}{'' if place.is_dir() else ' (does not exist)'}"
        for name, place in places.items()
    }


def add(to: ArgumentParser) -> None:
    """The arguments of ``doctor``."""
    json_option(to)
    to.set_defaults(run=doctor)
