"""Options that several commands share."""

import argparse
from pathlib import Path

from visprism.cli.values import folder, positive, size


def measured_options(to: argparse.ArgumentParser) -> None:
    """Which models, on which images, where to write, and on what to compute."""
    models_options(to)
    data_options(to)
    measuring_options(to)


def models_options(to: argparse.ArgumentParser) -> None:
    """Which models."""
    to.add_argument("models", nargs="+", metavar="MODEL")
    weights_options(to)


def weights_options(to: argparse.ArgumentParser) -> None:
    """Which weights."""
    to.add_argument(
        "--pretrained",
        action="store_true",
        help="with the weights that timm, torchvision or Hugging Face offers",
    )
    seed_options(to)


def seed_options(to: argparse.ArgumentParser) -> None:
    """The seed."""
    to.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of random weights and data"
    )


def out_options(to: argparse.ArgumentParser, default: Path | None = None) -> None:
    """Where to write."""
    to.add_argument(
        "--out",
        type=folder,
        metavar="DIR",
        required=default is None,
        default=default,
        help="folder to write into" + (f" ({default})" if default else ""),
    )


def size_options(to: argparse.ArgumentParser) -> None:
    """How large images are."""
    to.add_argument(
        "--size",
        type=size,
        metavar="N|HxW",
        help="of the images in pixels; by default what the model wants",
    )


def data_options(to: argparse.ArgumentParser) -> None:
    """Which images."""
    to.add_argument("--data", required=True, metavar="DATA")
    to.add_argument("--split", metavar="NAME", help="such as train, val or test")
    to.add_argument(
        "--limit", type=positive, metavar="N", help="at most N images, as many of each class"
    )
    to.add_argument("--batch-size", type=positive, default=16, metavar="N")
    to.add_argument(
        "--skip-bad", action="store_true", help="leave out images that cannot be read"
    )
    size_options(to)


def measuring_options(to: argparse.ArgumentParser) -> None:
    """Where to write, and on what to compute."""
    out_options(to)
    to.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1, mps")
    to.add_argument("--precision", default="fp32", choices=["fp32", "bf16", "fp16"])


def fourier_options(to: argparse.ArgumentParser) -> None:
    """How spectra are taken."""
    to.add_argument(
        "--protocol",
        default="default",
        choices=["default", "paper"],
        help="default: true frequencies; paper: the numbers of Park & Kim's code",
    )
    to.add_argument("--profile", default="diagonal", choices=["diagonal", "radial"])


def kernel_options(to: argparse.ArgumentParser) -> None:
    """Of CKA."""
    to.add_argument(
        "--kernel",
        default="linear",
        choices=["linear", "rbf"],
        help="of CKA; rbf is as wide as half the median distance of two images",
    )
