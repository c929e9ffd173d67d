"""Hessian of the training loss with respect to the parameters of each block.

H_b = d²L / d theta_b², with L the mean loss of the images and theta_b the parameters of a
block, a kind or a stage, is a diagonal block of the Hessian H: the traces of parts that hold
all parameters once add up to the trace of H, and no eigenvalue exceeds the largest one of H in
magnitude.

Sources: Dong et al. (2020), HAWQ-V2, sec. 3 (trace per block); Hutchinson (1989).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil
from statistics import fmean
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

from visprism import kit
from visprism.anatomy.trace.forward import Images, part_of
from visprism.estimates.estimated import stacked
from visprism.estimates.text import images_text
from visprism.loss import eigenvalues
from visprism.loss.density import trace_of_part
from visprism.loss.krylov import Request, eigenpairs
from visprism.loss.objective import Objective, selected
from visprism.loss.products import Products, random_normal
from visprism.passes.batches import labeled

_PRODUCTS = 14  # Hessian-vector products for a leading eigenvalue


@kit.result("hessian-by-block", "Hessian of each block")
class BlockHessians(kit.SeriesPerBlock):
    """Trace and leading eigenvalue of each diagonal block of the Hessian, one for each part.

    Trace of the Hessian of the mean training loss with respect to the parameters of one
    block, with its 95% interval over random vectors. Each line is a number of images. Large
    blocks have large traces: the table has the numbers of parameters and the leading
    eigenvalues.

    A part is a block of the network, or all blocks of a kind or stage. There is a row for each
    part and fraction of the images. Intervals are over random vectors.
    """

    value_name: ClassVar[str] = "trace"
    series_name: ClassVar[str] = "fraction"

    fraction: kit.Texts = kit.column(
        "Images", "", "whose mean loss is differentiated: '64 images'"
    )
    trace: np.ndarray = kit.estimate(
        "Trace of the Hessian", "", "sum of the eigenvalues of the part", over="random vectors"
    )
    eigenvalue: np.ndarray = kit.column(
        "Leading Hessian eigenvalue", "", "of the part, the largest in magnitude"
    )
    residual: np.ndarray = kit.column("Residual", "", eigenvalues.RESIDUAL)
    converged: np.ndarray = kit.column("Converged", "", eigenvalues.CONVERGED)
    parameters: np.ndarray = kit.column("Parameters", "", "of the part")
    nll: np.ndarray = kit.column("NLL", "nats", "mean loss of the images")
    probes: int = kit.scalar("Random vectors", "", "of each trace")
    by: str = kit.scalar("Parts", "", "blocks, kinds or stages")
    tol: float = kit.scalar("Tolerance", "", "relative residual of convergence", default=0.01)

    @property
    def units_text(self) -> str:
        """What the intervals are taken over."""
        return f"{self.probes} random vectors"

    def sentences(self) -> Iterator[str | kit.Finding]:
        """For each number of images the parts with the largest trace and eigenvalue."""
        yield from super().sentences()
        yield from eigenvalues.unconverged(self.converged, self.tol)


def _parts(anatomy: kit.Anatomy, by: str) -> dict[str, list[kit.Block]]:
    """Blocks with parameters, by the name of their part, in forward order."""
    parts: dict[str, list[kit.Block]] = {}
    for block in anatomy:
        if block.parameters:
            name = block.name if by == "block" else f"{by} {getattr(block, by)}"
            parts.setdefault(name, []).append(block)
    if not parts:
        raise kit.InputError(f"{type(anatomy.model).__name__} has no block with parameters")
    return parts


def _columns(blocks: Sequence[kit.Block]) -> dict[str, Any]:
    """The columns of `PerBlock` of a part: its first block's values, and its mean depth."""
    kinds = {block.kind for block in blocks}
    return {
        "kind": blocks[0].kind if len(kinds) == 1 else "several",
        "stage": blocks[0].stage,
        "depth": fmean(block.depth for block in blocks),
        "subsampling": len(blocks) == 1 and blocks[0].subsampling,
    }


def _first_images(batches: Sequence, number: int) -> Iterator[tuple[Images | Tensor, ...]]:
    """Batches of the first images."""
    for batch in batches:
        if number <= 0:
            return
        images, *others = batch
        yield part_of(images, 0, number), *(part[:number] for part in others)
        number -= len(batch[1])


