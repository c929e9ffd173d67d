"""Arguments that several commands share."""

import argparse
from pathlib import Path
from typing import Any

from visprism.cli.values import (
    folder,
    formats,
    minutes_or_none,
    nonnegative,
    positive,
    size,
)

MODEL = """\
MODEL is one of
  timm:NAME               a model of timm
  torchvision:NAME        a classifier of torchvision
  hf:NAME or hf:FOLDER    an image classifier of Hugging Face
  NAME                    a model of the zoo (`visprism models` lists them)
  path/file.py:FUNCTION   a Python function that returns a torch.nn.Module
  FILE.safetensors        a checkpoint of `visprism train`, which states its model
Arguments follow after ?, a checkpoint after @; quote them for the shell:
  'timm:vit_tiny_patch16_224?img_size=32&patch_size=4&num_classes=10@best.safetensors'
"""
WEIGHTS = """\
Weights are random unless the model is named as
  NAME@FILE               safetensors, or a file that torch reads with weights_only=True
  NAME.TAG                weights inside the package, such as resnet20.shapes
                          (`visprism models --trained` lists them)
  NAME --pretrained       published weights of a model of timm, torchvision or Hugging Face,
                          which are downloaded, or the weights inside the package
  hf:FOLDER               the weights in the folder
Checkpoints of the code of "How Do Vision Transformers Work?" load under the name of the
network in the zoo, as resnet50_32@FILE.
"""
DATA = """\
DATA is one of
  shapes                  ten classes of textured shapes, drawn when needed
  cifar10, cifar100       from torchvision
  folder:DIR              a folder of images, or of one folder per class
  parquet:FILE-OR-DIR     Parquet files in the layout of Hugging Face
  hf:NAME                 a data set of Hugging Face
  cifar10_c:DIR, cifar100_c:DIR, imagenet_c:DIR
                          stored sets of corrupted images
Options follow after ?; quote them for the shell: 'shapes?size=64&target=texture'
"""
BOTH = f"{MODEL}\n{DATA}"


Container = Any  # an ArgumentParser or a group of its arguments; argparse names no common type


def json_option(to: Container, what: str = "the output") -> None:
    """Whether to print JSON."""
    to.add_argument(
        "--json", action="store_true", help=f"print {what} as JSON (default: as text)"
    )


def models_options(to: argparse.ArgumentParser) -> None:
    """Which models, with which weights."""
    to.add_argument("models", nargs="+", metavar="MODEL", help="models, see below")
    weights_options(to)


def weights_options(to: Container) -> None:
    """Which weights."""
    to.add_argument(
        "--pretrained",
        action="store_true",
        help="load published weights of models that are given by name (default: random "
        "weights)",
    )
    seed_options(to)


def seed_options(to: Container) -> None:
    """The seed."""
    to.add_argument(
        "--seed",
        type=nonnegative,
        default=0,
        metavar="N",
        help="random seed of weights, of the order of images and of measurements (default: 0)",
    )


def out_options(to: Container, default: Path | None = None) -> None:
    """Where to write."""
    to.add_argument(
        "--out",
        type=folder,
        metavar="DIR",
        required=default is None,
        default=default,
        help="output folder" + (f" (default: {default})" if default else ""),
    )


def size_options(to: Container) -> None:
    """How large images are."""
    to.add_argument(
        "--size",
        type=size,
        metavar="N|HxW",
        help="image size in pixels (default: as the model states, otherwise that of the data)",
    )


def data_options(to: Container) -> None:
    """Which images."""
    to.add_argument("--data", required=True, metavar="DATA", help="images, see below")
    to.add_argument(
        "--train-data",
        metavar="DATA",
        help="images on which the training loss, its Hessian and linear probes are computed "
        "(default: the training split of DATA; the images of DATA itself if it has none or if "
        "--split is given)",
    )
    to.add_argument(
        "--split",
        metavar="NAME",
        help="split to measure on, such as train, val or test (default: test, or all images)",
    )
    to.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        help="maximum number of images, balanced over classes (default: all)",
    )
    to.add_argument(
        "--batch-size",
        type=positive,
        metavar="N",
        help="images per forward pass (default: 16; selected by image size for passes that "
        "return logits only)",
    )
    to.add_argument(
        "--skip-bad",
        action="store_true",
        help="leave out images that cannot be read (default: refuse them)",
    )
    size_options(to)


def compute_options(to: Container) -> None:
    """On what to compute."""
    device_options(to)
    to.add_argument(
        "--precision",
        default="fp32",
        choices=["fp32", "bf16", "fp16"],
        help="precision of forward passes (default: fp32)",
    )


def device_options(to: Container) -> None:
    """The device."""
    to.add_argument(
        "--device",
        default="cpu",
        metavar="NAME",
        help="device: cpu, cuda, cuda:1 or mps (default: cpu)",
    )


def effort_option(to: Container, default: str) -> None:
    """How much to measure."""
    to.add_argument(
        "--effort",
        default=default,
        choices=["quick", "standard", "full"],
        help="how many images, and values of options that are not given: quick, standard "
        f"(about ten times as long) or full (all images) (default: {default})",
    )


def study_options(to: argparse.ArgumentParser, *, effort: str) -> None:
    """Models, data, output folder, effort, time limit and device, in groups of the help."""
    models_options(to)
    data_options(to.add_argument_group("images"))
    group = to.add_argument_group("study")
    out_options(group)
    effort_option(group, effort)
    group.add_argument(
        "--minutes",
        type=minutes_or_none,
        metavar="N",
        help="time limit of the command in minutes, figures and report included: what is not "
        "reached is listed (default: none)",
    )
    group.add_argument(
        "--fresh",
        action="store_true",
        help="start over (default: resume what DIR holds)",
    )
    group.add_argument(
        "--formats",
        type=formats,
        default=("png",),
        metavar="F,...",
        help="formats of figure files: png, svg, pdf (default: png)",
    )
    json_option(group, "answers, findings and failures")
    compute_options(to.add_argument_group("computation"))
