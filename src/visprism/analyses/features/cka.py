"""CKA similarity of blocks, and the block structure that follows from it.

CKA is HSIC (`hsic.py`) scaled so that a block is 1 with itself. Rotating a block's features,
scaling all of them or adding a constant does not change it. A feature map contributes only
one number for each pair of images. HSIC is unbiased in every batch, so its mean over batches is
the HSIC of the full data:

    CKA(x, y) = mean h_xy / sqrt(mean h_xx mean h_yy), means over batches by their images.

Intervals are over batches, by the delta method. The null has a closed form: over all orders of
the images of one of the two blocks, separately in each batch of n, debiased HSIC has mean 0 and
variance 2 h_xx h_yy / (n (n - 3)), since the rows of a U-centered kernel sum to 0.

Sources: Kornblith et al. (2019), Similarity of neural network representations revisited; over
batches: Nguyen, Raghu and Kornblith (2021), Do wide and deep networks learn the same things?
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, tee, zip_longest
from math import ceil
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.patches import Rectangle
from torch import Tensor

from visprism import kit
from visprism.analyses.features import block_structure, hsic
from visprism.anatomy.trace.forward import batch_size
from visprism.core import processes
from visprism.drawing import style
from visprism.drawing.color_bars import UNIT
from visprism.drawing.text import title
from visprism.estimates import estimated
from visprism.estimates.answers import FEWEST_BATCHES
from visprism.passes.batches import Batch, images_of, in_order
from visprism.passes.features import Gathered, observing

_NEAR_NULL = 0.05  # fraction of pairs within two deviations of the null that makes a finding

# A block whose unbiased HSIC with itself is this small a fraction of the biased one holds
# nothing but rounding: its images are all equally far apart, or all the same.
_NOTHING = 1e-12
_GROUPS = 16  # of batches, of the jackknife; each holds every sixteenth batch
_OTHER_IMAGES = "batches of both models must hold the same images, got batches of other sizes"


@kit.result("similarity", "CKA similarity of blocks", table=False)
class Similarity(kit.BlockMatrix):
    """CKA of pairs of blocks; one row for each ordered pair.

    Each cell is a pair of blocks: 1 for equal features, about 0 for unrelated ones. A
    bright square between the white lines is a stage whose blocks are similar. Gray cells
    are not defined.
    """

    value_name = "cka"

    cka: kit.Estimated = kit.estimate(
        "CKA",
        "",
        "debiased: 1 for equal features, about 0 for unrelated ones; NaN where a block's "
        "features are the same for all images",
    )
    biased: kit.Estimated = kit.estimate(
        "Biased CKA", "", "0 to 1, and above 0 for unrelated features"
    )
    null_deviation: np.ndarray = kit.column(
        "Deviation of CKA of shuffled images",
        "",
        "standard deviation of debiased CKA over all orders of the images of the other block "
        "in each batch, in closed form; the mean is 0",
    )
    kernel: str = kit.scalar("Kernel", "", "'linear' or 'rbf'", default="linear")
    batches: int = kit.scalar("Batches", "", "number of batches that were counted", default=0)
    other_model: str = kit.scalar(
        "Other model", "", "whose block the other is; empty if it is the same model", default=""
    )
    mean: kit.Number = kit.estimate(
        "Debiased CKA, mean over pairs of blocks",
        asks="How similar are the features of two models?",
        over="batches",
        comparison="none",
        default=np.nan,
    )

    @property
    def units_text(self) -> str:
        """What the intervals are taken over: ``8 batches``."""
        return f"{self.batches} batches"

    def __repr__(self) -> str:
        """Both models; the provenance names only the first."""
        models = " and ".join(filter(None, (self.provenance.model, self.other_model)))
        return f"<Similarity{f' of {models}' if models else ''}: {len(self)} rows>"

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Mean over pairs, the largest of them, and how many are near the permutation null."""
        pairs = np.flatnonzero(self._different_pairs())
        if not len(pairs):
            return
        yield from super().sentences()
        cka = self.cka[pairs]
        bound = 2 * self.null_deviation[pairs]
        near = int((cka <= bound).sum())
        if near > _NEAR_NULL * len(pairs):
            yield kit.Finding(
                f"CKA of {near} of {len(pairs)} pairs is not above the CKA of shuffled images "
                f"(0, and two standard deviations: {np.median(bound):.2g})",
                "VP104",
            )

    def answers(self) -> tuple[Any, ...]:
        """For two models, the mean over pairs of blocks with the most similar pair."""
        return super().answers() if self.other_model and np.isfinite(self.cka).any() else ()

    def scalars(self) -> dict[str, float]:
        """The mean over pairs of different blocks."""
        cka = self.cka[self._different_pairs()]
        return {f"{self.identifier}.mean": float(cka.mean())} if len(cka) else {}

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """The most similar pair."""
        pairs = np.flatnonzero(self._different_pairs())
        most = pairs[np.argmax(self.cka[pairs])]
        text = f"{self.cka[most]:.3g} ({self.block[most]}, {self.other[most]})"
        return {"reading": f"largest of {len(pairs)} pairs {text}"}

    def _different_pairs(self) -> Bool[np.ndarray, "rows"]:
        """Each unordered pair of different blocks once; of two models every pair."""
        chosen = np.isfinite(self.matrix())
        return (chosen if self.other_model else np.triu(chosen, k=1)).ravel()

    def block_structure(
        self, score: kit.Number | None = None
    ) -> block_structure.BlockStructure:
        """How far the stages of a model show in its CKA.

        Blocks whose CKA is not defined are left out, and so is the stem, which is a separate
        stage; see `structure_score`.

        Args:
            score: with its interval; by default it is computed without one.
        """
        if self.other_model:
            raise kit.InputError(
                "similarity must be of one model for its block structure, got two models. "
                "Observe one model with CKA."
            )
        place, stage = self._counted()
        cka = self.matrix()[np.ix_(place, place)]
        return replace(
            block_structure.block_structure(cka, place, stage, score),
            groups=min(self.batches, _GROUPS),
            provenance=self.provenance,
        )

    def _counted(self) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " m"]]:
        """Indices and stages of the blocks that count in the block structure."""
        rows = self.select(np.flatnonzero(self.block == self.other))
        place = np.flatnonzero(np.isfinite(rows.cka) & (rows.kind != "stem"))
        return place, rows.stage[place]


