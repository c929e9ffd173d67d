"""Attribution: gradient maps of any block, and how faithful they are to the model.

With A the feature map of a block, y the largest logit and G = dy/dA, the maps are

    gradient x activation  sum_c G_c A_c
    Grad-CAM               max(0, sum_c (mean over positions of G_c) A_c)

A map is enlarged to the image bilinearly. Pixels are inserted into a blurred image, or replaced
by the mean color of the normalization (deletion), the highest values first; the score
is the area under the probability of the predicted class against the fraction of pixels. The
baseline is a random map on the grid of the block. Pixels of equal value are in the order of
that same map, so that a map gains nothing where it says nothing; a map of zeros has no score.

Source: Selvaraju et al. (2017), Grad-CAM, eq. 1 and 2; Petsiuk et al. (2018), RISE: randomized
input sampling for explanation of black-box models, sec. 4.3, for deletion and insertion.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from visprism import kit
from visprism.analyses.pictures import image_pictures, pictures_section
from visprism.anatomy.run.interception import intercept
from visprism.anatomy.trace import forward
from visprism.estimates.estimated import skewed
from visprism.estimates.text import some_of
from visprism.passes.batches import Batch, blocks_on_grid, images_of, in_order, positioned
from visprism.passes.blocks import spread
from visprism.passes.features import Gathered
from visprism.passes.perturbed import random_numbers

GRADIENT_ACTIVATION = "gradient x activation"
GRAD_CAM = "Grad-CAM"
RANDOM = "random map"
METHODS = (GRADIENT_ACTIVATION, GRAD_CAM, RANDOM)
_BLUR = 1 / 8  # standard deviation of the blur, of the shorter side
_PICTURES = 4  # images whose maps are returned
# Ratio of a map to the sum of magnitudes below which it is rounding, and the LayerNorm's
# epsilon: up to 1e-5 where only a LayerNorm reads the grid, 0.01 and more elsewhere.
_ROUNDING = 1e-3

Map = Float[Tensor, "b y x"]
Maps = dict[tuple[str, kit.Block], Map]  # by method and block
Scores = dict[tuple[str, str, kit.Block], Float[np.ndarray, " n"]]  # by score, method and block


@kit.result("attribution-scores", "Attribution maps of blocks")
class AttributionScores(kit.SeriesPerBlock):
    """Insertion and deletion scores of attribution maps; a row for each method and block.

    Each line is a method: the area under the probability of the predicted class as pixels
    are inserted, the most relevant first. A map that is not above the random map does not
    show which pixels the model uses.

    Gains are paired by image with a random map of the same grid.
    """

    value_name = "insertion"
    series_name = "method"

    method: kit.Texts = kit.column(
        "Method", "", "'gradient x activation', 'Grad-CAM' or 'random map'"
    )
    insertion: kit.Estimated = kit.estimate(
        "Insertion score",
        "",
        "mean probability of the predicted class as pixels are inserted, highest first",
    )
    insertion_gain: kit.Estimated = kit.estimate(
        "Insertion gain", "", "insertion score minus a random map's score; higher is better"
    )
    deletion: kit.Estimated = kit.estimate(
        "Deletion score",
        "",
        "mean probability of the predicted class as pixels are deleted, highest first",
    )
    deletion_gain: kit.Estimated = kit.estimate(
        "Deletion gain", "", "deletion score minus a random map's score; lower is better"
    )
    scored: np.ndarray = kit.column(
        "Scored images", "", "number of images whose map is not 0 everywhere"
    )
    steps: int = kit.scalar("Steps", "", "number of equal parts in which pixels are inserted")
    without_gradient: str = kit.scalar(
        "Blocks without a gradient",
        "",
        "last blocks to whose grid the gradient is exactly 0, which are left out",
        default="",
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """For each method the block with the largest insertion gain, and what has no score."""
        yield from super().sentences()
        images = self.scored.max(initial=0)
        blank = [
            f"{self.method[i]} at {self.block[i]} {images - self.scored[i]}"
            for i in np.flatnonzero(self.scored < images)
        ]
        if blank:
            yield (
                "maps of zeros up to rounding, as where only a LayerNorm reads the grid, have "
                f"no score: of {images} images, {some_of(blank)}"
            )
        if self.without_gradient:
            yield (
                "the gradient to the grid is exactly 0 at the last blocks "
                f"({self.without_gradient}), whose grid the head does not read; the last block "
                "with a gradient is the last one measured"
            )


@kit.result("attribution-maps", "Grad-CAM of the first images", table=False)
class AttributionMaps(kit.Pictures):
    """Grad-CAM maps of the first images; a row for each position.

    Each picture is the Grad-CAM map of one image and block, on the grid of the block. Read
    it together with the insertion score of the block.
    """

    value_name = "relevance"

    relevance: np.ndarray = kit.column("Relevance", "", "of the position, 1 at the largest")

    def sentences(self) -> Iterator[str | kit.Finding]:
        """None: every map is scaled to 1, and only its scores say whether it means anything."""
        yield from ()


@kit.analysis
class Attribution(kit.Analysis):
    """Gradient x activation and Grad-CAM of blocks, with insertion and deletion scores."""

    name = "attribution"
    needs = kit.Needs.FEATURES | kit.Needs.GRADIENTS
    images = kit.Sizes(fewest=8, quick=32, standard=128, work=0.5)
    default = False  # tens of forward passes for each block
    source = "Selvaraju et al. (2017), eq. 1 and 2; Petsiuk et al. (2018), sec. 4.3"
    gives = (
        AttributionScores,
        AttributionMaps,
        pictures_section("Images of the attribution maps"),
    )

    blocks: int = kit.option(
        4, "number of blocks, spread evenly over the depth", minimum=1, quick=2
    )
    steps: int = kit.option(
        10, "number of equal parts in which pixels are inserted and deleted", minimum=2, quick=5
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Compute and score the maps of each batch.

        Costs 3 forward passes, a forward and backward pass for each block, and 2 (steps - 1)
        forward passes for each map.
        """
        anatomy, batches = subject.anatomy, subject.batches()
        gathered, sizes = Gathered(), list[int]()
        with run.compute.borrow(anatomy.model), forward.as_written():
            first, _ = next(_with_numbers(batches, anatomy, run))
            with run.compute.autocast():
                reached, unreached = with_gradient(anatomy, first)
            blocks = spread(reached, self.blocks)
            shared = run.track_share(batches, "attribution")
            for start, (images, _) in positioned(_with_numbers(shared, anatomy, run)):
                numbers = range(start, start + len(images))
                with run.compute.autocast():
                    target, maps = gradient_maps(anatomy, blocks, images)
                    drawn = {b: maps[GRAD_CAM, b].cpu().numpy() for b in blocks}
                    for b in blocks:
                        grid = b.shape[-2:]
                        random = random_numbers(
                            torch.rand, grid, numbers, run.seed, "random map", *grid
                        )
                        maps[RANDOM, b] = random.to(images.device)
                    ties = random_numbers(
                        torch.rand, images.shape[-2:], numbers, run.seed, "order of ties"
                    )
                    jitter = ties.flatten(1).argsort(1).to(images.device)
                    scores = faithfulness(anatomy, images, target, maps, jitter, self.steps)
                gathered.add({**drawn, **scores}, {})
                sizes.append(len(images))
        (values, _), every = gathered.of_all_processes(), in_order(sizes)
        origin = run.measured(
            images=sum(every), batch_size=max(every), image_shape=anatomy.image_shape
        )
        scored = AttributionScores(
            **_columns(blocks, values),
            steps=self.steps,
            without_gradient=", ".join(block.name for block in unreached),
            provenance=origin,
        )
        pictures = {
            f"image {number}, {block.name}": map_ / max(map_.max(), np.finfo(map_.dtype).tiny)
            for number in range(min(_PICTURES, sum(every)))
            for block in blocks
            for map_ in [values[block][number]]
        }
        maps = AttributionMaps.of_pictures(pictures, provenance=origin)
        return scored, maps, *image_pictures(subject, _PICTURES, origin)

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """Passes with the pixels of each step, for each map."""
        blocks = min(self.blocks, len(subject.anatomy))
        return kit.Cost(per_image=3 + blocks * (3 + 2 * (self.steps - 1) * len(METHODS)))

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Without one logit for each of several classes."""
        return super().inapplicable(subject) or subject.without_classes()


def _with_numbers(
    batches: Iterable[Batch], anatomy: kit.Anatomy, run: kit.Run
) -> Iterator[tuple[Tensor, range]]:
    """The images of each batch, with a number for each."""
    for batch in batches:
        images = images_of(batch, anatomy, run.compute)
        if not isinstance(images, Tensor):
            raise kit.InputError("batches must hold images as one tensor, got a mapping")
        yield images, range(len(images))


def with_gradient(
    anatomy: kit.Anatomy, images: Float[Tensor, "b c h w"]
) -> tuple[list[kit.Block], list[kit.Block]]:
    """The blocks up to the last one to whose grid there is a gradient, and those behind it.

    A head that reads a class token only gives none to the grid behind the last attention.
    """
    blocks = blocks_on_grid(anatomy)
    for number in range(len(blocks), 0, -1):
        _, _, gradient = _gradient(anatomy, blocks[number - 1], images)
        if gradient.any():
            return blocks[:number], blocks[number:]
    raise kit.InputError(
        f"the logits of {type(anatomy.model).__name__} must depend on the grid of a block by a "
        "gradient, and do not"
    )


def gradient_maps(
    anatomy: kit.Anatomy,
    blocks: Sequence[kit.Block],
    images: Float[Tensor, "b c h w"],
    of_class: Int64[Tensor, " b"] | None = None,
) -> tuple[Int64[Tensor, " b"], Maps]:
    """The classes, by default the predicted ones, and both maps of each block on its grid.

    A gradient is orthogonal to what only a LayerNorm reads, such as the patch tokens before
    the last attention: a map that is 0 up to rounding is 0.

    Costs a forward and a backward pass for each block.
    """
    maps: Maps = {}
    target = torch.empty(0, dtype=torch.long)
    for block in blocks:
        target, a, g = _gradient(anatomy, block, images, of_class)
        product = g * a
        total = product.sum(1)
        largest, magnitude = (
            x.amax((1, 2), keepdim=True) for x in (total.abs(), product.abs().sum(1))
        )
        maps[GRADIENT_ACTIVATION, block] = total.where(largest > _ROUNDING * magnitude, 0)
        maps[GRAD_CAM, block] = (g.mean((2, 3), keepdim=True) * a).sum(1).clamp(min=0)
    return target, maps


def _gradient(
    anatomy: kit.Anatomy,
    block: kit.Block,
    images: Float[Tensor, "b c h w"],
    of_class: Int64[Tensor, " b"] | None = None,
) -> tuple[Int64[Tensor, " b"], Float[Tensor, "b d y x"], Float[Tensor, "b d y x"]]:
    """The classes, the feature map of a block, and the gradient of the classes' logits.

    One block in each pass: the output is exchanged for a copy, in place where the model works
    in place, and a gradient that passes through such an output could not be computed.
    """
    outputs: list[Tensor] = []

    def exchange(x: Tensor) -> Tensor:
        outputs[:] = [x.detach().clone().requires_grad_()]
        return outputs[0].clone()

    with torch.enable_grad(), intercept(anatomy, reads={}, changes={block.end: exchange}):
        logits = forward.forward(anatomy.model, images)
        target = logits.argmax(1) if of_class is None else of_class
        score = logits.gather(1, target[:, None]).sum()
        if not torch.isfinite(score):
            raise kit.InputError(
                "logits must be finite, got NaN or infinity. Check the weights and the "
                "preprocessing."
            )
        gradient = None
        if score.requires_grad:
            (gradient,) = torch.autograd.grad(score, outputs, allow_unused=True)
    activation = outputs[0].detach()
    assert block.layout is not None  # of `blocks_on_grid`
    a, g = (
        block.layout.to_map(x).float().to(images.device)  # the block may lie elsewhere
        for x in (activation, torch.zeros_like(activation) if gradient is None else gradient)
    )
    return target, a, g


@torch.no_grad()
def faithfulness(
    anatomy: kit.Anatomy,
    images: Float[Tensor, "b c h w"],
    target: Int64[Tensor, " b"],
    maps: Maps,
    order: Int64[Tensor, "b p"],
    steps: int,
) -> Scores:
    """Insertion and deletion score of each image, by score, method and block."""

    def probability(x: Tensor) -> Float[Tensor, " b"]:
        probabilities = kit.in_float64(forward.forward(anatomy.model, x)).softmax(1)
        return probabilities.gather(1, target.to(probabilities.device)[:, None])[:, 0]

    blur, empty = blurred(images), torch.zeros_like(images)
    ends = {"insertion": (blur, images), "deletion": (images, empty)}
    at_ends = {id(x): probability(x) for x in (images, blur, empty)}
    scores: Scores = {}
    for (method, block), values in maps.items():
        rank = ranks((maps[RANDOM, block], values), order, images.shape[-2:])
        blank = ~values.flatten(1).any(1)
        for name, (before, after) in ends.items():
            total = (at_ends[id(before)] + at_ends[id(after)]) / 2
            for step in range(1, steps):
                done = (rank < step / steps)[:, None]
                total = total + probability(torch.where(done, after, before))
            total[blank.to(total.device)] = torch.nan
            scores[name, method, block] = (total / steps).cpu().numpy()
    return scores


def ranks(
    maps: Sequence[Map], order: Int64[Tensor, "b p"], size: Sequence[int]
) -> Float[Tensor, "b h w"]:
    """Fraction of the pixels that come before each pixel, the highest values first.

    The last map decides; the one before it decides between equal values, and so on. Maps are
    enlarged on the CPU, since pixels near the border are equal up to the rounding of a device.
    """
    for values in maps:
        large = functional.interpolate(values[:, None].cpu(), tuple(size), mode="bilinear")
        large = large.flatten(1).to(order.device)
        sorted_ = large.gather(1, order).argsort(dim=1, descending=True, stable=True)
        order = order.gather(1, sorted_)
    pixels = order.shape[1]
    places = torch.arange(pixels, device=order.device) / pixels
    ranks = torch.empty(order.shape, device=order.device)
    ranks.scatter_(1, order, places.expand_as(ranks))
    return ranks.unflatten(1, tuple(size))


def blurred(images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
    """Gaussian blur with reflected borders."""
    sigma = _BLUR * min(images.shape[-2:])
    radius = min(ceil(3 * sigma), min(images.shape[-2:]) - 1)
    x = torch.arange(-radius, radius + 1, device=images.device, dtype=images.dtype)
    kernel = torch.exp(-(x**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).expand(images.shape[1], 1, 1, -1)
    padded = functional.pad(images, (radius,) * 4, mode="reflect")
    groups = images.shape[1]
    rows = functional.conv2d(padded, kernel, groups=groups)
    return functional.conv2d(rows, kernel.mT, groups=groups)


def _columns(blocks: Sequence[kit.Block], values: kit.Arrays) -> dict[str, Any]:
    rows = [(method, block) for method in METHODS for block in blocks]
    columns = kit.block_columns([block for _, block in rows])
    columns["method"] = np.array([method for method, _ in rows])
    for score in ("insertion", "deletion"):
        scores = np.stack([values[score, method, block] for method, block in rows], axis=1)
        random = np.stack([values[score, RANDOM, block] for _, block in rows], axis=1)
        columns[score], columns[f"{score}_gain"] = (
            kit.mean(scores),
            kit.mean(scores - random, skewed),
        )
        columns["scored"] = np.isfinite(scores).sum(0)
    return columns
