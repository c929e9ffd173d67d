"""Linear mode connectivity: loss between checkpoints of one architecture, and their soup.

At theta(t) = (1 - t) theta_0 + t theta_1 with the loss L(t), the barrier is L(t) - (1 - t)
L(0) - t L(1), paired by image; its height is the maximum over t. The soup has the mean of all
weights.

Source: Frankle et al. (2020), Linear mode connectivity and the lottery ticket hypothesis, sec.
2; Entezari et al. (2022), The role of permutation invariance in linear mode connectivity;
Wortsman et al. (2022), Model soups, sec. 2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from visprism import kit
from visprism.analyses.loss.checkpoints import names_of, stored_weights
from visprism.core.statistics import mean_interval
from visprism.estimates import text
from visprism.estimates.estimated import paired_proportion, stacked
from visprism.loss import points as loss_points
from visprism.loss.directions import difference
from visprism.loss.objective import cross_entropy
from visprism.loss.planes import State
from visprism.passes.batches import check_evaluation_mode


@kit.result("linear-paths", "Linear mode connectivity")
class LinearPaths(kit.Curve):
    """Loss and accuracy along the segments from the model to checkpoints; a row for each point.

    Each line is a segment of weights from the model to a checkpoint: the loss at its
    points, with its 95% interval over images. A loss above the straight line between both
    ends is a barrier.

    The barrier of a point is its loss minus the straight line between the losses of both ends,
    paired by image.
    """

    value_name: ClassVar[str] = "nll"
    x_name: ClassVar[str] = "position"
    series_name: ClassVar[str] = "checkpoint"

    checkpoint: kit.Texts = kit.column("Checkpoint", "", "at the end of the segment")
    position: np.ndarray = kit.column("Position", "", "0 at the model, 1 at the checkpoint")
    nll: np.ndarray = kit.estimate("NLL", "nats", "mean over images")
    accuracy: np.ndarray = kit.column("Accuracy", "", "at the point")
    barrier: np.ndarray = kit.estimate(
        "Barrier", "nats", "NLL minus the straight line between both ends"
    )
    batch_norm: str = kit.scalar(
        "BatchNorm", "", "statistics 'reestimated' at each point, 'interpolated', or '': none"
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """The barrier height of each segment, a maximum over its points."""
        for name, rows in self.series().items():
            inner = rows[1:-1]
            top = int(inner[self.barrier[inner].argmax()])
            statistics = f"; BatchNorm {self.batch_norm}" * bool(self.batch_norm)
            known = bool(np.isfinite(self.barrier[top].low))
            over = f"; intervals over {self.units_text}" if known else f"; {self.units_text}"
            yield (
                f"linear path to {name}: largest barrier of {len(inner)} points "
                f"{text.text_of(self.barrier[top], 'z.3f')} nats at {self.position[top]:.2g}, "
                f"accuracy there {self.accuracy[top]:.1%} (ends {self.accuracy[rows[0]]:.1%} "
                f"and {self.accuracy[rows[-1]]:.1%}){statistics}{over}"
                f"{text.selection_text(len(inner))}"
            )


@kit.result("soups", "Soup", figures={})
class Soup(kit.Result):
    """Accuracy of the mean of the weights of several checkpoints, and of each checkpoint.

    Accuracy of the mean of all weights and of each checkpoint, with the gain of the soup
    and its 95% interval over images.
    """

    member: kit.Texts = kit.column("Weights", "", "'model', a checkpoint, or 'soup'")
    accuracy: np.ndarray = kit.column("Accuracy", "", "fraction of images classified correctly")
    nll: np.ndarray = kit.column("NLL", "nats", "mean over images")
    gain: np.ndarray = kit.estimate(
        "Accuracy gain of the soup", kit.POINTS, "over the accuracy of this row, paired"
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """The soup, and its gain over the best of its members."""
        best = int(self.accuracy[:-1].argmax())
        gain = self.gain[best]
        images = self.images_text
        yield (
            f"uniform soup of {len(self) - 1} weights: accuracy {self.accuracy[-1]:.1%}; "
            f"gain over {self.member[best]}, the best of them: "
            f"{text.points_text(gain)} ({images}"
            f"{text.selection_text(len(self) - 1)})"
        )


@kit.analysis
class ModeConnectivity(kit.Analysis):
    """Loss barrier between the model and checkpoints, and accuracy of their soup."""

    name = "mode-connectivity"
    group = "loss"
    needs = kit.Needs.OUTCOMES
    images = kit.Sizes(fewest=32, quick=64, standard=512, full=2000)
    rank = 3
    default = False  # which checkpoints to compare, only the user can say
    required = "checkpoints"
    source = "Frankle et al. (2020), sec. 2; Wortsman et al. (2022), sec. 2"
    gives = (
        LinearPaths,
        Soup,
    )

    checkpoints: tuple[Path, ...] = kit.option(
        (), "checkpoints of the architecture of the model, at least one"
    )
    points: int = kit.option(11, "number of points of each segment, with both ends", minimum=3)
    batch_norm: Literal["reestimated", "interpolated"] = kit.option(
        "reestimated", "running statistics of BatchNorm between the ends"
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Measure the loss along each segment."""
        weights = stored_weights(self.checkpoints)
        states = dict(zip(names_of(self.checkpoints), weights, strict=True))
        return self.of(subject.model, states, subject.batches(), run=run)

    def of(
        self,
        model: nn.Module,
        states: Mapping[str, State],
        batches: Iterable,
        *,
        run: kit.Run = kit.DEFAULT_RUN,
    ) -> tuple[LinearPaths, Soup]:
        """Loss along the segments from a model to checkpoints, and the soup of all of them.

        Floating-point buffers are averaged like weights; with "reestimated" the running
        statistics of BatchNorm are computed from these images at every point, the ends too.

        Costs a forward pass for each point, up to two with "reestimated" where there is
        BatchNorm; see `reestimate`. The model gets its own tensors back.
        """
        check_evaluation_mode(model)
        samples = loss_points.read_samples(batches, run.compute)
        positions = np.linspace(0, 1, self.points)
        statistics = self.batch_norm if loss_points.batch_norms(model) else ""
        treatment = "reestimated" if statistics == "reestimated" else "frozen"
        evaluation = loss_points.Evaluation(model, samples, cross_entropy, treatment, run)
        number = (
            len(states) * (self.points - 1) + 2
        )  # the start is shared, and there is the soup
        ticks = run.ticks(range(number), evaluation.ticks_per_point, "linear paths")
        with torch.no_grad(), evaluation.prepared(), ticks as tick:
            tensors = dict(model.state_dict(keep_vars=True))
            averaged = {name: x for name, x in tensors.items() if x.is_floating_point()}
            steps = {
                name: difference(state, averaged, f"checkpoint {name}")
                for name, state in states.items()
            }
            with loss_points.displaced_tensors(model, tensors) as displace:

                def losses(
                    terms: Iterable[tuple[float, Mapping[str, Tensor]]],
                ) -> loss_points.PointLosses:
                    displace(terms)
                    return evaluation.losses(tick)

                start = losses([])
                paths = {
                    name: [start, *(losses([(float(t), step)]) for t in positions[1:])]
                    for name, step in steps.items()
                }
                soup = losses([(1 / (1 + len(steps)), step) for step in steps.values()])
        members = {
            "model": start,
            **{name: path[-1] for name, path in paths.items()},
            "soup": soup,
        }
        every = [
            (path, t, point)
            for path in paths.values()
            for t, point in zip(positions, path, strict=True)
        ]
        barriers = [p.nll - (1 - t) * path[0].nll - t * path[-1].nll for path, t, p in every]
        origin = samples.provenance(run)
        return (
            LinearPaths(
                checkpoint=np.repeat(list(paths), self.points),
                position=np.tile(positions, len(paths)),
                nll=loss_points.over_images(np.stack([point.nll for *_, point in every])),
                accuracy=np.array([point.correct.mean() for *_, point in every]),
                barrier=stacked([kit.Number(b.mean(), *mean_interval(b)) for b in barriers]),
                batch_norm=statistics,
                provenance=origin,
            ),
            Soup(
                member=np.array(list(members)),
                accuracy=np.array([point.correct.mean() for point in members.values()]),
                nll=np.array([point.nll.mean() for point in members.values()]),
                gain=kit.mean(
                    np.stack(
                        [soup.correct - point.correct for point in members.values()], axis=1
                    ),
                    paired_proportion,
                ),
                provenance=origin,
            ),
        )

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """Two forward passes for each point, of which one is for BatchNorm."""
        return kit.Cost(per_image=2 * (len(self.checkpoints) * (self.points - 1) + 2))
