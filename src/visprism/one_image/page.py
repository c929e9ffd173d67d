"""The page of a look: what each picture and number of a template is made from."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from typing import Any

import numpy as np
from jaxtyping import Float
from markupsafe import Markup, escape

from visprism.drawing.style import color_of
from visprism.estimates.text import MINUS
from visprism.one_image.flips import STEPS, words_of
from visprism.one_image.inside import POSITIONS, BlockView, Inside
from visprism.one_image.pictures import (
    HEAT,
    SIGNED,
    address,
    atlas,
    eight_bit,
    png,
    reduced,
    relative,
)
from visprism.report.page import style_sheet, templates

_COLORS = 5  # of classes in a chart
_CHART, _SPARK = (640, 190), (132, 132)  # width and height
_EDGE = 6


@dataclass
class Pictures:
    """Pictures of one page, each stored once, as a class of its style sheet."""

    files: dict[str, bytes] = field(default_factory=dict)  # by class

    def add(self, name: str, file: bytes) -> str:
        """Store a picture; returns the class of an element that shows it."""
        self.files[name] = file
        return name

    def rules(self) -> Markup:
        """The rules of the style sheet."""
        return Markup(
            "\n".join(
                f".{name}{{background-image:url({address(file)})}}"
                for name, file in self.files.items()
            )
        )


def page_html(
    title: str, images: Sequence[Mapping[str, Inside]], spectra: Mapping[str, Any]
) -> str:
    """The page of one or several images; it needs neither network nor other files.

    Args:
        title: heading of the page.
        images: models by name, for each image.
        spectra: of a study, by model.
    """
    pictures = Pictures()
    contexts = [
        _image(f"i{number}", of_image, pictures, spectra)
        for number, of_image in enumerate(images)
    ]
    environment = templates("visprism.one_image")
    return environment.get_template("look.html").render(
        title=title,
        images=contexts,
        models=list(images[0]),
        style=Markup(style_sheet() + _text("look.css")),
        rules=pictures.rules(),
        script=Markup(_text("look.js")),
        script_hash=Markup(script_hash()),
        color_of=color_of,
        positions=POSITIONS,
        steps=STEPS,
        study=bool(spectra),
    )


def picture_files(
    images: Sequence[Mapping[str, Inside]],
) -> dict[str, tuple[bytes, tuple[int, int]]]:
    """The pictures of the page as PNG files with their (height, width), by name of the file."""
    pictures = Pictures()
    for number, models in enumerate(images):
        _image(f"{number}", models, pictures, {})
    return {name: (file, _size(file)) for name, file in pictures.files.items()}


def script_hash() -> str:
    """SHA-256 of the script of the page, as a Content-Security-Policy names it."""
    return f"'sha256-{b64encode(sha256(_text('look.js').encode()).digest()).decode()}'"


def _size(file: bytes) -> tuple[int, int]:
    """Height and width of a PNG file, which its header states."""
    width, height = (int.from_bytes(file[i : i + 4], "big") for i in (16, 20))
    return height, width


def _text(name: str) -> str:
    return (files("visprism.one_image") / "templates" / name).read_text(encoding="utf-8")


def _image(
    key: str, models: Mapping[str, Inside], pictures: Pictures, spectra: Mapping[str, Any]
) -> dict[str, Any]:
    """What the template shows of one image."""
    several = [inside for inside in models.values() if inside.probabilities is not None]
    counts = {0 if i.probabilities is None else len(i.probabilities) for i in several}
    union = list(dict.fromkeys(c for i in several for c in i.top)) if len(counts) == 1 else []
    pixels = next((i.pixels for i in models.values() if i.pixels is not None), None)
    picture = None
    if pixels is not None:
        picture = pictures.add(f"{key}-x", png(pixels))
    columns = [
        _model(f"{key}m{number}", name, inside, union or inside.top, pictures, spectra)
        for number, (name, inside) in enumerate(models.items())
    ]
    rows = max(len(column["blocks"]) for column in columns)
    for column in columns:
        spans = aligned([view["depth"] for view in column["blocks"]], _master(columns))
        for view, span in zip(column["blocks"], spans, strict=True):
            view["rows"] = span
    shape = None if pixels is None else pixels.shape[:2]
    return {
        "key": key,
        "picture": picture,
        "ratio": 1.0 if shape is None else shape[1] / shape[0],
        "size": "" if shape is None else f"{shape[1]}x{shape[0]} pixels",
        "models": columns,
        "rows": rows,
    }


def _master(columns: Sequence[Mapping[str, Any]]) -> list[float]:
    """The depths of the model with the most blocks."""
    most = max(columns, key=lambda column: len(column["blocks"]))
    return [view["depth"] for view in most["blocks"]]


def aligned(depths: Sequence[float], rows: Sequence[float]) -> list[tuple[int, int]]:
    """First row and end of each block, in order, each near the row of its depth.

    Example:
        >>> aligned([0.0, 0.5, 1.0], [0.0, 0.25, 0.5, 0.75, 1.0])
        [(1, 3), (3, 5), (5, 6)]
    """
    starts: list[int] = []
    for i, depth in enumerate(depths):
        nearest = int(np.abs(np.asarray(rows) - depth).argmin())
        first = starts[-1] + 1 if starts else 0
        starts.append(min(max(first, nearest), len(rows) - (len(depths) - i)))
    ends = [*starts[1:], len(rows)]
    return [(start + 1, end + 1) for start, end in zip(starts, ends, strict=True)]


def _model(
    key: str,
    name: str,
    inside: Inside,
    classes: Sequence[int],
    pictures: Pictures,
    spectra: Mapping[str, Any],
) -> dict[str, Any]:
    """What the template shows of one model."""
    probabilities = inside.probabilities
    chosen = [] if probabilities is None else [c for c in classes if c < len(probabilities)]
    ranked = sorted(chosen, key=lambda c: -_at(probabilities, c))
    views = [
        _block(f"{key}b{n}", view, inside, chosen, pictures, spectra.get(name))
        for n, view in enumerate(inside.blocks)
    ]
    numbers = {view.block.name: n for n, view in enumerate(inside.blocks)}
    for context, view in zip(views, inside.blocks, strict=True):
        before = view.previous
        context["before"] = "" if before is None else f"{key}b{numbers[before.block.name]}"
    return {
        "name": name,
        "trained": inside.subject.trained,
        "classes": [
            {
                "name": inside.name_of(c),
                "p": _at(probabilities, c),
                "true": c == inside.target,
            }
            for c in ranked
        ],
        "order": [inside.name_of(c) for c in chosen],
        "predicted": inside.name_of(inside.top[0]) if inside.top else "",
        "blocks": views,
        "lens": lens_chart(inside, ranked[:_COLORS]),
        "most": _most_important(inside),
        "flips": list(_flip_cards(key, inside, pictures)),
        "scanned": bool(inside.flips.scanned) if inside.flips is not None else False,
        "cams": list(_cam_cards(key, inside, pictures)),
        "notes": inside.notes,
        "left_out": inside.left_out,
        "passes": round(inside.passes),
    }


def _at(values: np.ndarray | None, of_class: int) -> float:
    return float("nan") if values is None else float(values[of_class])


def _block(
    key: str,
    view: BlockView,
    inside: Inside,
    classes: Sequence[int],
    pictures: Pictures,
    study: Any,
) -> dict[str, Any]:
    """What the template shows of one block."""
    height, width = view.colors.shape[:2]
    for name in ("colors", "coarse", "fine"):
        colors = reduced(getattr(view, name))
        pictures.add(f"{key}-{name}", png(eight_bit(colors, 0, 1)))
    channels = []
    for number, map_ in view.channels.items():
        pictures.add(f"{key}-{number}", png(eight_bit(reduced(map_))))
        ends = f"{_short(map_.min())} to {_short(map_.max())}"
        channels.append({"number": number, "picture": f"{key}-{number}", "range": ends})
    similar = atlas(eight_bit(view.similar, -1, 1))
    pictures.add(f"{key}-similar", png(similar, SIGNED))
    attention = ""
    if view.attention is not None:
        maps = np.stack([reduced(m) for m in relative(view.attention)])
        attention = pictures.add(f"{key}-attention", png(eight_bit(atlas(maps), 0, 1), HEAT))
    change = view.change
    return {
        "key": key,
        "name": view.block.name,
        "kind": view.block.kind,
        "depth": view.block.depth,
        "stage": view.block.stage,
        "shape": f"{view.block.shape[0]} channels, {height}x{width}",
        "ratio": width / height,
        "channels": channels,
        "attention": attention,
        "attended": "" if view.attention is None else _short(view.attention.max()),
        "change": None if change is None else [f"{100 * c:+.0f}%" for c in change],
        "spectrum": spark(view, study),
        "without": None if view.without is None else [_at(view.without, c) for c in classes],
        "with": [_at(inside.probabilities, c) for c in classes],
    }


def _short(value: float) -> str:
    return f"{value:.2g}".replace("-", MINUS)


def _most_important(inside: Inside) -> dict[str, Any] | None:
    """The block without which the predicted class loses most probability."""
    tried = [view for view in inside.blocks if view.without is not None]
    if not tried or inside.probabilities is None:
        return None
    predicted = inside.top[0]
    least = min(tried, key=lambda view: _at(view.without, predicted))
    drop = _at(inside.probabilities, predicted) - _at(least.without, predicted)
    if drop <= 0:
        return None
    return {
        "name": least.block.name,
        "p": _at(inside.probabilities, predicted),
        "without": _at(least.without, predicted),
    }


def _flip_cards(key: str, inside: Inside, pictures: Pictures) -> Iterator[dict[str, Any]]:
    if inside.flips is None:
        return
    for n, image in enumerate(inside.flipped):
        picture = ""
        if image is not None:
            shown = image if len(image) == 3 else image[:1].expand(3, -1, -1)
            pixels = eight_bit(shown.permute(1, 2, 0).numpy(), 0, 1)
            picture = pictures.add(f"{key}f{n}", png(pixels))
        yield {
            "change": str(inside.flips.change[n]),
            "words": words_of(inside.flips, n),
            "picture": picture,
            "to": inside.name_of(int(inside.flips.predicted[n])) if picture else "",
            "p": float(inside.flips.confidence[n]),
        }


def _cam_cards(key: str, inside: Inside, pictures: Pictures) -> Iterator[dict[str, Any]]:
    for n, cam in enumerate(inside.cams):
        map_ = cam.map / max(cam.map.max(), np.finfo(float).tiny)
        yield {
            "name": inside.name_of(cam.of_class),
            "true": cam.of_class == inside.target,
            "block": cam.block,
            "picture": pictures.add(f"{key}c{n}", png(eight_bit(map_, 0, 1), HEAT)),
            "blank": not cam.map.any(),
            "scores": cam.scores,
        }


def _points(
    x: np.ndarray, y: np.ndarray, size: tuple[int, int], low: float, high: float
) -> str:
    width, height = (side - 2 * _EDGE for side in size)
    span = high - low if high > low else 1.0
    pairs = zip(x.tolist(), ((y - low) / span).tolist(), strict=True)
    return " ".join(
        f"{_EDGE + width * a:.1f},{_EDGE + height * (1 - b):.1f}"
        for a, b in pairs
        if np.isfinite(b)
    )


def spark(view: BlockView, study: Any = None) -> Markup:
    """The spectrum of a block as a line, with the previous block's and the study's."""
    lines: list[tuple[str, np.ndarray, np.ndarray]] = []
    if study is not None:
        rows = study.block == view.block.name
        lines.append(("of-study", study.frequency[rows], np.asarray(study.relative)[rows]))
    if view.previous is not None:
        lines.append(("before", view.previous.frequency, view.previous.spectrum))
    lines.append(("now", view.frequency, view.spectrum))
    values = np.concatenate([y for _, _, y in lines])
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return Markup("")
    low, high = float(values.min()), float(values.max())
    drawn = "".join(
        f'<polyline class="{kind}" points="{_points(x, y, _SPARK, low, high)}"/>'
        for kind, x, y in lines
    )
    label = f"spectrum of {view.block.name}: {_short(low)} to {_short(high)}"
    return Markup(
        f'<svg class="spark" viewBox="0 0 {_SPARK[0]} {_SPARK[1]}" role="img" '
        f'aria-label="{escape(label)}"><title>{escape(label)}</title>{drawn}</svg>'
    )


def lens_chart(inside: Inside, classes: Sequence[int]) -> Markup:
    """Probability of classes by the head on each block against depth; "" with one block."""
    views = [view for view in inside.blocks if view.lens is not None]
    if len(views) < 2:
        return Markup("")
    depth = np.array([view.block.depth for view in views])
    span = depth[-1] - depth[0]
    x = (depth - depth[0]) / (span if span > 0 else 1)
    lines = []
    for n, of_class in enumerate(classes):
        y: Float[np.ndarray, " n"] = np.array([_at(view.lens, of_class) for view in views])
        name = escape(inside.name_of(of_class))
        dots = "".join(
            f'<circle cx="{a}" cy="{b}" r="2.5"><title>{escape(view.block.name)}: {name} '
            f"{100 * p:.1f}%</title></circle>"
            for view, p, (a, b) in zip(
                views,
                y,
                (point.split(",") for point in _points(x, y, _CHART, 0, 1).split()),
                strict=True,
            )
        )
        line = f'<polyline points="{_points(x, y, _CHART, 0, 1)}"/>'
        lines.append(f'<g class="class c{n}" data-name="{name}">{line}{dots}</g>')
    first, last = views[0].block.name, views[-1].block.name
    label = f"probability by the logit lens from {first} to {last}"
    return Markup(
        f'<svg class="lens" viewBox="0 0 {_CHART[0]} {_CHART[1]}" role="img" '
        f'aria-label="{escape(label)}">{"".join(lines)}</svg>'
        f'<p class="ends faint"><span>{escape(first)}</span><span>{escape(last)}</span></p>'
    )
