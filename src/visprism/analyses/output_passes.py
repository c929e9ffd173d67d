"""Output passes: how a model's logits are computed, and those of unchanged images, once."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from visprism.core.inference import Inference
from visprism.core.processes import gather
from visprism.core.run import Run
from visprism.measure.inference import select_inference, verified_images
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions

if TYPE_CHECKING:
    from visprism.analyses.subject import Subject


@dataclass(eq=False)
class OutputPasses:
    """Inference settings of a model and its clean predictions, for all analyses of a study."""

    settings: Inference | None = None  # None: not selected yet
    clean: Predictions | None = None  # of the first images, in full batches

    def select(self, subject: "Subject", run: Run) -> Inference:
        """The settings, selected at first use; those of the first process in all processes."""
        if self.settings is None:
            total = len(subject.images)
            few = min(verified_images(total), total)
            (batch,) = subject.limited(few).batches(few)
            images = batch[0] if isinstance(batch, tuple | list) else batch
            size = subject.output_batch_size
            selected = select_inference(
                subject.model, images, run.compute, size=size, total=total
            )
            self.settings = gather(selected)[0]
        return self.settings

    def predictions(self, subject: "Subject", run: Run) -> Predictions:
        """The model's predictions of the unchanged evaluation images.

        Images of an earlier call are not computed again. Batches are always full, except for
        the last of all images, so that logits do not depend on the order of the calls.
        """
        settings = self.select(subject, run)
        run, number = replace(run, inference=settings), subject.num_images
        size = settings.batch_size or subject.batch_size
        rows = 0 if self.clean is None else len(self.clean)
        if rows < number:
            batches = subject.limited(None).batches(size)[rows // size : -(-number // size)]
            self.clean = _joined(self.clean, predict(subject.model, batches, run=run))
        assert self.clean is not None
        of_pass = self.clean.provenance
        origin = run.measured(
            images=number, batch_size=of_pass.batch_size, image_shape=of_pass.image_shape
        )
        return replace(self.clean.subset(torch.arange(number)), provenance=origin)


def _joined(first: Predictions | None, second: Predictions) -> Predictions:
    if first is None:
        return second
    return Predictions(
        torch.cat([first.logits, second.logits]),
        torch.cat([first.targets, second.targets]),
        first.provenance,
    )
