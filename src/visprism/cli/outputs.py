"""``visprism evaluate`` and ``robustness``: what the predictions tell."""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from visprism.cli.measured import Found, inquiry_of, measure_and_write, writers_of
from visprism.cli.text import verdicts
from visprism.cli.values import confidence, listed, positive
from visprism.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from visprism.cli.commands import Commands
    from visprism.examine import Progress
    from visprism.models import LoadedModel


def evaluate(arguments: Namespace) -> None:
    """Every metric of the predictions."""
    _evaluate(arguments)


def robustness(arguments: Namespace) -> None:
    """Every metric on corrupted images."""
    from visprism.data.corruptions import COMMON, EXTRA, PERTURBATIONS

    groups: dict[str, tuple[str, ...]] = {
        "common": COMMON,
        "all": (*COMMON, *EXTRA),
        "none": (),
    }
    corruptions = _named(arguments.corruptions, groups)
    perturbations = _named(arguments.perturbations, {"all": PERTURBATIONS, "none": ()})
    if not corruptions and not perturbations:
        raise InputError(
            "neither corruptions nor perturbations are asked for; leave --corruptions out for "
            "the 15 of ImageNet-C, or name some"
        )
    _evaluate(
        arguments,
        corruptions=corruptions,
        severities=arguments.severities,
        perturbations=perturbations,
    )


def add_commands(commands: "Commands") -> None:
    """``evaluate`` and ``robustness``."""
    every = "accuracy, calibration and every other metric of the predictions"
    _metrics_options(commands.measuring("evaluate", evaluate, every))
    robust = commands.measuring(
        "robustness", robustness, "the same metrics on corrupted images"
    )
    _metrics_options(robust)
    _corruptions_options(robust)


def _metrics_options(to: ArgumentParser) -> None:
    """What both commands take."""
    to.add_argument(
        "--cutoff",
        type=listed(confidence),
        default=(0.9,),
        metavar="C[,C...]",
        help="of the confidence, for acc, unc, freq and iou (0.9)",
    )
    to.add_argument(
        "--bins", type=positive, default=10, metavar="N", help="of the calibration errors (10)"
    )
    to.add_argument(
        "--samples",
        type=positive,
        default=1,
        metavar="N",
        help="passes with dropout at work, whose probabilities are averaged (1: none)",
    )


def _corruptions_options(to: ArgumentParser) -> None:
    """What is asked of corruptions alone."""
    to.add_argument(
        "--corruptions",
        default="common",
        metavar="NAME[,NAME...]",
        help="common (the 15 of ImageNet-C; default), all (19), none, or names",
    )
    to.add_argument(
        "--severities",
        type=listed(positive),
        default=(1, 2, 3, 4, 5),
        metavar="N[,N...]",
        help="of 1 (mild) to 5 (severe); by default all",
    )
    to.add_argument(
        "--perturbations",
        default="none",
        metavar="NAME[,NAME...]",
        help="sequences, for flip rates: none (default), all (10), or names",
    )


def _evaluate(arguments: Namespace, **more: Any) -> None:  # noqa: ANN401 (of Evaluation)
    from visprism.examine import Evaluation, write_report
    from visprism.examine import evaluate as evaluated

    evaluation = Evaluation(
        cutoffs=arguments.cutoff, bins=arguments.bins, samples=arguments.samples
    )
    evaluation = replace(evaluation, **more)
    inquiry = inquiry_of(arguments, ())

    def measure(models: "Sequence[LoadedModel]", progress: "Progress") -> Found:
        examinations = evaluated(models, inquiry, evaluation, progress=progress)
        return verdicts(examinations), writers_of(examinations, write_report)

    measure_and_write(arguments, inquiry, measure, look="report.html")


def _named(text: str, groups: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    return groups[text] if text in groups else tuple(text.split(","))
