"""Arguments of every command. Built without torch: names that need it are checked later."""

import argparse
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from visprism.cli import (
    anatomy,
    catalogue,
    demo,
    examine,
    hessian,
    landscape,
    outputs,
    trials,
)
from visprism.cli.naming import DATA, MODEL


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="visprism",
        description="Take any vision model apart, watch its blocks on real images, and report.",
        epilog="`visprism COMMAND --help` tells more; `visprism demo` shows it all at work.",
    )
    root.add_argument("--version", action="version", version=f"visprism {version('visprism')}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(
        name: str, run: Callable, help: str, epilog: str = ""
    ) -> argparse.ArgumentParser:
        new = commands.add_parser(
            name,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        new.set_defaults(run=run)
        return new

    both = f"{MODEL}\n{DATA}"
    whole = command("examine", examine.examine, "every analysis of models, and a report", both)
    _models(whole), _data(whole), _measuring(whole), _fourier(whole), _kernel(whole)
    whole.add_argument(
        "--minutes",
        type=float,
        default=2.0,
        metavar="M",
        help="for the Hessian and the landscape of each model (2); 0: without them",
    )
    fourier = command(
        "fourier",
        examine.fourier,
        "how much of each spatial frequency every block lets pass",
        both,
    )
    _models(fourier), _data(fourier), _measuring(fourier), _fourier(fourier)
    variance = command(
        "variance", examine.variance, "how far feature maps vary over positions, by block", both
    )
    _models(variance), _data(variance), _measuring(variance)
    attention = command(
        "attention",
        examine.attention,
        "how far each head looks, and whether heads differ",
        both,
    )
    _models(attention), _data(attention), _measuring(attention)
    attention.add_argument(
        "--query",
        type=query,
        default="mean",
        metavar="ROW,COLUMN|class|mean",
        help="of the maps: a pixel, the class token, or the mean of all queries (default)",
    )
    attention.add_argument(
        "--maps", type=positive, default=2, metavar="N", help="of the first N images (2)"
    )
    fields = command(
        "receptive-field",
        examine.receptive_field,
        "which pixels every block answers to, on 16 images if no --limit is named",
        both,
    )
    _models(fields), _data(fields), _measuring(fields)
    fields.set_defaults(limit=16)  # one backward pass for each block, and more change little
    cka = command(
        "cka", examine.cka, "how alike all blocks of a model are, and those of two models", both
    )
    _models(cka), _data(cka), _measuring(cka), _kernel(cka)
    bends = command(
        "hessian",
        hessian.hessian,
        "how sharp the loss of mini-batches is, and how convex, on 256 images if no --limit is"
        " named",
        both,
    )
    _models(bends), _data(bends), _measuring(bends), _hessian(bends)
    bends.add_argument(
        "--augment", action="store_true", help="on images as the paper trains on them, too"
    )
    bends.add_argument(
        "--phases",
        nargs="+",
        default=[],
        metavar="FILE",
        help="checkpoints in the place of the model's own weights, as phases in one figure",
    )
    bends.set_defaults(limit=256)
    every = command(
        "density",
        hessian.density,
        "all Hessian eigenvalues of the loss over the data, on 256 images if no --limit is"
        " named",
        both,
    )
    _models(every), _data(every), _measuring(every), _hessian(every)
    every.add_argument(
        "--runs", type=positive, default=2, metavar="N", help="independent starts (2)"
    )
    every.add_argument(
        "--steps", type=positive, default=40, metavar="N", help="of Lanczos in each (40)"
    )
    every.set_defaults(limit=256, weight_decay=0.0)
    surfaces = command(
        "landscape",
        landscape.landscape,
        "the loss about a model's weights, on 1,000 images if no --limit is named",
        both,
    )
    _models(surfaces), _data(surfaces), _measuring(surfaces), _planes(surfaces)
    surfaces.set_defaults(limit=1000)
    way = command(
        "trajectory", landscape.trajectory, "the way of a model's weights in training", MODEL
    )
    way.add_argument("model", metavar="MODEL")
    way.add_argument(
        "--snapshots",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="checkpoints, in the order of training",
    )
    _out(way), _seed(way), _size(way)

    metrics = command(
        "evaluate",
        outputs.evaluate,
        "accuracy, calibration and every other metric of the predictions",
        both,
    )
    _models(metrics), _data(metrics), _measuring(metrics), outputs.evaluate_options(metrics)
    robust = command(
        "robustness", outputs.robustness, "the same metrics on corrupted images", both
    )
    _models(robust), _data(robust), _measuring(robust), outputs.evaluate_options(robust)
    outputs.robustness_options(robust)

    cut = command(
        "lesion", trials.lesion, "what the model loses when each block is taken out", both
    )
    _models(cut), _data(cut), _measuring(cut), trials.lesion_options(cut)
    noisy = command("noise", trials.noise, "what noise of each band of frequencies costs", both)
    _models(noisy), _data(noisy), _measuring(noisy), trials.noise_options(noisy)
    hostile = command(
        "attack",
        trials.attack,
        "what small changes cost that are made to mislead the model, on 256 images if no"
        " --limit is named",
        both,
    )
    _models(hostile), _data(hostile), _measuring(hostile), trials.attack_options(hostile)
    hostile.set_defaults(limit=256)
    cues = command(
        "shape-bias",
        trials.shape_bias,
        "whether the model goes by shape or by texture, on images where they conflict",
        both,
    )
    _models(cues), _data(cues), _measuring(cues)

    blocks = command("anatomy", anatomy.anatomy, "the blocks of a model, as a table", MODEL)
    blocks.add_argument("model", metavar="MODEL")
    blocks.add_argument(
        "--out", type=folder, metavar="DIR", help="write a drawing and the table"
    )
    _weights(blocks)
    _size(blocks)

    models = command("models", catalogue.models, "models that can be named, or ways to", MODEL)
    models.add_argument("pattern", nargs="?", metavar="PATTERN", help="such as '*vit_tiny*'")
    command("data", catalogue.data, "data that can be named", DATA)

    tour = command("demo", demo.demo, "train two small networks on shapes and examine both")
    _out(tour, default=Path("demo"))
    _seed(tour)
    return root


def _models(to: argparse.ArgumentParser) -> None:
    to.add_argument("models", nargs="+", metavar="MODEL")
    _weights(to)


def _weights(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--pretrained",
        action="store_true",
        help="with the weights that timm, torchvision or Hugging Face offers",
    )
    _seed(to)


def _seed(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of random weights and data"
    )


def _out(to: argparse.ArgumentParser, default: Path | None = None) -> None:
    to.add_argument(
        "--out",
        type=folder,
        metavar="DIR",
        required=default is None,
        default=default,
        help="folder to write into" + (f" ({default})" if default else ""),
    )


def _size(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--size",
        type=size,
        metavar="N|HxW",
        help="of the images in pixels; by default what the model wants",
    )


def _data(to: argparse.ArgumentParser) -> None:
    to.add_argument("--data", required=True, metavar="DATA")
    to.add_argument("--split", metavar="NAME", help="such as train, val or test")
    to.add_argument(
        "--limit", type=positive, metavar="N", help="at most N images, as many of each class"
    )
    to.add_argument("--batch-size", type=positive, default=16, metavar="N")
    to.add_argument(
        "--skip-bad", action="store_true", help="leave out images that cannot be read"
    )
    _size(to)


def _measuring(to: argparse.ArgumentParser) -> None:
    _out(to)
    to.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1, mps")
    to.add_argument("--precision", default="fp32", choices=["fp32", "bf16", "fp16"])


def _fourier(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--protocol",
        default="default",
        choices=["default", "paper"],
        help="default: true frequencies; paper: the numbers of Park & Kim's code",
    )
    to.add_argument("--profile", default="diagonal", choices=["diagonal", "radial"])


def _kernel(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--kernel",
        default="linear",
        choices=["linear", "rbf"],
        help="of CKA; rbf is as wide as half the median distance of two images",
    )


def _hessian(to: argparse.ArgumentParser) -> None:
    to.add_argument("-k", type=positive, default=5, metavar="N", help="eigenvalues (5)")
    to.add_argument(
        "--weight-decay",
        type=float,
        default=0.05,
        metavar="WD",
        help="of the L2 term (%(default)s)",
    )
    to.add_argument(
        "--parameters",
        default="all",
        metavar="WHICH",
        help="all (default), a pattern of names as '*.attn.*', block:NAME, stage:N, kind:KIND",
    )


def _planes(to: argparse.ArgumentParser) -> None:
    to.add_argument(
        "--points", type=positive, default=21, metavar="N", help="of the grid, a side (21); odd"
    )
    to.add_argument("--reach", type=float, default=1.0, metavar="R", help="from -R to R (1.0)")
    to.add_argument(
        "--pairs", type=positive, default=1, metavar="N", help="of random directions (1)"
    )
    to.add_argument("--lines", action="store_true", help="along single directions only")
    to.add_argument(
        "--normalisation", default="filter", choices=["filter", "layer", "none", "paper"]
    )
    to.add_argument(
        "--weight-decay", type=float, default=0.05, metavar="WD", help="of the L2 term (0.05)"
    )
    to.add_argument(
        "--plane",
        nargs="+",
        default=["random"],
        metavar="FILE",
        help="through the model and 1 or 2 checkpoints, in place of random directions",
    )
    to.add_argument(
        "--batch-norm",
        default="frozen",
        choices=["frozen", "reestimated"],
        help="running statistics: the model's (default), or estimated anew at each point",
    )
    to.add_argument(
        "--augment", action="store_true", help="images as the paper's networks are trained"
    )


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def query(text: str) -> tuple[int, int] | str:
    """A pixel, or one of the words for a query."""
    row, comma, column = text.partition(",")
    if comma and row.isdecimal() and column.isdecimal():
        return int(row), int(column)
    if text not in {"class", "mean"}:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no query; wants a pixel, as 112,80, or class, or mean"
        )
    return text


def folder(text: str) -> Path:
    """A path that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name; name a folder")
    return Path(text)


def size(text: str) -> tuple[int, int]:
    """(height, width), from ``224`` or ``224x160``."""
    height, _, width = text.partition("x")
    return positive(height), positive(width or height)
