"""Densities as a part of an examination: on as many images as there is time for."""

from functools import partial
from math import ceil

from visprism.core.errors import InputError
from visprism.examine.inquiry import Inquiry, Progress
from visprism.examine.materials import Materials
from visprism.measure.loss import Objective
from visprism.measure.loss.curvature import SpectralDensity, product_cost, spectral_density

RUNS, STEPS = 2, 30  # of Lanczos, fewer than `density` takes
FEWEST = 32  # images


def density_within(
    materials: Materials, inquiry: Inquiry, seconds: float, *, progress: Progress
) -> SpectralDensity:
    """The density of all Hessian eigenvalues of the mean loss over some images.

    Raises:
        InputError: if there is no time for 32 images, or as `spectral_density`.
    """
    several = materials.some(FEWEST, seed=inquiry.seed)
    one = several.batches(inquiry.batch_size)[:1]
    size = len(next(iter(one))[1])
    cost = product_cost(Objective(materials.anatomy.model, one, compute=inquiry.compute))
    each = RUNS * STEPS * cost.each / size
    images = min(int(seconds / each), len(materials.image_set))
    if images < min(FEWEST, len(materials.image_set)):
        need = (each * FEWEST) / (seconds / inquiry.minutes)
        raise InputError(
            f"{RUNS * STEPS} Hessian products of {FEWEST} images take more than its share of "
            f"the time; --minutes {ceil(10 * need) / 10:g} would be enough"
        )
    objective = Objective(
        materials.anatomy.model,
        list(materials.some(images, seed=inquiry.seed).batches(inquiry.batch_size)),
        compute=inquiry.compute,
    )
    measure = partial(
        spectral_density,
        objective,
        runs=RUNS,
        steps=STEPS,
        seed=inquiry.seed,
        provenance=materials.provenance(inquiry),
    )
    label = f"{materials.model.label}, density of {images} images"
    (found,) = (make() for make in progress([measure], label=label))
    return found
