"""``visprism lesion``, ``noise``, ``attack``, ``shape-bias``: what a model bears and sees."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from visprism.cli.measured import Found, inquiry_of, measure_and_write, writers_of
from visprism.cli.text import verdicts
from visprism.cli.values import listed, positive, share

if TYPE_CHECKING:
    from visprism.cli.commands import Commands
    from visprism.examine import Progress, Trial
    from visprism.models import LoadedModel


def lesion(arguments: Namespace) -> None:
    """Each part of each model taken out in turn."""
    from visprism.examine import lesions_of, write_beside_attention

    options = {
        "pieces": arguments.pieces,
        "together": arguments.together,
        "draws": arguments.draws,
    }
    _try(arguments, partial(lesions_of, **options), more=(write_beside_attention,))


def noise(arguments: Namespace) -> None:
    """Noise of each band of frequencies."""
    from visprism.examine import noise_of

    options = {
        "rms": arguments.rms,
        "ring": arguments.ring,
        "protocol": arguments.protocol,
        "epsilon": arguments.epsilon,
        "reach": arguments.map,
        "step": arguments.map_step,
    }
    if arguments.frequencies:
        options["frequencies"] = arguments.frequencies
    _try(arguments, partial(noise_of, **options))


def attack(arguments: Namespace) -> None:
    """Each attack at each strength, and in each band."""
    from visprism.examine import attacks_of
    from visprism.measure.outputs import Attack

    attacks = [
        Attack(
            name,
            epsilon,
            arguments.norm,
            steps=arguments.steps,
            restarts=arguments.restarts,
            frequency=frequency,
        )
        for name in arguments.attacks
        for epsilon in arguments.epsilon
        for frequency in arguments.frequencies or (None,)
    ]
    _try(arguments, partial(attacks_of, attacks=attacks))


def shape_bias(arguments: Namespace) -> None:
    """Shape or texture."""
    from visprism.examine import shape_bias_of

    _try(arguments, shape_bias_of)


def add_commands(commands: "Commands") -> None:
    """``lesion``, ``noise``, ``attack`` and ``shape-bias``."""
    out = "what the model loses when each block is taken out"
    _lesion_options(commands.measuring("lesion", lesion, out))
    bands = "what noise of each band of frequencies costs"
    _noise_options(commands.measuring("noise", noise, bands))
    small = "what small changes cost that are made to mislead the model"
    _attack_options(commands.measuring("attack", attack, small, limit=256))
    cues = "whether the model goes by shape or by texture, on images where they conflict"
    commands.measuring("shape-bias", shape_bias, cues)


def _lesion_options(to: ArgumentParser) -> None:
    """What is asked of lesions alone."""
    to.add_argument(
        "--pieces",
        type=listed(str),
        default=("units",),
        metavar="NAME[,NAME...]",
        help="units (default: blocks, but of a bottleneck its convolution), blocks, heads",
    )
    to.add_argument(
        "--together",
        type=listed(positive),
        default=(),
        metavar="K[,K...]",
        help="K blocks at once, drawn at random",
    )
    to.add_argument("--draws", type=positive, default=10, metavar="N", help="for each K (10)")


def _noise_options(to: ArgumentParser) -> None:
    """What is asked of noise alone."""
    to.add_argument(
        "--frequencies",
        type=listed(float),
        default=(),
        metavar="F[,F...]",
        help="middles of the bands in pi rad/pixel (0.1 to 0.9)",
    )
    to.add_argument(
        "--rms",
        type=float,
        default=0.1,
        metavar="R",
        help="of the noise in every band, in pixels of 0 to 1 (0.1)",
    )
    to.add_argument("--ring", default="square", choices=["square", "round"])
    to.add_argument(
        "--protocol",
        default="default",
        choices=["default", "paper"],
        help="default: equal energy in every band; paper: noise that grows with frequency",
    )
    to.add_argument(
        "--epsilon", type=float, default=0.7, metavar="E", help="of the paper's noise (0.7)"
    )
    to.add_argument(
        "--map",
        type=positive,
        default=0,
        metavar="N",
        help="also the error for each wave of up to N cycles: about 2 N² passes",
    )
    to.add_argument(
        "--map-step", type=positive, default=1, metavar="N", help="every N-th wave only"
    )


def _attack_options(to: ArgumentParser) -> None:
    """What is asked of attacks alone."""
    to.add_argument(
        "--attacks",
        type=listed(str),
        default=("random", "fgsm", "pgd"),
        metavar="NAME[,NAME...]",
        help="of random, fgsm, pgd; by default all",
    )
    to.add_argument(
        "--epsilon",
        type=listed(share),
        default=(1 / 255, 2 / 255, 4 / 255, 8 / 255),
        metavar="E[,E...]",
        help="largest change of pixels in 0 to 1, as 0.01 or 4/255 (1, 2, 4, 8 of 255)",
    )
    to.add_argument("--norm", default="linf", choices=["linf", "l2"])
    to.add_argument("--steps", type=positive, default=10, metavar="N", help="of PGD (10)")
    to.add_argument("--restarts", type=positive, default=1, metavar="N", help="of PGD (1)")
    to.add_argument(
        "--frequencies",
        type=listed(float),
        default=(),
        metavar="F[,F...]",
        help="only in these bands, in pi rad/pixel",
    )


def _try(arguments: Namespace, trial: "Trial", *, more: Sequence[Callable] = ()) -> None:
    from visprism.examine import trials, write_report

    inquiry = inquiry_of(arguments, ())

    def measure(models: "Sequence[LoadedModel]", progress: "Progress") -> Found:
        examinations = trials(models, inquiry, trial, progress=progress)
        return verdicts(examinations), writers_of(examinations, write_report, *more)

    measure_and_write(arguments, inquiry, measure, look="report.html")
