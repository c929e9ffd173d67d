"""Loss landscapes: a model's loss over planes through its weights.

NLL, L2 and accuracy are three surfaces. A figure of their sum shows the L2 term where that is
large, and not the loss: that of the reference does.

Sources: Li et al. (2018), Visualizing the loss landscape of neural nets; Park and Kim (2022),
How do vision transformers work?, fig. 1a.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import nn

from visprism.anatomy import check_repeatable, dissect
from visprism.anatomy.trace.forward import as_written
from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.processes import gather, rank, share, world_size
from visprism.core.provenance import Provenance
from visprism.measure.loss.batch_norm_folding import foldable, folded
from visprism.measure.loss.landscape import displaced_weights
from visprism.measure.loss.landscape.batch_norm import reestimate, statistics_kept
from visprism.measure.loss.landscape.cached_batches import Samples, hold
from visprism.measure.loss.landscape.checkpoint import (
    Rows,
    fingerprint,
    read_partial,
    saved,
)
from visprism.measure.loss.landscape.planes import Plane, random_planes, squared_norms
from visprism.measure.loss.landscape.surface import Landscape
from visprism.measure.loss.losses import Loss, cross_entropy
from visprism.measure.loss.parameter_selection import Selection, selected

BATCH_NORMS = ("frozen", "reestimated")


def landscape(
    model: nn.Module,
    batches: Iterable,
    planes: Sequence[Plane] | None = None,
    *,
    loss: Loss = cross_entropy,
    weight_decay: float = 0.05,
    decayed: Selection = "all",
    batch_norm: str = "frozen",
    batch_size: int | None = None,
    resume: Path | None = None,
    compute: Compute = CPU,
    progress: Callable[[Iterable], Iterable] | None = None,
    provenance: Provenance | None = None,
) -> Landscape:
    """Mean loss, L2 term and accuracy at every point of the planes, on the same samples.

    At the point (a, b) the weights are w + a d1 + b d2, buffers and everything else as they
    are. The batches are read once and kept in memory, so that an augmentation is the same at
    every point; they are cut anew into batches that are fast. Under ``torchrun`` each process
    measures its share of the points. Afterwards the model is as it was, bit for bit.

    Costs one forward pass of all images for each point, less what folding BatchNorm into
    convolutions saves, and three times the memory of the parameters that move.

    Args:
        model: any classifier, in evaluation mode.
        batches: of (images, targets); targets are classes (B,) or probabilities (B, K).
        planes: where to look; one plane of two random directions by default.
        loss: of logits and targets, one value for each image.
        weight_decay: of the L2 term, (weight_decay / 2) times the squared norm of the decayed
            parameters, which is a surface of its own.
        decayed: which parameters decay; see `Selection`.
        batch_norm: "frozen" statistics, or "reestimated" from these images at each point.
        batch_size: images at once; by default as many as are fastest.
        resume: a file in which measured points are kept, so that a run which was interrupted
            goes on where it ended; `partial.discard_partial` deletes it.
        compute: device and precision.
        progress: wraps the points to show how far it is, as ``tqdm.tqdm`` does.
        provenance: what is known of the model and the data; the rest is filled in here.

    Returns:
        The surfaces, one row for each point; bit for bit the same for the same arguments.

    Raises:
        InputError: if the model is in training mode, the data has no labels, the loss of the
            model's own weights is not finite, the model gives other logits each time, or
            `resume` is of another landscape.
    """
    _check(model, batch_norm, weight_decay)
    planes = random_planes(model) if planes is None else list(planes)
    points = [(i, a, b) for i, plane in enumerate(planes) for a, b in plane.points()]
    samples = hold(batches, batch_size=batch_size, compute=compute)
    prints = {
        "model": fingerprint(model.state_dict().values(), type(model).__name__),
        "data": fingerprint(samples.tensors()),
        "settings": fingerprint(
            [t for p in planes for d in (p.first, p.second) for t in d.values()],
            points, [tuple(p.first) for p in planes], _name(loss), batch_norm,
            samples.batch_size, compute, torch.__version__,
        ),
    }  # fmt: skip
    rows = read_partial(resume, prints) if resume else {}
    named = dict(model.named_parameters())
    decays = {
        name: named[name].detach()
        for name in selected(model, decayed, lambda: dissect(model, samples.few()))
    }
    with _prepared(model, samples, compute, batch_norm) as ready:
        centre = _measured(model, ready, loss, batch_norm, compute)
        if not np.isfinite(centre.nll).all():
            raise InputError(
                f"the loss of the model's own weights is {centre.nll.mean()}; a landscape "
                "needs a finite one: check the weights, the images and the precision"
            )
        exact = centre
        if compute.precision != "fp32":
            whole = replace(compute, precision="fp32")
            exact = _measured(model, ready, loss, batch_norm, whole)
        todo: Iterable[int] = [n for n in range(len(points)) if n not in rows]
        shown = progress if progress and rank() == 0 else iter
        mine: Rows = {}
        with saved(resume, prints, rows, mine) as save:
            todo = shown(list(share(todo)))
            for pair, numbers in groupby(todo, key=lambda number: points[number][0]):
                with displaced_weights.moving(
                    model, planes[pair].first, planes[pair].second
                ) as move:
                    for number in numbers:
                        move(*points[number][1:])
                        here = _measured(model, ready, loss, batch_norm, compute)
                        mine[number] = here.against(centre)
                        save()
    for other in gather(mine):
        rows |= other
    facts = replace(
        provenance or Provenance(),
        images=len(samples),
        image_shape=samples.shape,
        batch_size=samples.batch_size,
        precision=compute.precision,
        device=compute.device,
        processes=world_size(),
    )
    table = np.array([rows[number] for number in range(len(points))]).T
    pair, a, b = (np.array(column) for column in zip(*points, strict=True))
    return Landscape(
        pair=pair,
        a=a,
        b=b,
        **dict(zip(displaced_weights.COLUMNS, table, strict=True)),
        l2=weight_decay / 2 * np.concatenate([squared_norms(p, decays) for p in planes]),
        classes=centre.classes,
        weight_decay=weight_decay,
        plane=planes[0].kind,
        normalization=planes[0].normalization,
        batch_norm=batch_norm,
        loss=_name(loss),
        rounding=abs(float(centre.nll.mean() - exact.nll.mean())),
        provenance=facts,
    )


def _check(model: nn.Module, batch_norm: str, weight_decay: float) -> None:
    """What can be wrong before anything is measured.

    Raises:
        InputError: as `landscape` says.
    """
    if any(module.training for module in model.modules()):
        raise InputError("the model is in training mode; call model.eval() first")
    if batch_norm not in BATCH_NORMS:
        known = ", ".join(map(repr, BATCH_NORMS))
        raise InputError(f"batch_norm is {batch_norm!r}; wants one of {known}")
    if not (np.isfinite(weight_decay) and weight_decay >= 0):
        raise InputError(f"weight_decay is {weight_decay}; wants a number from 0 on")


@contextmanager
def _prepared(
    model: nn.Module, samples: Samples, compute: Compute, batch_norm: str
) -> Iterator[Samples]:
    """Inside, the model lies where and how it runs fast, and the samples with it."""
    with ExitStack() as stack:
        stack.enter_context(compute.borrow(model))
        stack.enter_context(as_written())
        stack.enter_context(statistics_kept(model))
        check_repeatable(model, samples.few())
        samples = stack.enter_context(displaced_weights.channels_last(model, samples))
        if batch_norm == "frozen":
            stack.enter_context(folded(model, foldable(model, samples.few())))
        yield samples


def _measured(
    model: nn.Module, samples: Samples, loss: Loss, batch_norm: str, compute: Compute
) -> displaced_weights.Losses:
    if batch_norm == "reestimated":
        reestimate(model, samples, compute)
    return displaced_weights.losses(model, samples, loss, compute)


def _name(loss: Callable) -> str:
    return getattr(loss, "__name__", type(loss).__name__)