@kit.analysis
class CKA(kit.FeatureAnalysis):
    """CKA similarity of all pairs of blocks, of one model and between two.

    A pair of images is compared only if one batch holds both, so shuffle data that is sorted by
    class. The split into batches changes the estimate as other images do, and the biased one by
    more. Batches of fewer than 4 images, as the last one may be, are left out.
    """

    name = "cka"
    images = kit.Sizes(fewest=4)
    source = (
        "Kornblith et al. (2019); Nguyen, Raghu & Kornblith (2021); Park & Kim (2022), fig. D.3"
    )
    claims = ("C9",)
    summed = ("gram",)
    gives = (
        Similarity,
        block_structure.BlockStructure,
    )

    kernel: Literal["linear", "rbf"] = kit.option(
        "linear", "kernel of the features of two images"
    )
    bandwidth: float = kit.option(
        0.5, "RBF bandwidth as a multiple of the median distance in a batch", above=0
    )

    def used(self) -> Mapping[str, tuple[object, str]]:
        """The bandwidth needs its kernel."""
        return {"bandwidth": (self.kernel == "rbf", "kernel rbf")}

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """The unbiased estimate takes at least 4 images."""
        return super().inapplicable(subject) or subject.too_few_images(self.images.fewest)

    def extract(self, x: Float[Tensor, "b c h w"]) -> dict[str, Float[Tensor, "b b"]]:
        """Inner products of the images' features; see `gram`."""
        return {"gram": hsic.gram(x)}

    def sums(self, extracts: kit.Extracts, batch: int, seed: int) -> kit.Arrays:
        """HSIC of all pairs in this batch, unbiased and biased, and its images."""
        grams = torch.stack([x["gram"].double() for x in extracts.values()])
        images = grams.shape[1]
        if images < hsic.FEWEST:
            return {}
        kernels = grams if self.kernel == "linear" else hsic.rbf(grams, self.bandwidth)
        both = torch.stack(hsic.hsic(kernels)).numpy()
        return {("hsic", batch): both, ("images", batch): np.array(images)}

    def results(self, seen: kit.PassResult) -> Sequence[kit.Result]:
        """The similarity of all pairs, and the block structure."""
        blocks = seen.blocks
        similarity = self.similarity(seen.sums, blocks, blocks)
        place, stage = similarity._counted()
        hsics, images = hsic.by_batch(seen.sums)
        weighted = images[:, None, None] * hsics[:, 0][:, place][:, :, place]
        groups = min(len(images), _GROUPS)
        score = estimated.jackknife(
            lambda sums: block_structure.structure_score(
                hsic.scaled(sums.sum(0)), place, stage
            ),
            np.stack([weighted[group::_GROUPS].sum(0) for group in range(groups)]),
            interval=_ends_of,
        )
        return similarity, similarity.block_structure(score)

    def similarity(
        self,
        sums: kit.Arrays,
        first: Sequence[kit.Block],
        other: Sequence[kit.Block],
        other_model: str = "",
    ) -> Similarity:
        """Similarity of the first of the blocks with the last, from HSIC by batch."""
        if not sums:
            raise kit.InputError(
                f"batches must hold at least {hsic.FEWEST} images for CKA, and all hold fewer. "
                "Use a larger batch_size."
            )
        hsics, images = hsic.by_batch(sums)
        diagonals = hsics.diagonal(axis1=2, axis2=3)
        unbiased, biased = np.tensordot(images, diagonals, axes=1)
        varies = unbiased > _NOTHING * biased

        def pairs(values: np.ndarray) -> np.ndarray:
            values = np.where(np.outer(varies, varies), values, np.nan)
            chosen = values[..., : len(first), -len(other) :]
            return chosen.reshape(*values.shape[:-2], -1)

        parts = images[:, None] * diagonals[:, 0] / np.where(varies, unbiased, 1.0)
        variance = np.einsum("bi,bj,b->ij", parts, parts, 2 / (images * (images - 3)))
        values = [pairs(hsic.linearized(hsics[:, i], images)) for i in (0, 1)]
        cka, biased_cka = (
            kit.Estimated(
                pairs(hsic.scaled(np.tensordot(images, hsics[:, i], axes=1))), *_ends_of(v)
            )
            for i, v in enumerate(values)
        )
        defined = np.isfinite(cka)
        return Similarity(
            **kit.pair_columns(first, other),
            cka=cka,
            biased=biased_cka,
            null_deviation=pairs(np.sqrt(variance)),
            kernel=self.kernel,
            batches=len(images),
            other_model=other_model,
            mean=estimated.mean(values[0][:, defined].mean(1), _ends_of)
            if other_model and defined.any()
            else kit.Number(np.nan),
        )

    def comparison_cost(self, subject: kit.Subject) -> kit.Cost:
        """A pass over the images."""
        return kit.Cost(per_image=1.2)

    def compare(
        self, first: kit.Measured, second: kit.Measured, run: kit.Run
    ) -> Sequence[kit.Result]:
        """Similarity of the blocks of two models on the same images."""
        a, b = first.subject, second.subject
        similarity = compare(
            a.anatomy,
            b.anatomy,
            a.batches(),
            b.batches(a.batch_size),
            kernel=self.kernel,
            bandwidth=self.bandwidth,
            other_model=b.name,
            run=replace(run, provenance=a.named(run).provenance),
        )
        return (similarity.with_provenance(model=a.name),)  # as `other_model`


