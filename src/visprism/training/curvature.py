"""Curvature during training: the monitor of a run, from its recipe and its first images."""

from collections.abc import Iterator
from dataclasses import replace

from visprism.core.run import Run
from visprism.data import Feed
from visprism.loss.monitor import CurvatureMonitor
from visprism.training.engine import Batch, Engine


def curvature_monitor(engine: Engine, train: Feed, run: Run) -> CurvatureMonitor | None:
    """The monitor that the recipe asks for; None without `curvature_every`.

    It measures the cross-entropy of the first images of the first epoch, augmented as there, in
    single precision and without a teacher.
    """
    recipe = engine.recipe
    if not recipe.curvature_every:
        return None
    return CurvatureMonitor(
        engine.model,
        list(first_batches(train, recipe.curvature_images)),
        engine.optimizers,
        every=recipe.curvature_every,
        k=recipe.curvature_k,
        sam_rho=recipe.sam_rho,
        adaptive=recipe.adaptive,
        run=replace(
            run,
            compute=replace(run.compute, precision="fp32"),
            provenance=replace(run.provenance, split="train"),
        ),
    )


def first_batches(train: Feed, images: int) -> Iterator[Batch]:
    """The first batches of the first epoch, all images of them up to this number."""
    for pixels, targets in train.epoch(0):
        yield pixels[:images], targets[:images]
        images -= len(targets)
        if images < 1:
            return
