"""What one model does with one image: each part is an analysis of this one image.

With s the scores of the first three principal components of the feature maps of a stage, all
blocks of one shape together, each map centered and scaled, and P the part of a map below
0.5 pi rad/pixel (the larger component of a frequency), coarse = P s and fine = s - P s.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from visprism import kit
from visprism.analyses.attention.attention_maps import Query, maps_of_queries
from visprism.analyses.features.attribution import (
    GRAD_CAM,
    RANDOM,
    faithfulness,
    gradient_maps,
    with_gradient,
)
from visprism.analyses.features.feature_maps import NUM_CHANNELS, ChannelMaps, channel_maps
from visprism.analyses.features.fourier import Fourier, Spectrum, without_profile
from visprism.analyses.features.patch_pca import principal_scores, scale_of
from visprism.analyses.features.readout import lens_logits
from visprism.analyses.predictions.bands import filtered, radius
from visprism.anatomy.run.ablations import block_ablations
from visprism.anatomy.run.surgery import watch
from visprism.anatomy.trace.forward import as_written, forward
from visprism.kit.model_on_images import inputs_of
from visprism.one_image.flips import Flips, changes_of, pixel_gradient, smallest_flips
from visprism.passes import profiles
from visprism.passes.ablated import ablated_logits, partial_cuts
from visprism.passes.batches import blocks_on_grid, images_of
from visprism.passes.blocks import blocks_before
from visprism.passes.features import observations
from visprism.passes.perturbed import PixelSpace

POSITIONS = 7  # a side of the grid of positions that can be chosen
SPLIT = 0.5  # π rad/pixel, between coarse and fine
TOP = 5  # classes
_BUDGET = 420e9  # multiply-accumulates of what is measured unasked: some 5 s on two cores
_STEPS = 5  # parts in which pixels are inserted and deleted
_SIMILAR = 14  # most positions of a side at which similarity is kept

Picture = Float[np.ndarray, "h w 3"]


@kit.result("look-blocks", "Blocks for one image")
class LookBlocks(kit.PerBlock):
    """What each block of a model does with one image; one row for each block."""

    coarse: np.ndarray = kit.column(
        "Coarse", "", "RMS below 0.5 π rad/pixel over channels and positions, without the mean"
    )
    fine: np.ndarray = kit.column("Fine", "", "RMS of the rest of the feature map")
    coarse_change: np.ndarray = kit.column(
        "Change of coarse", "", "relative to the previous block's; NaN on another grid"
    )
    fine_change: np.ndarray = kit.column("Change of fine", "", "as the change of coarse")
    without: np.ndarray = kit.column(
        "Probability without", "", "of the predicted class if the block is the identity"
    )
    lens: np.ndarray = kit.column(
        "Probability by logit lens", "", "of the predicted class, by the head on this block"
    )


@dataclass(eq=False)
class BlockView:
    """The pictures and numbers of one block."""

    block: kit.Block
    colors: Picture
    coarse: Picture
    fine: Picture
    channels: Mapping[int, Float[np.ndarray, "h w"]]
    similar: Float[np.ndarray, "positions h w"]  # cosine similarity to each position
    power: tuple[float, float]  # RMS of coarse and fine
    previous: "BlockView | None" = None  # on the same grid
    frequency: np.ndarray = field(default_factory=lambda: np.empty(0))
    spectrum: np.ndarray = field(default_factory=lambda: np.empty(0))  # Δ log amplitude
    attention: Float[np.ndarray, "positions h w"] | None = None  # mean over heads
    without: Float[np.ndarray, " k"] | None = None  # probabilities without the block
    lens: Float[np.ndarray, " k"] | None = None  # probabilities by the head on this block

    @property
    def change(self) -> tuple[float, float] | None:
        """Relative change of coarse and of fine across the block."""
        if self.previous is None or min(self.previous.power) <= 0:
            return None
        now, before = self.power, self.previous.power
        return now[0] / before[0] - 1, now[1] / before[1] - 1


@dataclass(eq=False)
class Cam:
    """Grad-CAM of one class at the last block with a gradient, and its scores."""

    of_class: int
    block: str
    map: Float[np.ndarray, "h w"]
    scores: Mapping[str, tuple[float, float]]  # of this and of a random map


@dataclass(eq=False)
class Inside:
    """One model on one image: blocks from the first to the last, and what was left out."""

    subject: kit.Subject
    index: int
    pixels: np.ndarray | None  # eight bits (h, w, 3), as the model sees the image
    target: int | None
    probabilities: Float[np.ndarray, " k"] | None  # None: no class scores
    blocks: list[BlockView] = field(default_factory=list)
    channels: ChannelMaps | None = None
    spectrum: Spectrum | None = None
    cams: list[Cam] = field(default_factory=list)
    flips: Flips | None = None
    flipped: Sequence[Float[Tensor, "c h w"] | None] = ()
    notes: list[str] = field(default_factory=list)  # what does not apply, and why
    passes: float = 0.0  # forward passes, a backward pass counted as two
    left_out: list[str] = field(default_factory=list)  # for its cost

    @property
    def names(self) -> Sequence[str]:
        """The names of the classes; none if they are unknown."""
        stated = [names[0] for names in self.subject.classes.names]
        given = stated or list(self.subject.images.class_names)
        known = 0 if self.probabilities is None else len(self.probabilities)
        return given if len(given) == known else ()

    def name_of(self, of_class: int) -> str:
        """The name of a class, or its number."""
        name = self.names[of_class] if self.names else f"class {of_class}"
        return name.split(",")[0]

    @property
    def top(self) -> list[int]:
        """The five most probable classes, and the true one."""
        if self.probabilities is None:
            return []
        best = np.argsort(-self.probabilities, kind="stable")[:TOP].tolist()
        extra = [] if self.target is None or self.target in best else [self.target]
        return best + extra

    def best(self, number: int) -> list[tuple[int, float]]:
        """The most probable classes with their probabilities; none without class scores."""
        p = self.probabilities
        return [] if p is None else [(k, float(p[k])) for k in self.top[:number]]

    def tables(self) -> dict[str, kit.Result]:
        """Every number as a table, by name."""
        made: dict[str, kit.Result | None] = {
            "blocks": self._by_block() if self.blocks else None,
            "channels": self.channels,
            "spectrum": self.spectrum,
            "flips": self.flips,
        }
        return {name: table for name, table in made.items() if table is not None}

    def _by_block(self) -> LookBlocks:
        nan, views = (np.nan, np.nan), self.blocks
        predicted = self.top[0] if self.top else 0

        def of_predicted(values: Iterable[np.ndarray | None]) -> np.ndarray:
            return np.array([np.nan if v is None else v[predicted] for v in values])

        change = np.array([v.change or nan for v in views])
        power = np.array([v.power for v in views])
        return LookBlocks(
            **kit.block_columns([v.block for v in views]),
            coarse=power[:, 0],
            fine=power[:, 1],
            coarse_change=change[:, 0],
            fine_change=change[:, 1],
            without=of_predicted(v.without for v in views),
            lens=of_predicted(v.lens for v in views),
        )


def look_inside(
    subject: kit.Subject,
    index: int,
    *,
    target: int | None = None,
    channels: int | Sequence[int] = NUM_CHANNELS,
    full: bool = False,
    run: kit.Run = kit.DEFAULT_RUN,
) -> Inside:
    """Look at what a model does with one of its subject's images.

    Args:
        subject: model and images.
        index: of the image.
        target: its class, if the images state none.
        channels: of each block, as `channel_maps` takes them.
        full: also what takes longer than some 5 s on two cores.
        run: device, precision and seed.
    """
    anatomy = subject.anatomy
    run = run.on(subject.model)
    batch = subject.images.batches(subject.preprocessing, batch_size=1, limit=index + 1)[index]
    images = images_of(inputs_of(batch), anatomy, run.compute)
    labels = None if subject.missing(kit.Needs.TARGETS) else subject.images.targets
    if target is None and labels is not None and labels[index] >= 0:
        target = int(labels[index])
    inside = Inside(subject, index, _pixels_of(subject, index), target, None)
    with run.compute.borrow(subject.model), as_written():
        logits = _features(inside, images, channels, run)
        _attention(inside, images, run)
        reason = subject.without_classes()
        if reason is None and not subject.task.single_class:
            reason = f"the task is {subject.task.name}"
        if reason:
            inside.notes.append(f"No class scores: {reason}.")
            return inside
        inside.probabilities = _softmax(logits)
        if target is not None and not 0 <= target < logits.shape[1]:
            raise kit.InputError(
                f"target must be between 0 and {logits.shape[1] - 1}, the classes of "
                f"{subject.name}, got {target}"
            )
        _lens(inside, images)
        _ablations(inside, images, run)
        _flips(inside, full)
        _cams(inside, images, full)
    return inside


def _pixels_of(subject: kit.Subject, index: int) -> np.ndarray | None:
    """Pixels of the image, gray in color; None where they cannot be recovered."""
    try:
        pixels = subject.pixels_of(index)
    except kit.InputError:  # the normalization is unknown, or the model takes several inputs
        return None
    colors = pixels if len(pixels) == 3 else pixels[:1].expand(3, -1, -1)
    return colors.permute(1, 2, 0).cpu().numpy()


def _softmax(logits: Tensor) -> Float[np.ndarray, " k"]:
    return logits[0].double().softmax(0).cpu().numpy()


def _affordable(inside: Inside, passes: float, what: str, full: bool) -> bool:
    """Whether a part fits the budget, or is asked for; otherwise it is listed."""
    graph = inside.subject.anatomy.graph
    macs = float(graph.macs(range(graph.output + 1)))
    if full or macs * (inside.passes + passes) <= _BUDGET:
        inside.passes += passes
        return True
    inside.left_out.append(f"{what} ({passes:.0f} forward passes)")
    return False


def _features(
    inside: Inside, images: Any, channels: int | Sequence[int], run: kit.Run
) -> Tensor:
    """Feature maps, their parts and spectra, from one pass; returns the logits."""
    anatomy = inside.subject.anatomy
    try:
        blocks = blocks_on_grid(anatomy)
    except kit.InputError as error:
        inside.notes.append(f"No feature maps: {error}.")
        blocks = []
    radial = without_profile(profiles.diagonal, anatomy) is not None
    fourier = Fourier(profile="radial" if radial else "diagonal")
    with torch.no_grad(), watch(anatomy, blocks=blocks) as maps, run.compute.autocast():
        logits = forward(anatomy.model, images)
        inside.passes += 1
        if blocks:
            ((spectrum, *_),) = observations(anatomy, [images], fourier, run=run)
            assert isinstance(spectrum, Spectrum)
            inside.spectrum = spectrum
            inside.passes += 1
    of_block = {block: maps[block.name][0].float().cpu() for block in blocks}
    if of_block:
        inside.channels = channel_maps(of_block, channels)
        inside.blocks = list(_views(of_block, inside.channels, inside.spectrum))
    return logits


def _views(
    maps: Mapping[kit.Block, Float[Tensor, "c h w"]],
    channels: ChannelMaps,
    spectrum: Spectrum | None,
) -> Iterator[BlockView]:
    pictures = channels.pictures()
    before, views = blocks_before(maps), dict[kit.Block, BlockView]()
    for _, group in groupby(maps, key=lambda block: block.shape):
        stage = list(group)
        scores = joint_scores([maps[block] for block in stage])
        low, high = scale_of(np.concatenate([s.reshape(-1, s.shape[-1]) for s in scores]))
        span = np.where(high > low, high - low, 1)
        for block, score in zip(stage, scores, strict=True):
            coarse, fine = parts(torch.from_numpy(np.moveaxis(score, 2, 0)))
            x, previous = maps[block], before[block]
            power = [part.square().mean().sqrt() for part in parts(x - x.mean((1, 2), True))]
            view = BlockView(
                block=block,
                colors=((score - low) / span).clip(0, 1),
                coarse=((np.moveaxis(coarse.numpy(), 0, 2) - low) / span).clip(0, 1),
                fine=(0.5 + np.moveaxis(fine.numpy(), 0, 2) / span).clip(0, 1),
                channels={c: m for (name, c), m in pictures.items() if name == block.name},
                similar=similarity(x),
                power=(float(power[0]), float(power[1])),
                previous=None
                if previous is None or previous.shape != block.shape
                else views.get(previous),
            )
            if spectrum is not None:
                rows = spectrum.block == block.name
                view.frequency = spectrum.frequency[rows]
                view.spectrum = np.asarray(spectrum.relative)[rows]
            views[block] = view
            yield view


def joint_scores(maps: Sequence[Float[Tensor, "c h w"]]) -> list[Float[np.ndarray, "h w 3"]]:
    """Scores of three principal components of feature maps of one shape, joint over them.

    Each map has mean 0 in every channel and RMS 1, so that no block hides the others.
    """
    tokens = []
    for x in maps:
        rest = x.double().flatten(1) - x.double().mean((1, 2))[:, None]
        scale = rest.square().mean().sqrt().clamp(min=torch.finfo(rest.dtype).tiny)
        tokens.append((rest / scale).T.numpy())
    scores, _ = principal_scores(np.concatenate(tokens))
    return list(scores.reshape(len(maps), *maps[0].shape[1:], -1))


def parts(
    x: Float[Tensor, "c h w"],
) -> tuple[Float[Tensor, "c h w"], Float[Tensor, "c h w"]]:
    """The part of a map below 0.5 pi rad/pixel, and the rest; together they are the map."""
    coarse = filtered(x, radius((x.shape[1], x.shape[2])) < SPLIT)
    return coarse, x - coarse


def places(grid: tuple[int, int]) -> list[tuple[int, int]]:
    """The positions of a feature map at the middle of each place of the grid of positions."""
    middles = (np.arange(POSITIONS) + 0.5) / POSITIONS
    rows, columns = (np.floor(middles * n).astype(int).tolist() for n in grid)
    return [(row, column) for row in rows for column in columns]


def similarity(x: Float[Tensor, "c h w"]) -> Float[np.ndarray, "positions h w"]:
    """Cosine similarity of the features of some positions to all, without their mean.

    A large map keeps every k-th position.
    """
    step = -(-max(x.shape[1:]) // _SIMILAR)
    units = functional.normalize(x - x.mean((1, 2), keepdim=True), dim=0)
    grid = x.shape[1], x.shape[2]
    chosen = torch.stack([units[:, row, column] for row, column in places(grid)])
    kept = units[:, step // 2 :: step, step // 2 :: step]
    return torch.einsum("pc,chw->phw", chosen, kept).numpy()


def _attention(inside: Inside, images: Any, run: kit.Run) -> None:
    """The attention weights of each position of the grid, by one pass."""
    anatomy = inside.subject.anatomy
    if reason := inside.subject.missing(kit.Needs.ATTENTION):
        inside.notes.append(f"No attention maps: {reason}.")
        return
    _, height, width = anatomy.image_shape
    queries: list[Query] = list(places((height, width)))
    maps = maps_of_queries(anatomy, images, queries, run=run)
    inside.passes += 1
    for view in inside.blocks:
        if view.block.name in maps:
            view.attention = maps[view.block.name].mean(1)


def _lens(inside: Inside, images: Any) -> None:
    """The head's probabilities on each block whose output has the last one's shape."""
    try:
        lens = lens_logits(inside.subject.anatomy, images)
    except kit.InputError as error:
        inside.notes.append(f"No logit lens: {error}.")
        return
    inside.passes += 2.5
    for view in inside.blocks:
        if view.block in lens:
            view.lens = _softmax(lens[view.block])


@torch.no_grad()
def _ablations(inside: Inside, images: Any, run: kit.Run) -> None:
    """Probabilities without each block that can be the identity."""
    anatomy = inside.subject.anatomy
    ablations = block_ablations(anatomy)
    if not ablations:
        inside.notes.append("No block can be left out: none keeps the shape of its input.")
        return
    partial = partial_cuts(anatomy, images, ablations, run)
    _, *without = ablated_logits(anatomy, images, ablations, partial, run)
    inside.passes += 2 + 1.1 * len(ablations)
    by_name = {a.blocks[0].name: logits for a, logits in zip(ablations, without, strict=True)}
    for view in inside.blocks:
        if view.block.name in by_name:
            view.without = _softmax(by_name[view.block.name])


def _cams(inside: Inside, images: Any, full: bool) -> None:
    """Grad-CAM of the predicted and of the true class, with insertion and deletion."""
    anatomy = inside.subject.anatomy
    if not isinstance(images, Tensor):
        inside.notes.append("No Grad-CAM: the model takes several inputs.")
        return
    try:
        reached, _ = with_gradient(anatomy, images)
    except kit.InputError as error:
        inside.notes.append(f"No Grad-CAM: {error}.")
        return
    block, (predicted, *_) = reached[-1], inside.top
    classes = [predicted, *[t for t in [inside.target] if t is not None and t != predicted]]
    inside.passes += 3 * (1 + len(classes))
    scored = _affordable(
        inside, (4 * (_STEPS - 1) + 3) * len(classes), "insertion and deletion", full
    )
    for of_class in classes:
        target, maps = gradient_maps(
            anatomy, [block], images, torch.tensor([of_class], device=images.device)
        )
        scores: dict[str, tuple[float, float]] = {}
        if scored:
            generator = kit.stream(0, "random map")
            random = torch.rand(maps[GRAD_CAM, block].shape, generator=generator)
            chosen = {RANDOM: random.to(images.device), GRAD_CAM: maps[GRAD_CAM, block]}
            pixels = images[0, 0].numel()
            order = torch.randperm(pixels, generator=generator)[None].to(images.device)
            named = {(name, block): values for name, values in chosen.items()}
            found = faithfulness(anatomy, images, target, named, order, _STEPS)
            scores = {
                name: (
                    float(found[name, GRAD_CAM, block][0]),
                    float(found[name, RANDOM, block][0]),
                )
                for name in ("insertion", "deletion")
            }
        map_ = maps[GRAD_CAM, block][0].cpu().numpy()
        inside.cams.append(Cam(of_class, block.name, map_, scores))


def _flips(inside: Inside, full: bool) -> None:
    """The smallest changes of the image that change the predicted class."""
    subject = inside.subject
    if reason := subject.missing(kit.Needs.PIXELS):
        inside.notes.append(f"No smallest changes: {reason}.")
        return
    way = subject.known_preprocessing
    pixels = subject.pixels_of(inside.index)[None].float() / 255
    space, device = PixelSpace(way.mean, way.std), next(subject.model.parameters()).device
    if _affordable(inside, 53, "the smallest changes that flip the class", full):
        predicted = torch.tensor(inside.top[:1])
        gradient = pixel_gradient(subject, pixels.to(device), predicted.to(device))
        scan = _affordable(inside, 150, "all steps of these changes", full)
        changes = changes_of(pixels, None if gradient is None else gradient.cpu())
        with torch.no_grad():
            inside.flips, inside.flipped = smallest_flips(
                pixels,
                changes,
                lambda x: forward(subject.model, space.normalized(x).to(device)).cpu(),
                scan=scan,
            )
        inside.passes += inside.flips.passes + 3 - 53 - 150 * scan