def compare(
    anatomy_a: kit.Anatomy,
    anatomy_b: kit.Anatomy,
    batches: Iterable[Batch],
    batches_b: Iterable[Batch] | None = None,
    *,
    kernel: Literal["linear", "rbf"] = "linear",
    bandwidth: float = 0.5,
    other_model: str = "second model",
    run: kit.Run = kit.DEFAULT_RUN,
) -> Similarity:
    """CKA of each block of one model with each of another, on the same images.

    Costs a pass of both models; see `CKA`.

    Args:
        anatomy_a: of the first model; its blocks are the column `block` of the result.
        anatomy_b: of the second model; its blocks are the column `other`.
        batches: images as the first model expects them.
        batches_b: the same images in the same batches, as the second model expects them; by
            default both models get the very same tensors.
        kernel: "linear" or "rbf", see `CKA`.
        bandwidth: of the "rbf" kernel, see `CKA`.
        other_model: name of the second model, for figures.
        run: device, precision, seed, progress and the first model's provenance.
    """
    shapes = [anatomy.image_shape for anatomy in (anatomy_a, anatomy_b)]
    if batches_b is None and shapes[0] != shapes[1]:
        first, second = ("x".join(map(str, shape)) for shape in shapes)
        raise kit.InputError(
            f"both models must be dissected with images of one size, got {first} and {second}. "
            "Dissect both with images of one size, or give each its own batches (batches_b)."
        )
    cka = CKA(kernel=kernel, bandwidth=bandwidth)
    gathered, sizes = Gathered(), list[int]()
    with (
        observing(anatomy_a, [cka], run.compute) as extract_a,
        observing(anatomy_b, [cka], run.compute) as extract_b,
    ):
        tracked = run.track_share(batches, "observing feature maps")
        first, second = (
            tee(tracked) if batches_b is None else (tracked, processes.share(batches_b))
        )
        pairs = zip_longest(first, second)
        for number, (batch_a, batch_b) in zip(
            count(processes.rank(), processes.world_size()), pairs, strict=False
        ):
            if batch_a is None or batch_b is None:
                raise kit.InputError(_OTHER_IMAGES)
            a = images_of(batch_a, anatomy_a, run.compute)
            b = images_of(batch_b, anatomy_b, run.compute)
            if batch_size(a) != batch_size(b):
                raise kit.InputError(_OTHER_IMAGES)
            (extracts_a,), (extracts_b,) = extract_a(a), extract_b(b)
            # Numbered, for blocks of both models may be equal.
            both = dict(enumerate([*extracts_a.values(), *extracts_b.values()]))
            gathered.add({}, cka.sums(both, number, run.seed))
            sizes.append(batch_size(a))
    (_, sums), every = gathered.of_all_processes(), in_order(sizes)
    similarity = cka.similarity(
        sums,
        [block for block in anatomy_a if block.layout is not None],
        [block for block in anatomy_b if block.layout is not None],
        other_model,
    )
    origin = run.measured(images=sum(every), batch_size=max(every), image_shape=shapes[0])
    return similarity.measured(origin)


