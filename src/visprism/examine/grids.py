"""Grids of landscapes: as fine, and on as many images, as there is time for."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from visprism.core.processes import gather
from visprism.examine.inquiry import Inquiry
from visprism.examine.landscapes import Survey, batches_of, planes_of
from visprism.examine.materials import Materials
from visprism.measure.loss.landscape import Landscape, landscape, random_planes

GRIDS = (21, 15, 11, 9)  # points a side, from fine to coarse
_FEW, _MANY = 128, 1000  # images: a grid is made coarser before there are fewer, and at most
_TRIED = 32  # images to take the time of


def landscape_within(
    materials: Materials,
    inquiry: Inquiry,
    seconds: float,
    *,
    survey: Survey | None = None,
    progress: Callable[[Iterable], Iterable] | None = None,
) -> Landscape:
    """The landscape of one model, as fine as it can be had within some seconds.

    One line is measured on few images to see how long an image takes. Then comes the finest of
    the grids of 21, 15, 11 or 9 points a side for which there is time for 128 images, on as
    many images as there is time for, 1,000 at most and 16 at least; so it may take longer on a
    slow machine. The grid and the number of images stand in the result.

    Raises:
        InputError: as `landscape`.
    """
    survey = survey or Survey()
    rate = _images_per_second(materials, inquiry, survey)
    points, images = grid_within(seconds * rate, len(materials.image_set))
    chosen = replace(survey, points=points)
    some = materials.some(images, inquiry.seed)
    return landscape(
        some.anatomy.model,
        batches_of(some, inquiry, chosen),
        planes_of(some, inquiry, chosen, []),
        weight_decay=chosen.weight_decay,
        batch_norm=chosen.batch_norm,
        compute=inquiry.compute,
        progress=progress,
        provenance=some.provenance(inquiry),
    )


def grid_within(passes: float, images: int) -> tuple[int, int]:
    """Points a side, and number of images, for so many images passed through the model.

    Example:
        >>> grid_within(441e3, images=10_000), grid_within(3e4, images=10_000)
        ((21, 1000), (15, 133))
    """
    for points in GRIDS:
        affordable = int(passes / points**2)
        if affordable >= min(_FEW, images):
            return points, min(affordable, _MANY, images)
    return GRIDS[-1], min(images, max(16, int(passes / GRIDS[-1] ** 2)))


def _images_per_second(materials: Materials, inquiry: Inquiry, survey: Survey) -> float:
    """How many images pass in a second, by trying; the same in every process."""
    some = materials.some(_TRIED, inquiry.seed)
    (line,) = random_planes(some.anatomy.model, points=3, lines=True)
    batches = list(batches_of(some, inquiry, survey))
    begun = time.perf_counter()
    landscape(some.anatomy.model, batches, [line], compute=inquiry.compute)
    taken = max(gather(time.perf_counter() - begun))
    return 4 * len(some.image_set) / taken  # 3 points, and the middle
