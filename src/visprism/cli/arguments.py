"""Arguments of commands: fields of a dataclass, from which flags and help texts are made.

A command is a dataclass whose fields are declared by `argument`, as an analysis declares its
options; fields that several commands share stand in a class that they inherit.
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visprism.core.errors import InputError
from visprism.core.options import REQUIRED as REQUIRED
from visprism.core.options import Option, options_of
from visprism.core.options import argument as argument
from visprism.core.request import AUTO

if TYPE_CHECKING:
    from visprism.core.run import Progress, Run

MODEL = """\
MODEL is one of
  timm:NAME               a model of timm, also as timm:hf-hub:OWNER/NAME
  torchvision:NAME        a classifier of torchvision
  hf:NAME or hf:FOLDER    an image model of Hugging Face
  NAME                    a model of the zoo (`visprism models` lists them)
  path/file.py:FUNCTION   a Python function that returns a torch.nn.Module
  FILE.safetensors        a checkpoint of `visprism train`, which states its model
Arguments follow after ?, a checkpoint after @; quote them for the shell:
  'timm:vit_tiny_patch16_224?img_size=32&patch_size=4&num_classes=10@best.safetensors'
If a model returns several tensors, ?output=NAME names the one with the logits.
"""
WEIGHTS = """\
Models of timm, torchvision and Hugging Face have their published weights, which are downloaded.
Other models have random weights, unless they are named as
  NAME@FILE               safetensors, or a file that torch reads with weights_only=True
  NAME.TAG                weights inside the package, such as resnet20.shapes
                          (`visprism models --trained` lists them)
With --random-weights, models that are given only by name have random weights. With
--pretrained, models of the zoo have the weights inside the package.
Checkpoints of the code of "How Do Vision Transformers Work?" load under the name of the
network in the zoo, as resnet50_32@FILE.
"""
DATA = """\
DATA is one of
  shapes                  ten classes of textured shapes, drawn when needed
  cifar10, cifar100       from torchvision
  PATH, folder:PATH       an image, a folder of images, or of one folder per class
  FILE-OR-DIR, parquet:FILE-OR-DIR
                          Parquet files in the layout of Hugging Face
  hf:NAME                 a data set of Hugging Face
  cifar10_c:DIR, cifar100_c:DIR, imagenet_c:DIR
                          stored sets of corrupted images
Options follow after ?; quote them for the shell: 'shapes?size=64&target=texture'
"""
MEASURED = f"{MODEL}\n{WEIGHTS}\n{DATA}"

_LARGEST_SIDE = 2**16  # of an image, in pixels


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command with the values of its arguments."""

    line: str = ""  # as the user typed it
    begin: float = 0.0  # of the command, in seconds of `time.monotonic`

    def run(self) -> int | None:
        """Do what the command says; returns the exit code, None for 0."""
        raise NotImplementedError

    def new_run(self, progress: "Progress", **values: Any) -> "Run":
        """How this command measures: on its device, with its seed where it has one."""
        from visprism.core.devices import Compute
        from visprism.core.provenance import Provenance
        from visprism.core.run import Run

        device = getattr(self, "device", AUTO)
        return Run(
            compute=Compute(
                None if device == AUTO else device, getattr(self, "precision", "fp32")
            ),
            seed=getattr(self, "seed", 0),
            progress=progress,
            provenance=Provenance(command=self.line),
            **values,
        )


@dataclass(frozen=True, kw_only=True)
class Printing(Command):
    """A command that prints."""

    json: bool = argument(False, "print the output as JSON (default: as text)")


def add_arguments(to: argparse.ArgumentParser, command: type) -> None:
    """Add the fields of a command to its parser, under the headings of their classes."""
    groups: dict[str, Any] = {"": to}
    declared = options_of(command)
    for one in fields(command):
        if one.name in declared:
            classes = map(vars, reversed(command.__mro__))
            owner = next(c for c in classes if one.name in c.get("__dataclass_fields__", {}))
            heading = owner.get("heading", "")
            if heading not in groups:
                groups[heading] = to.add_argument_group(heading)
            shape: dict[str, Any] = {k: v for k, v in one.metadata.items() if k != "option"}
            required = one.default is MISSING
            _add(groups[heading], declared[one.name], required=required, **shape)


def _add(
    to: Any,
    declared: Option,
    *,
    metavar: str,
    positional: bool,
    repeatable: bool,
    opposite: tuple[str, str] | None,
    required: bool,
) -> None:
    """Add one argument; of one that is not given the parser states nothing."""
    values: dict[str, Any] = {
        "default": argparse.SUPPRESS,
        "help": help_of(declared, required=required),
        "type": parser_of(declared, metavar),
        "metavar": metavar or declared.metavar,
    }
    several = "tuple[str" in str(declared.type)
    if positional:
        values["nargs"] = ("+" if required else "*") if several else (None if required else "?")
        if not required:
            values["default"] = declared.default
        to.add_argument(declared.name, **values)
        return
    flag = "--" + declared.name.replace("_", "-")
    if declared.type is bool or opposite is not None:
        values = {"default": values["default"], "help": values["help"], "action": "store_true"}
    else:
        values["required"] = required
        if repeatable:
            values["action"] = "append"
    if opposite is not None:
        to = to.add_mutually_exclusive_group()
    to.add_argument(flag, dest=declared.name, **values)
    if opposite is not None:
        values |= {"help": opposite[1], "action": "store_false"}
        to.add_argument(f"--{opposite[0]}", dest=declared.name, **values)


def help_of(declared: Option, *, required: bool = False) -> str:
    """The help text, which ends in the default."""
    text = declared.info.help
    stated = required or "(default: " in text
    return (text if stated else declared.help).replace("%", "%%")


def parser_of(declared: Option, metavar: str = "") -> Callable[[str], Any]:
    """A function from text to value, as argparse takes it."""
    several = metavar and not metavar.endswith(",...") and "tuple[str" in str(declared.type)
    read = str if several else _READ.get(metavar, declared.parse)

    def parse(text: str) -> Any:
        try:
            return read(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


def _folder(text: str) -> Path:
    if not text or "\0" in text:
        raise InputError(f"must be the name of a folder, got {text!r}")
    return Path(os.fsdecode(os.fsencode(text)))


def _size(text: str) -> tuple[int, int]:
    """(height, width), from ``224`` or ``224x160``."""
    parts = text.split("x")
    sides = [int(p) if p.isascii() and p.isdecimal() and len(p) < 9 else 0 for p in parts]
    if len(sides) > 2 or not 1 <= min(sides) <= max(sides) <= _LARGEST_SIDE:
        raise InputError(
            f"must be N or HxW of at most {_LARGEST_SIDE} pixels, such as 224 or 224x160, got "
            f"{text!r}"
        )
    return sides[0], sides[-1]


_READ: dict[str, Callable[[str], Any]] = {"DIR": _folder, "N|HxW": _size}
