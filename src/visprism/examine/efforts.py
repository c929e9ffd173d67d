"""Efforts: how fine a trial of an examination is, and on how many images, in some seconds."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

import torch

from visprism.anatomy import forward
from visprism.core.errors import InputError
from visprism.core.processes import gather
from visprism.data.corruptions import COMMON
from visprism.examine.inquiry import Inquiry, Progress
from visprism.examine.materials import Materials
from visprism.examine.outputs import Evaluation, corrupted, robustness_of
from visprism.examine.trials import Found, Trial, attacks_of, lesions_alone, noise_of
from visprism.measure.outputs import Attack
from visprism.measure.outputs.ablation_plan import planned
from visprism.measure.outputs.bands import CENTRES

# Images: a trial is made coarser before there are fewer; left out before there are fewer; most.
_FEW, _LEAST, _MANY = 128, 16, 500
_TRIED, _CORRUPTED = 16, 2  # images to take the time of


@dataclass(frozen=True)
class Effort:
    """One way to make a trial, and what it takes of each image."""

    trial: Trial
    passes: float  # of the model, forwards
    seconds: float = 0.0  # beside them


def trial_within(
    name: str, materials: Materials, inquiry: Inquiry, seconds: float, progress: Progress
) -> Found:
    """The trial of this name, as fine as it can be had within some seconds.

    What an image takes is measured on few. Of the ways to make the trial comes the finest for
    which there is time for 128 images, on as many as there is time for, 500 at most.

    Raises:
        InputError: if there is no time for 16 images, or as the trial says.
    """
    a_pass, loading = _seconds_per_image(materials, inquiry)
    efforts = _EFFORTS[name](materials, inquiry)
    each = [effort.passes * a_pass + effort.seconds + loading for effort in efforts]
    which, images = affordable([seconds / s for s in each], len(materials.image_set))
    if not images:
        needed = min(_LEAST, len(materials.image_set)) * each[-1]
        minutes = ceil(inquiry.minutes * needed / seconds)
        raise InputError(
            f"{min(_LEAST, len(materials.image_set))} images would take about {needed:.1f} s, "
            f"and its share of the time is {seconds:.1f} s; give --minutes {minutes} or more"
        )
    return efforts[which].trial(materials.some(images, inquiry.seed), inquiry, progress)


def affordable(images: Sequence[float], there: int) -> tuple[int, int]:
    """Which way to make a trial, and on how many images; on none where there is no time.

    Args:
        images: for how many there is time, for each way from fine to coarse.
        there: how many there are.

    Example:
        >>> affordable([100.0, 300.0], there=2000), affordable([3.0, 9.0], there=2000)
        ((1, 300), (1, 0))
    """
    last = len(images) - 1
    which = next((i for i, n in enumerate(images) if n >= min(_FEW, there)), last)
    chosen = int(min(images[which], _MANY, there))
    return which, chosen if chosen >= min(_LEAST, there) else 0


def _seconds_per_image(materials: Materials, inquiry: Inquiry) -> tuple[float, float]:
    """What a pass of the model takes, and reading an image; the same in every process."""
    some = materials.some(_TRIED, inquiry.seed)
    begun = time.perf_counter()
    shown = list(some.batches(inquiry.batch_size))
    read = time.perf_counter() - begun
    model = some.anatomy.model
    with torch.no_grad(), inquiry.compute.borrow(model), inquiry.compute.autocast():
        for _ in range(2):  # the first is slower than all that follow
            begun = time.perf_counter()
            for images, _ in shown:
                forward(model, images.to(inquiry.compute.torch_device)).cpu()
            passed = time.perf_counter() - begun
    number = len(some.image_set)
    return max(gather(passed)) / number, max(gather(read)) / number


def _robustness(materials: Materials, inquiry: Inquiry) -> list[Effort]:
    some = materials.some(_CORRUPTED, inquiry.seed)
    begun = time.perf_counter()
    for name in COMMON:
        list(corrupted(some, inquiry, name, 3))
    made = max(gather(time.perf_counter() - begun)) / len(some.image_set)
    return [
        Effort(
            partial(_corrupted, severities=severities),
            passes=1.0 + len(COMMON) * len(severities),
            seconds=made * len(severities),
        )
        for severities in ((1, 3, 5), (3,))
    ]


def _corrupted(
    materials: Materials, inquiry: Inquiry, progress: Progress, *, severities: tuple[int, ...]
) -> Found:
    evaluation = Evaluation(corruptions=COMMON, severities=severities)
    return robustness_of(materials, inquiry, evaluation, progress)


def _lesion(materials: Materials, inquiry: Inquiry) -> list[Effort]:  # noqa: ARG001
    removals, _ = planned(materials.anatomy, ("units",))
    # A lesion runs what follows it: half of the model on average, and what it takes to resume.
    return [Effort(lesions_alone, passes=2 + 0.7 * len(removals))]


def _noise(materials: Materials, inquiry: Inquiry) -> list[Effort]:  # noqa: ARG001
    return [Effort(noise_of, passes=1 + 1.5 * len(CENTRES))]  # with making the noise


def _attack(materials: Materials, inquiry: Inquiry) -> list[Effort]:  # noqa: ARG001
    efforts = []
    for sizes in ((1, 2, 4, 8), (1, 4), (1,)):
        attacks = [Attack(n, s / 255) for n in ("random", "fgsm", "pgd") for s in sizes]
        # A gradient takes three passes, and each attack one to see what it has done; PGD one
        # more for its start.
        passes = sum(1 + 3 * a.gradients + (a.name == "pgd") * a.restarts for a in attacks)
        efforts.append(Effort(partial(attacks_of, attacks=attacks), passes=1.0 + passes))
    return efforts


_EFFORTS: dict[str, Callable[[Materials, Inquiry], list[Effort]]] = {
    "robustness": _robustness,
    "lesion": _lesion,
    "noise": _noise,
    "attack": _attack,
}