def _ends_of(by_batch: Float[np.ndarray, "n rows"]) -> estimated.Ends:
    """Student's interval over batches, for at least 5."""
    return (estimated.student if len(by_batch) >= FEWEST_BATCHES else estimated.no_interval)(
        by_batch
    )


# Figures.

_LABEL = 1.9  # inches; longest line of an axis' label
_NAME = 0.8  # inches; longest name of a block
_SMALL = 5.5  # points; of names of blocks
_MOST_NAMES, _MOST_NUMBERS = 12, 12  # along one axis


@kit.figure(
    width=2.5, height=2.35, share=False, key=block_structure.similarity_bar, key_width=0.7
)
def _(
    result: Similarity,
    ax: Axes,
    *,
    quantity: Literal["cka", "biased"] = "cka",
    models: tuple[str, str] | None = None,
) -> Axes:
    """CKA of all pairs, from the first block at the lower left; lines separate stages.

    Every block is named for up to 12 blocks, and every second, third, ... for more. Maps of up
    to 12 x 12 pairs state their values.

    Pairs without a defined CKA are gray. Values below 0 have the color of 0. `models` names
    the two models of a comparison, as the provenance does where it is left out.
    """
    names = list(dict.fromkeys(result.block.tolist()))
    table = {
        name: getattr(result, name).reshape(len(names), -1)
        for name in (quantity, "stage", "other_stage", "other")
    }
    for (i, j), value in np.ndenumerate(table[quantity]):
        defined = np.isfinite(value)
        color = style.SIMILARITY(UNIT(value)) if defined else style.FAINT
        number = f"{value:.2f}" if defined else "not defined"
        text = f"{names[i]} · {table['other'][i, j]} · {number}"
        cell = Rectangle((j, i), 1, 1, facecolor=color, edgecolor=color, linewidth=0.2)
        cell.set_gid(style.tip(text))
        cell.set_antialiased(False)  # or the seams between cells would show
        cell.set_in_layout(False)  # thousands of them would keep the layout busy
        ax.add_patch(cell)
    rows, columns = table[quantity].shape
    if max(rows, columns) <= _MOST_NUMBERS:
        _numbers(ax, table[quantity])
    ax.set(xlim=(0, columns), ylim=(0, rows))
    _blocks(ax, ax.xaxis, table["other"][0], table["other_stage"][0])
    _blocks(ax, ax.yaxis, np.array(names), table["stage"][:, 0])
    ax.tick_params(axis="x", rotation=90)
    ax.set_aspect("equal" if not result.other_model else "auto")
    if result.other_model:
        first, other = models or (result.provenance.model or "first model", result.other_model)
        ax.set_xlabel(_of(other), parse_math=False)
        ax.set_ylabel(_of(first), parse_math=False)
    else:
        ax.set(xlabel="Block", ylabel="Block")
    ax.spines[:].set_visible(False)
    return ax


def _of(model: str) -> str:
    return title(f"Block of {model}", width=_LABEL, size=8.0)


def _blocks(ax: Axes, axis: Axis, names: np.ndarray, stages: np.ndarray) -> None:
    """Names of at most 12 blocks at even distances, and white lines between stages.

    Blocks of parallel streams take turns, so that their stages are not divided by lines.
    """
    line = ax.axvline if axis is ax.xaxis else ax.axhline
    steps = np.diff(stages)
    for begin in np.flatnonzero(steps) + 1 if (steps >= 0).all() else []:
        line(float(begin), color="white", linewidth=0.9)
    named = np.arange(0, len(names), ceil(len(names) / _MOST_NAMES))
    labels = [title(str(names[i]), width=_NAME, size=_SMALL) for i in named]
    axis.set_ticks(named + 0.5, labels, fontsize=_SMALL, parse_math=False)
    axis.set_tick_params(length=0)


def _numbers(ax: Axes, values: np.ndarray) -> None:
    """The values in their cells, without the zero before the point."""
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            text = f"{value:.2f}".replace("0.", ".", 1).replace("-", "\N{MINUS SIGN}")
            ink = "black" if value > 0.6 else "white"
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=ink, fontsize=4.5)
