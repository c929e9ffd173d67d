"""``visprism doctor``, ``completion`` and ``view``: installation, shell and browser."""

import argparse
import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from typing import Any

from visprism.cli.arguments import DATA, Command, Printing, argument
from visprism.cli.output import print_json


@dataclass(frozen=True, kw_only=True)
class Doctor(Printing):
    """Print versions, devices and folders for a bug report."""

    group, epilog = "installation", ""

    def run(self) -> None:
        """Print the environment as lines, or as JSON."""
        values = _environment()
        if self.json:
            print_json(values)
            return
        for heading, part in values.items():
            print(heading)
            width = max(map(len, part), default=0)
            for name, value in part.items() or [("none", "")]:
                print(f"  {name:<{width}}  {value}".rstrip())


def _environment() -> dict[str, dict[str, Any]]:
    """What a bug report should state, by heading; values are texts, numbers and flags."""
    return {
        "system": {
            "visprism": version("visprism"),
            "Python": platform.python_version(),
            "executable": sys.executable,
            "platform": platform.platform(),
            "cores": os.cpu_count(),
        },
        "packages": dict(sorted(_packages(optional=False))),
        "optional packages": dict(sorted(_packages(optional=True))),
        "plug-ins": {
            plugin.name: plugin.value for plugin in entry_points(group="visprism.plugins")
        },
        "devices": _devices(),
        "folders": _folders(),
    }


def _packages(*, optional: bool) -> Iterator[tuple[str, str]]:
    """The packages that visprism or its extras require, and their versions."""
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


def add_names(parser: argparse.ArgumentParser) -> None:
    """State names of models, data and recipes, and where files follow, by the metavar."""
    import shtab

    from visprism.cli.catalog import read_catalog
    from visprism.images.image_set import DATA as REGISTERED
    from visprism.models.pretrained import pretrained_cards
    from visprism.training.recipe import RECIPES

    names = {
        "MODEL": [*read_catalog(), *pretrained_cards()],
        "DATA": list(REGISTERED),
        "RECIPE": list(RECIPES),
        "SHELL": ["bash", "zsh", "fish"],
    }
    (subparsers,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for command in subparsers.choices.values():
        for action in command._actions:
            form = action.metavar if isinstance(action.metavar, str) else ""
            action.help = (action.help or "").partition(" (default: ")[0]
            if form.startswith("{"):
                action.choices = form.strip("{}").split(",")
            elif form in names:
                action.choices = names[form]
            elif form in ("DIR", "FILE", "FILE,...", "MODEL@FILE"):
                action.complete = shtab.DIRECTORY if form == "DIR" else shtab.FILE  # pyrefly: ignore


@dataclass(frozen=True, kw_only=True)
class View(Command):
    """Show and start studies in a browser."""

    group, epilog = "studies", DATA
    studies: tuple[str, ...] = argument(
        (),
        "studies, trainings with a monitor, or folders of them, to show (default: none)",
        "STUDY",
        positional=True,
    )
    out: Path = argument(Path("studies"), "folder for new studies and uploads", "DIR")
    weights: tuple[str, ...] = argument(
        (),
        "folder with checkpoints that forms offer; repeatable (default: none)",
        "DIR",
        repeatable=True,
    )
    data: tuple[str, ...] = argument(
        (),
        "images that forms offer in addition to shapes, see below; repeatable (default: none)",
        "DATA",
        repeatable=True,
    )
    port: int = argument(
        8765, "port of 127.0.0.1, or 0 for one that is free", minimum=0, maximum=65535
    )
    browser: bool = argument(False, "open the page in the browser (default: print its address)")

    def run(self) -> None:
        """Serve the app until Ctrl-C."""
        from visprism.app.serve import serve
        from visprism.app.settings import Settings, studies_in

        settings = Settings(
            workspace=self.out,
            studies=[study for name in self.studies for study in studies_in(Path(name))],
            checkpoints=tuple(map(Path, self.weights)),
            data=("shapes", *(name for name in self.data if name != "shapes")),
        )
        serve(settings, self.port, ready=self._announce)

    def _announce(self, address: str) -> None:
        print(f"Open {address}", flush=True)
        print("Whoever has this address can use the app. Ctrl-C ends it.", file=sys.stderr)
        if self.browser:
            import webbrowser

            webbrowser.open(address)