@kit.analysis
class HessianByBlock(kit.Analysis):
    """Hessian trace and leading eigenvalue of each block, kind or stage."""

    name = "hessian-by-block"
    full_precision = True
    group = "loss"
    needs = kit.Needs.OUTCOMES | kit.Needs.GRADIENTS | kit.Needs.TRAINING_IMAGES
    source = "Dong et al. (2020), HAWQ-V2; Park & Kim (2022), app. C"
    images = kit.Sizes(fewest=16, quick=16, standard=128)
    rank = 3
    default = False
    gives = BlockHessians

    by: Literal["block", "kind", "stage"] = kit.option(
        "block", "parts whose parameters are differentiated: block, kind or stage"
    )
    fractions: tuple[float, ...] = kit.option(
        (1.0,), "fractions of the images, the first ones", above=0, maximum=1
    )
    probes: int = kit.option(10, "number of random vectors for each trace", minimum=3, quick=3)
    tol: float = kit.option(1e-2, "relative residual of convergence", above=0)

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Trace and leading eigenvalue of each part."""
        run = subject.named(run, training=True)
        return (self.of(subject.anatomy, subject.training_batches(), run=run),)

    def of(
        self, anatomy: kit.Anatomy, batches: Iterable, *, run: kit.Run = kit.DEFAULT_RUN
    ) -> BlockHessians:
        """Trace and leading eigenvalue of H_b = d²L / d theta_b², b a block, a kind or a stage.

        There is a row for each part and each fraction of the images, the first ones.

        Cost: `probes` and 10 to 20 Hessian products for each part and fraction, each as much as
        six forward passes over its images.
        """
        trained = set(selected(anatomy.model, "trained", lambda: anatomy))
        parts = {
            name: blocks
            for name, blocks in _parts(anatomy, self.by).items()
            if any(trained.intersection(block.parameters) for block in blocks)
        }
        data = list(batches)
        number = sum(len(labeled(batch, run.compute)[1]) for batch in data)
        sizes = sorted(
            {max(1, ceil(fraction * number)) for fraction in self.fractions}, reverse=True
        )
        cases = [(size, name) for size in sizes for name in parts]
        rows: list[dict[str, Any]] = []
        shape: tuple[int, ...] = ()
        for size, name in run.track(cases, "parts"):
            objective = Objective(
                anatomy.model,
                list(_first_images(data, size)),
                parameters=[
                    p for block in parts[name] for p in block.parameters if p in trained
                ],
                run=replace(run, progress=None),
            )
            shape = objective.image_shape
            labels = {"block": name, "fraction": images_text(size)}
            rows.append(labels | _columns(parts[name]) | self._curvature(objective))
        columns = {
            key: np.array([row[key] for row in rows]) for key in rows[0] if key != "trace"
        }
        return BlockHessians(
            **columns,
            trace=stacked([row["trace"] for row in rows]),
            probes=self.probes,
            by=self.by,
            tol=self.tol,
            provenance=run.measured(
                images=sizes[0],
                batch_size=max(len(batch[1]) for batch in data),
                image_shape=shape,
            ),
        )

    def _curvature(self, objective: Objective) -> dict[str, Any]:
        """The trace, and the leading eigenvalue with its residual."""
        products = Products(objective)
        estimates = trace_of_part(products, self.probes)
        start = random_normal(objective, objective.run.seed, "eigenvalue by block")
        (pairs,) = eigenpairs(
            products, start, [Request(1, "LM")], tol=self.tol, run=objective.run
        )
        return {
            "trace": kit.mean(estimates),
            "eigenvalue": float(pairs.values[0]),
            "residual": float(pairs.residuals[0]),
            "converged": bool(pairs.converged[0]),
            "parameters": len(objective),
            "nll": products.nll_and_examples[0],
        }

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """Hessian-vector products for each part and fraction."""
        names = {getattr(block, self.by, block.name) for block in subject.anatomy}
        parts = len(subject.anatomy) if self.by == "block" else len(names)
        return kit.Cost(products=(self.probes + _PRODUCTS) * parts * sum(self.fractions))
