"""The pass over features: one run of a model over the data, which feeds every statistic.

A `FeatureStatistic` extracts numbers of each block inside the forward pass. The pass keeps them
by image, in the order of the data; means, errors, changes across blocks and paired differences
are computed from them afterwards (`visprism.estimates.estimated`). What would not fit, such as
spectra, maps and covariances, is added up over images instead.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.run.surgery import watch
from visprism.anatomy.trace.forward import Images, batch_size, forward
from visprism.core.devices import Compute, on_cpu
from visprism.core.errors import InputError
from visprism.core.processes import gather, rank, world_size
from visprism.core.run import DEFAULT_RUN, Run
from visprism.passes.batches import Batch, blocks_on_grid, images_of, in_order
from visprism.passes.sources import taps
from visprism.passes.statistic import Arrays, Extracts, FeatureStatistic, PassResult
from visprism.table.result import Result


@dataclass
class Gathered:
    """What a pass has gathered of one statistic so far, in this process."""

    by_image: list[Arrays] = field(default_factory=list)  # of each batch
    sums: Arrays = field(default_factory=dict)

    def add(self, by_image: Arrays, sums: Arrays) -> None:
        """Append the values of a batch, and add its sums."""
        self.by_image.append(by_image)
        for key, value in sums.items():
            self.sums[key] = self.sums[key] + value if key in self.sums else value

    def of_all_processes(self) -> tuple[Arrays, Arrays]:
        """By image in the order of the data; sums added in the order of ranks: equal bits."""
        batches, total = in_order(self.by_image), Gathered()
        for sums in gather(self.sums):
            total.add({}, sums)
        return {k: np.concatenate([b[k] for b in batches]) for k in batches[0]}, total.sums


def observe(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    statistics: Iterable[FeatureStatistic] | FeatureStatistic,
    *,
    device: str | None = None,
    run: Run = DEFAULT_RUN,
) -> tuple[Result, ...]:
    """Run the model once over the data; the main result of each statistic, in their order.

    ``vp.observe(anatomy, batches, [vp.Fourier(), vp.Variance()])``. The model stays as it is.
    Several processes (started by ``torchrun``) take turns with the batches; each gets the same
    results, as one process does up to rounding.

    Args:
        anatomy: of a model in evaluation mode.
        batches: each is images, or (images, targets); images are a tensor (B, C, H, W) or a
            mapping of tensors, of the size that the model was dissected with.
        statistics: what to measure.
        device: as torch names it; by default the run's, or where the model lies.
        run: device, precision, seed, progress and provenance.
    """
    every = observations(anatomy, batches, statistics, run=run.at(device))
    return tuple(results[0] for results in every)


def observations(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    statistics: Iterable[FeatureStatistic] | FeatureStatistic,
    *,
    run: Run = DEFAULT_RUN,
) -> list[tuple[Result, ...]]:
    """All results of each statistic; see `observe`. Memory grows with what is kept by image."""
    single = isinstance(statistics, FeatureStatistic)
    statistics = [statistics] if single else list(statistics)
    for statistic in statistics:
        if not isinstance(statistic, FeatureStatistic):
            raise InputError(
                f"statistics must be analyses of features, such as [Fourier()], "
                f"got {statistic!r}"
            )
    gathered = [Gathered() for _ in statistics]
    sizes: list[int] = []
    with observing(anatomy, statistics, run.compute) as extract:
        tracked = run.track_share(batches, "observing feature maps")
        for number, batch in zip(count(rank(), world_size()), tracked, strict=False):
            images = images_of(batch, anatomy, run.compute)
            for statistic, part, extracts in zip(
                statistics, gathered, extract(images), strict=True
            ):
                sums = statistic.sums(extracts, number, run.seed)
                part.add(statistic.by_image(extracts), sums)
            sizes.append(batch_size(images))
    every = in_order(sizes)
    origin = run.measured(
        images=sum(every), batch_size=max(every), image_shape=anatomy.image_shape
    )
    between, measured = blocks_off_grid(anatomy), []
    for statistic, part in zip(statistics, gathered, strict=True):
        seen = PassResult(
            *part.of_all_processes(), sum(every), anatomy, between, run.seed, origin
        )
        results = statistic.results(seen)
        measured.append(tuple(result.measured(origin) for result in results))
    return measured


@contextmanager
def observing(
    anatomy: Anatomy, statistics: Sequence[FeatureStatistic], compute: Compute
) -> Iterator[Callable[[Images], list[Extracts]]]:
    """Inside, a function that runs the model on images and returns what each extracts."""
    blocks_on_grid(anatomy)  # refuses a model without any
    # Not inference mode: what a model caches in it, it could never be differentiated through.
    with compute.borrow(anatomy.model), torch.no_grad(), ExitStack() as stack:
        every_tap = taps(anatomy, statistics, stack)

        def run_model(images: Images) -> list[Extracts]:
            for tap in every_tap:
                tap.extracted.clear()
            with compute.autocast():
                forward(anatomy.model, images)
            keys = [
                (id(statistic), key, name, x)
                for tap in every_tap
                for statistic, extracts in zip(tap.statistics, tap.extracts(), strict=True)
                for key, values in extracts.items()
                for name, x in values.items()
            ]
            extracted: dict[int, dict[Any, Any]] = {id(s): {} for s in statistics}
            moved = on_cpu([x for *_, x in keys])
            for (statistic, key, name, _), x in zip(keys, moved, strict=True):
                if not torch.isfinite(x).all():
                    raise _not_finite(anatomy, images, compute)
                extracted[statistic].setdefault(key, {})[name] = x
            return [extracted[id(statistic)] for statistic in statistics]

        yield run_model


def blocks_off_grid(anatomy: Anatomy) -> dict[str, str]:
    """Names of the blocks off the grid that stand right before a block on it, by its name."""
    ends = {block.end: block for block in anatomy}
    between = dict[str, str]()
    for block in anatomy:
        missing, before = list[str](), ends.get(block.start)
        while before is not None and before.layout is None:
            missing.insert(0, before.name)
            before = ends.get(before.start)
        if missing and block.layout is not None:
            between[block.name] = ", ".join(missing)
    return between


def _not_finite(anatomy: Anatomy, images: Images, compute: Compute) -> InputError:
    """Names the first block whose feature map is not finite, and the number of images.

    Costs another forward pass; the extracts only show that there is one.
    """

    def count(x: Tensor) -> int:
        return int((~torch.isfinite(x)).flatten(1).any(1).sum())

    with watch(anatomy, count) as counts, compute.autocast():
        forward(anatomy.model, images)
    for block in anatomy:
        if counts.get(block.name):
            remedy = (
                "Check the weights and the preprocessing."
                if compute.precision == "fp32"
                else f"{compute.precision} may overflow: try precision 'fp32'."
            )
            return InputError(
                f"feature maps must be finite, got NaN or infinity from block {block.name!r} "
                f"for {counts[block.name]} of {batch_size(images)} images of a batch. {remedy}"
            )
    return InputError(
        "the feature maps are finite but so large that statistics of them overflow. "
        "Check the weights and the preprocessing."
    )
