"""Look inside networks: one page on what they do with one image."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from visprism import kit
from visprism.analyses.features.feature_maps import NUM_CHANNELS
from visprism.core.errors import InputError
from visprism.core.files import output_folder, slug, write_text
from visprism.core.interruption import check_interruption
from visprism.core.request import DataOptions
from visprism.drawing.color_bars import side_by_side
from visprism.drawing.style import paper_style
from visprism.images.folders import is_image
from visprism.kit.inputs import candidates_of, subjects_of
from visprism.one_image.inside import BlockView, Inside, look_inside
from visprism.one_image.page import page_html, picture_files
from visprism.one_image.pictures import svg

PAGE = "look.html"


@dataclass(frozen=True, eq=False)
class Look:
    """Models by name, for each image; a notebook shows the page.

    ``look.images[0]["model"]`` is an `Inside`, with every number and picture as arrays.
    """

    title: str
    images: Sequence[Mapping[str, Inside]]
    spectra: Mapping[str, Any]  # of a study, by model

    def html(self) -> str:
        """The page as text; it needs no other file and no network."""
        return page_html(self.title, self.images, self.spectra)

    def _repr_html_(self) -> str:
        frame = "width: 100%; height: 48rem; border: 0; border-radius: 4px"
        return (
            f'<iframe srcdoc="{escape(self.html())}" style="{frame}" '
            f'sandbox="allow-scripts" title="{escape(self.title)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<Look: {self.title}>"

    def view(self, block: str, model: str | None = None, image: int = 0) -> BlockView:
        """The pictures and numbers of one block, of the first model by default."""
        models = self.images[image]
        name = next(iter(models)) if model is None else model
        if name not in models:
            raise InputError(f"model must be one of {', '.join(models)}, got {model!r}")
        views = {view.block.name: view for view in models[name].blocks}
        if block not in views:
            raise InputError(f"block must be one of {', '.join(views)}, got {block!r}")
        return views[block]

    def figure(self, block: str, model: str | None = None, image: int = 0) -> Figure:
        """One block for a paper: its features, coarse and fine part, and channels."""
        view = self.view(block, model, image)
        colors = {"features": view.colors, "coarse": view.coarse, "fine": view.fine}
        channels = {f"{c}: {m.min():.2g} to {m.max():.2g}": m for c, m in view.channels.items()}
        with paper_style():
            made = Figure(figsize=(6.0, 2.6), layout="constrained")
            above, below = made.subplots(2, 1, height_ratios=(1.6, 1))
            side_by_side(above, colors)
            side_by_side(below, channels, fontsize=4, cmap="gray")
            for ax in (above, below):
                ax.set(aspect="equal", ylim=(1.15, 0))
            made.suptitle(block, fontsize=8)
        return made

    def save(self, folder: Path | str) -> Path:
        """Write the page, its pictures as PNG and SVG, and its numbers as tables.

        Returns the path of the page. `folder` has ``look.html``, ``pictures/`` and ``tables/``.
        """
        folder = Path(folder)
        with output_folder(folder, last=PAGE) as scratch:
            (scratch / "pictures").mkdir()
            (scratch / "tables").mkdir()
            write_text(scratch / PAGE, self.html())
            for stem, (file, size) in picture_files(self.images).items():
                (scratch / "pictures" / f"{stem}.png").write_bytes(file)
                write_text(scratch / "pictures" / f"{stem}.svg", svg(file, size, stem))
            for number, models in enumerate(self.images):
                for name, inside in models.items():
                    for part, table in inside.tables().items():
                        stem = f"{number}-{slug(name)}-{part}"
                        table.save_csv(scratch / "tables" / f"{stem}.csv")
        return folder / PAGE


def look(
    models: Any,
    image: Any,
    *,
    images: Sequence[int] = (0,),
    target: int | str | None = None,
    channels: int | Sequence[int] = NUM_CHANNELS,
    full: bool = False,
    study: Any = None,
    title: str = "",
    preprocessing: Any = None,
    options: DataOptions | None = None,
    pretrained: bool | None = None,
    output: str | None = None,
    run: kit.Run = kit.DEFAULT_RUN,
) -> Look:
    """Show what models do with one image, from the first block to the answer.

    ``vp.look(model, "photo.jpg")`` shows its page in a notebook. What takes longer than about
    5 s on two cores for one image is left out unless `full`: insertion and deletion, the
    smallest changes that flip the class, and a scan of all their steps.

    Args:
        models: as `examine` takes them.
        image: a file, a PIL image, an array (H, W, 3) of eight bits, a list of these, or
            whatever else `examine` takes as data.
        images: indices of images in data that have several.
        target: the true class, by its name or number, if the data state none.
        channels: of each block: how many of those with the largest variance, or their numbers.
        full: also what takes longer.
        study: a `Study` of the same models, whose mean spectra are drawn with the image's.
        title: of the page.
        preprocessing: resize, crop and normalization, as `examine` takes it.
        options: how data are read.
        pretrained: whether models that are given by name have published weights.
        output: the output with the logits, of models that return several.
        run: device, precision, seed and progress.
    """
    options = options or DataOptions()
    data = _data_of(image)
    candidates = candidates_of(models, pretrained=pretrained, output=output, run=run)
    named = isinstance(data, str | Path)
    options = options if named else replace(options, split=None)
    subjects = subjects_of(
        candidates, data, None, options, preprocessing=preprocessing, run=run
    )
    chosen = [_index(subjects[0], i) for i in images]
    insides: list[dict[str, Inside]] = []
    for index in chosen:
        of_image: dict[str, Inside] = {}
        for subject in run.track(subjects, "looking"):
            check_interruption()
            of_image[subject.name] = look_inside(
                subject,
                index,
                target=_class_of(subject, target),
                channels=channels,
                full=full,
                run=subject.named(run),
            )
        insides.append(of_image)
    file = isinstance(image, str | Path) and is_image(Path(image))
    title = title or title_of(list(candidates), Path(image).name if file else "this picture")
    return Look(title, insides, _spectra(study))


def title_of(models: Sequence[str], image: str = "this picture") -> str:
    """The heading of a page."""
    names = " and ".join(filter(None, [", ".join(models[:-1]), models[-1]]))
    return f"What {names} {'does' if len(models) == 1 else 'do'} with {image}"


def _data_of(image: Any) -> Any:
    """Data that holds the given image or images."""
    if isinstance(image, Path):
        return str(image)
    if isinstance(image, list | tuple) and image and isinstance(image[0], str | Path):
        return [_opened(file) for file in image]
    if isinstance(image, Image.Image):
        return [image]
    if isinstance(image, np.ndarray) and image.ndim in (2, 3):
        return [Image.fromarray(image)]
    if isinstance(image, Tensor):
        return [image if image.ndim == 4 else image[None]]
    return image


def _opened(file: str | Path) -> Image.Image:
    from visprism.images.pixels import decode

    return decode(Path(file))


def _index(subject: kit.Subject, position: int) -> int:
    """The index of the image at a position in the data as it was read."""
    places = np.flatnonzero(subject.images.positions == position)
    if not len(places):
        most = len(subject.images) - 1
        raise InputError(f"images must be between 0 and {most}, got {position}")
    return int(places[0])


def _class_of(subject: kit.Subject, target: int | str | None) -> int | None:
    """The number of a class that is given by its name or number."""
    if target is None or isinstance(target, int):
        return target
    if target.isdigit():
        return int(target)
    stated = subject.classes.names or [(name,) for name in subject.images.class_names]
    for number, names in enumerate(stated):
        if target in names or target in {n.split(",")[0] for n in names}:
            return number
    raise InputError(f"target must be the name or the number of a class, got {target!r}")


def _spectra(study: Any) -> dict[str, Any]:
    """The mean spectra of a study by model."""
    from visprism.analyses.features.fourier import Spectrum

    if study is None:
        return {}
    return {
        entry.models[0]: result
        for entry in study.entries
        for result in entry.results
        if isinstance(result, Spectrum) and len(entry.models) == 1
    }
