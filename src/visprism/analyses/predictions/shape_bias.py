"""Shape bias: whether a model classifies by the shape or by the texture of an object.

Sources: Geirhos et al. (2019), ImageNet-trained CNNs are biased towards texture; for the
categories as classes of ImageNet, Geirhos et al. (2018), Generalization in humans and deep
neural networks, app. C, with the indices of the authors' repository.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Int64
from matplotlib.axes import Axes

from visprism import kit
from visprism.core.statistics import FEWEST_DIFFERENT, wilson
from visprism.drawing import style
from visprism.estimates.estimated import ratio
from visprism.estimates.text import images_text, text_of
from visprism.passes.predictions import Predictions

NO_CUE = -1  # the texture of an image that has none
_FEWEST_CATEGORIES = 2  # of which each image shows both, so that every decision is for one


@kit.result("shape-bias", "Shape bias")
class CueDecisions(kit.Result):
    """Decisions on images whose shape and texture differ, by category and for all images.

    Each point is a category: 1 if all decisions for shape or texture are for the shape, 0
    if all are for the texture, with its 95% interval. The diamond is the mean over all
    images. A model that learned classes of shapes, as in the data set `shapes`, chooses the
    shape because of its task.
    """

    category: kit.Texts = kit.column(
        "Category", "", "category of the shape; 'all' in the last row"
    )
    images: np.ndarray = kit.column("Images", "", "images whose shape and texture differ")
    shape_decisions: np.ndarray = kit.column(
        "Shape decisions", "", "images classified by their shape"
    )
    texture_decisions: np.ndarray = kit.column(
        "Texture decisions", "", "images classified by their texture"
    )
    bias: kit.Estimated = kit.estimate(
        "shape bias",
        "%",
        "shape decisions over shape and texture decisions; NaN without any",
        asks="Does the model classify by shape or by texture?",
    )
    accuracy: np.ndarray = kit.column(
        "Accuracy", "", "shape decisions over all images with conflicting cues"
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """The shape bias of all images, and how many are classified by either cue."""
        images, categories = int(self.images[-1]), len(self) - 1
        decisions = int(self.shape_decisions[-1] + self.texture_decisions[-1])
        tested = f"{images_text(images, self.provenance.split)} with conflicting cues"
        if not decisions:
            yield f"shape bias undefined: 0 of {tested} are classified by either cue"
            return
        bias = text_of(self.bias[-1], ".1%")
        fraction, chance = decisions / images, 2 / categories if categories else 1.0
        text = f"shape bias {bias} over {decisions} decisions for shape or texture"
        low, _ = wilson(np.array([decisions]), np.array([images]))
        if low[0] > chance:
            yield f"{text}, {fraction:.1%} of {tested}"
            return
        yield kit.Finding(
            f"{text}: {decisions} of {tested} are classified as their shape or their "
            "texture, not significantly more than expected by chance "
            f"({chance:.1%}); the shape bias is not informative",
            "VP101" if categories > _FEWEST_CATEGORIES else "",
        )

    def answered(self, name: str) -> np.ndarray:
        """The shape bias of all images."""
        return np.array([len(self) - 1])


@kit.analysis
class ShapeBias(kit.Analysis):
    """Decisions for shape or texture on images whose cues conflict."""

    name = "shape-bias"
    images = kit.Sizes(quick=None, standard=None, work=0.5)
    rank = 0
    group = "robustness"
    needs = kit.Needs.TARGETS | kit.Needs.TEXTURES | kit.Needs.OUTPUTS
    source = "Geirhos et al. (2019)"
    gives = CueDecisions

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Compare the decisions with shapes and textures."""
        names, textures = subject.images.class_names, subject.images.textures
        assert textures is not None  # see `needs`
        predictions = subject.predictions(run)
        classes = classes_of(names, predictions.num_classes)
        decisions = by_category(predictions, classes)
        textures = textures[: len(predictions)]
        return (shape_bias(decisions, textures, names),)

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """One pass."""
        return kit.Cost(per_image=1.0)

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Without textures, or with classes that do not belong to the categories."""
        return super().inapplicable(subject) or kit.reason_of_error(
            classes_of, subject.images.class_names, subject.num_classes
        )


def shape_bias(
    predictions: Predictions, textures: Int64[np.ndarray, " n"], categories: Sequence[str]
) -> CueDecisions:
    """Shape decisions over shape and texture decisions, by category and for all images.

    Images show the shape of one category, which is their target, and the texture of another.
    Images with the same category twice do not count, nor do decisions for a third category.

    By image the bias is linearized, over images with conflicting cues.

    Args:
        predictions: over the categories, see `by_category`; the targets are shapes.
        textures: category of the texture of each image, -1 for none.
        categories: names of the categories.

    Source: Geirhos et al. (2019), sec. 2.4; for the interval Wilson (1927), Probable inference.
    """
    shapes = predictions.targets.numpy()
    textures = np.asarray(textures)
    if predictions.num_classes != len(categories):
        raise kit.InputError(
            f"predictions must be over the {len(categories)} categories, got "
            f"{predictions.num_classes} classes. Use by_category."
        )
    if textures.shape != shapes.shape:
        raise kit.InputError(
            f"textures must be one per image ({len(shapes)}), got {len(textures)}"
        )
    conflict = (shapes != textures) & (textures != NO_CUE)
    if not conflict.any():
        raise kit.InputError(
            "at least one image must have the shape of one category and the texture of "
            "another, got none. Use a cue-conflict set, such as 'shapes?cues=conflict'."
        )
    decisions = predictions.logits.argmax(1).numpy()
    of_category = [conflict & (shapes == c) for c in range(len(categories))]
    groups = [(n, rows) for n, rows in zip(categories, of_category, strict=True) if rows.any()]
    groups.append(("all", conflict))
    by_shape, by_texture = ((decisions == cue) & conflict for cue in (shapes, textures))
    number, shape, texture = (
        np.array([(rows & counted).sum() for _, rows in groups])
        for counted in (conflict, by_shape, by_texture)
    )
    low, high = wilson(shape, shape + texture)
    by_image = np.full((len(shapes), len(groups)), np.nan)
    if min(shape[-1], texture[-1]) >= FEWEST_DIFFERENT:  # intervals of fewer are too short
        single, either = (x[conflict].astype(float) for x in (by_shape, by_shape | by_texture))
        by_image[conflict, -1] = ratio(single, either).by_unit
    with np.errstate(invalid="ignore"):
        bias = kit.Estimated(shape / (shape + texture), low, high, by_image)
    return CueDecisions(
        category=np.array([name for name, _ in groups]),
        images=number,
        shape_decisions=shape,
        texture_decisions=texture,
        bias=bias,
        accuracy=shape / number,
        provenance=predictions.provenance,
    )


def by_category(predictions: Predictions, classes: Sequence[Sequence[int]]) -> Predictions:
    """Predictions over categories, each the mean over several classes of the model.

    The score of a category is the logarithm of the mean probability of its classes, as in
    Geirhos et al. The targets must be categories already.
    """
    logs = predictions.logits.double().log_softmax(1)
    means = [logs[:, list(g)].logsumexp(1) - np.log(len(g)) for g in classes]
    scores = torch.stack(means, dim=1).float()
    return Predictions(scores, predictions.targets, predictions.provenance)


@kit.figure(width=2.6, height=2.8, share=False)
def _(result: CueDecisions, ax: Axes) -> Axes:
    """Shape bias of each category with its 95% interval, and of all images."""
    others = len(result) - 1
    ax.axvline(0.5, color=style.FAINT, linewidth=0.6, linestyle=(0, (4, 3)))
    names, colors = result.category.tolist(), [*[style.KIND_COLORS["conv"]] * others, style.INK]
    about = [
        f"{name} · {shape} shape, {texture} texture"
        for name, shape, texture in zip(
            names, result.shape_decisions, result.texture_decisions, strict=True
        )
    ]
    style.named_points(ax, names, result.bias, about, colors, "o" * others + "D")
    ax.set(xlim=(-0.02, 1.02), xlabel="Shape bias (0: texture, 1: shape)")
    return ax


_CLASSES = 1000  # of ImageNet

# First and last index of each run of classes.
_RUNS: dict[str, tuple[tuple[int, int], ...]] = {
    "airplane": ((404, 404),),
    "bear": ((294, 297),),
    "bicycle": ((444, 444), (671, 671)),
    "bird": (
        (8, 8), (10, 16), (18, 20), (22, 24), (80, 83), (87, 96), (98, 100), (127, 133),
        (135, 145),
    ),
    "boat": ((472, 472), (554, 554), (625, 625), (814, 814), (914, 914)),
    "bottle": ((440, 440), (720, 720), (737, 737), (898, 899), (901, 901), (907, 907)),
    "car": ((436, 436), (511, 511), (817, 817)),
    "cat": ((281, 286),),
    "chair": ((423, 423), (559, 559), (765, 765), (857, 857)),
    "clock": ((409, 409), (530, 530), (892, 892)),
    "dog": (
        (152, 191), (193, 203), (205, 226), (228, 241), (243, 250), (252, 257), (259, 259),
        (261, 263), (265, 268),
    ),
    "elephant": ((385, 386),),
    "keyboard": ((508, 508), (878, 878)),
    "knife": ((499, 499),),
    "oven": ((766, 766),),
    "truck": (
        (555, 555), (569, 569), (656, 656), (675, 675), (717, 717), (734, 734), (864, 864),
        (867, 867),
    ),
}  # fmt: skip

SIXTEEN = {
    name: tuple(c for first, last in runs for c in range(first, last + 1))
    for name, runs in _RUNS.items()
}


def classes_of(categories: Sequence[str], num_classes: int) -> list[tuple[int, ...]]:
    """The classes of a model that belong to each category.

    A model of the 1000 classes of ImageNet has several for each of the 16 categories; one with
    as many classes as there are categories has them in the same order.
    """
    if num_classes == len(categories):
        return [(i,) for i in range(num_classes)]
    unknown = [name for name in categories if name not in SIXTEEN]
    if num_classes == _CLASSES and not unknown:
        return [SIXTEEN[name] for name in categories]
    got = f"categories {', '.join(unknown[:3])}" if num_classes == _CLASSES else num_classes
    raise kit.InputError(
        f"num_classes must be {len(categories)}, the number of categories, or {_CLASSES} with "
        f"the 16 categories of Geirhos et al. (airplane, bear, ..., truck), got {got}"
    )
