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
    harmonize,
    hessian,
    landscape,
    outputs,
    train,
    trials,
)
from visprism.cli.naming import DATA, MODEL
from visprism.cli.options import (
    fourier_options,
    kernel_options,
    measured_options,
    out_options,
    seed_options,
    size_options,
    weights_options,
)
from visprism.cli.values import folder, positive, query


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
    whole = command("examine", examine.examine, "models side by side in one report", both)
    measured_options(whole)
    fourier_options(whole)
    kernel_options(whole)
    whole.add_argument(
        "--minutes",
        type=float,
        default=3.0,
        metavar="M",
        help="for Hessian, density, landscape, corruptions, lesions, noise and attacks"
        " together, of each model (3); 0: without them",
    )
    fourier = command(
        "fourier",
        examine.fourier,
        "how much of each spatial frequency every block lets pass",
        both,
    )
    measured_options(fourier)
    fourier_options(fourier)
    variance = command(
        "variance", examine.variance, "how far feature maps vary over positions, by block", both
    )
    measured_options(variance)
    attention = command(
        "attention",
        examine.attention,
        "how far each head looks, and whether heads differ",
        both,
    )
    measured_options(attention)
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
    measured_options(fields)
    fields.set_defaults(limit=16)  # one backward pass for each block, and more change little
    cka = command(
        "cka", examine.cka, "how alike all blocks of a model are, and those of two models", both
    )
    measured_options(cka)
    kernel_options(cka)
    bends = command(
        "hessian",
        hessian.hessian,
        "how sharp the loss of mini-batches is, and how convex, on 256 images if no --limit is"
        " named",
        both,
    )
    measured_options(bends)
    hessian.spectrum_options(bends)
    bends.set_defaults(limit=256)
    every = command(
        "density",
        hessian.density,
        "all Hessian eigenvalues of the loss over the data, on 256 images if no --limit is"
        " named",
        both,
    )
    measured_options(every)
    hessian.density_options(every)
    every.set_defaults(limit=256, weight_decay=0.0)
    surfaces = command(
        "landscape",
        landscape.landscape,
        "the loss about a model's weights, on 1,000 images if no --limit is named",
        both,
    )
    measured_options(surfaces)
    landscape.planes_options(surfaces)
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
    out_options(way)
    seed_options(way)
    size_options(way)

    metrics = command(
        "evaluate",
        outputs.evaluate,
        "accuracy, calibration and every other metric of the predictions",
        both,
    )
    measured_options(metrics)
    outputs.evaluate_options(metrics)
    robust = command(
        "robustness", outputs.robustness, "the same metrics on corrupted images", both
    )
    measured_options(robust)
    outputs.evaluate_options(robust)
    outputs.robustness_options(robust)

    cut = command(
        "lesion", trials.lesion, "what the model loses when each block is taken out", both
    )
    measured_options(cut)
    trials.lesion_options(cut)
    noisy = command("noise", trials.noise, "what noise of each band of frequencies costs", both)
    measured_options(noisy)
    trials.noise_options(noisy)
    hostile = command(
        "attack",
        trials.attack,
        "what small changes cost that are made to mislead the model, on 256 images if no"
        " --limit is named",
        both,
    )
    measured_options(hostile)
    trials.attack_options(hostile)
    hostile.set_defaults(limit=256)
    cues = command(
        "shape-bias",
        trials.shape_bias,
        "whether the model goes by shape or by texture, on images where they conflict",
        both,
    )
    measured_options(cues)

    blocks = command("anatomy", anatomy.anatomy, "the blocks of a model, as a table", MODEL)
    blocks.add_argument("model", metavar="MODEL")
    blocks.add_argument(
        "--out", type=folder, metavar="DIR", help="write a drawing and the table"
    )
    weights_options(blocks)
    size_options(blocks)

    models = command("models", catalogue.models, "models that can be named, or ways to", MODEL)
    models.add_argument("pattern", nargs="?", metavar="PATTERN", help="such as '*vit_tiny*'")
    models.add_argument(
        "--cost",
        action="store_true",
        help="parameters, multiply-accumulates for one image, and images a second, of each"
        " (of the zoo, if no PATTERN is named)",
    )
    models.add_argument(
        "--batch-size", type=positive, default=8, metavar="N", help="of --cost (8)"
    )
    command("data", catalogue.data, "data that can be named", DATA)

    train.add_commands(command, both)
    changed = command(
        "harmonize",
        harmonize.harmonize,
        "a CNN with self-attention in the place of some of its convolutions",
        both,
    )
    harmonize.harmonize_options(changed)

    tour = command("demo", demo.demo, "train two small networks on shapes and examine both")
    out_options(tour, default=Path("demo"))
    seed_options(tour)
    return root
