"""What loggers show of a study that a monitor has made: numbers, values by block, figures."""

import re
from io import BytesIO

import numpy as np
from PIL import Image

from visprism.analyses.base import ANALYSES
from visprism.drawing.panel import panel
from visprism.drawing.save import render_figure
from visprism.study.study import Study
from visprism.table.kinds import TO_LOWEST, TO_MEAN
from visprism.table.shapes import ScalarPerBlock

_HIGH_FREQUENCY = {TO_MEAN.id: "high_frequency", TO_LOWEST.id: "high_frequency_to_lowest"}


def scalars_of(study: Study) -> dict[str, float]:
    """The numbers of a study of one model under names that sort: analysis, part, quantity.

    For example ``visprism/fourier/attention/high_frequency``.
    """
    numbers = {}
    for entry in study.entries:
        for identifier, value in (n for r in entry.results for n in r.scalars().items()):
            _, quantity, *part = re.split("[:.]", identifier)
            quantity = _HIGH_FREQUENCY.get(quantity, quantity).replace("-", "_")
            numbers["/".join(["visprism", entry.analysis, *part, quantity])] = value
    return numbers


def arrays_of(study: Study) -> dict[str, np.ndarray]:
    """What loggers show of a study of one model in addition to its numbers.

    The values of all blocks, for a histogram, such as
    ``visprism/fourier/blocks/high_frequency``; and the main figure of each analysis as a
    picture, (height, width, 3) in 0 to 255, such as ``visprism/fourier/figure``.
    """
    arrays: dict[str, np.ndarray] = {}
    for entry in study.entries:
        name, by_type = f"visprism/{entry.analysis}", {type(r): r for r in entry.results}
        for result in entry.results:
            if isinstance(result, ScalarPerBlock) and np.isfinite(result.values).any():
                values = result.values[np.isfinite(result.values)]
                arrays[f"{name}/blocks/{result.identifier.replace('-', '_')}"] = values
        for section in ANALYSES[entry.analysis].sections:
            main = next(iter(section.figures.values()), {})
            result = by_type.get(section.result)
            if result is not None and section.figures and result.has_figure(**main):
                figure = panel({entry.models[0]: result}, **main)
                with Image.open(BytesIO(render_figure(figure, "png"))) as picture:
                    arrays[f"{name}/figure"] = np.asarray(picture.convert("RGB"))
                break
    return arrays
