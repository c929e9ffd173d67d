"""Output passes: the predictions of unchanged images, computed once for all analyses."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from visprism.core.run import Run
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions

if TYPE_CHECKING:
    from visprism.analyses.subject import Subject


@dataclass(eq=False)
class OutputPasses:
    """A model's clean predictions of the first images, in full batches."""

    clean: Predictions | None = None

    def predictions(self, subject: "Subject", run: Run) -> Predictions:
        """The model's predictions of the unchanged evaluation images.

        Images of an earlier call are not computed again. Batches are always full, except for
        the last of all images, so that logits do not depend on the order of the calls.
        """
        number = subject.num_images
        size = subject.size_of_outputs(run)
        rows = 0 if self.clean is None else len(self.clean)
        if rows < number:
            batches = subject.limited(None).output_batches(run)
            missing = batches[rows // size : -(-number // size)]
            self.clean = _joined(self.clean, predict(subject.model, missing, run=run))
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
