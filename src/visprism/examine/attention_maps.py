"""Attention maps of a few images, as figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from matplotlib.figure import Figure
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.examine.inquiry import Inquiry
from visprism.examine.materials import Materials
from visprism.figures import save_figure
from visprism.figures.attention_maps import over_image
from visprism.measure.features import (
    AttentionMaps,
    Query,
    Rollout,
    attention_maps,
    rollout,
)
from visprism.report.examination import slug


@dataclass(frozen=True)
class Mapped:
    """The attention maps of one image, and their figure."""

    stem: str  # of its files
    maps: AttentionMaps
    figure: Figure


def attention_maps_of(
    materials: Sequence[Materials], inquiry: Inquiry, *, query: Query, images: int
) -> list[Mapped]:
    """Maps of the first images for each model.

    Raises:
        InputError: if a model has no attention, or no such query.
    """
    found = []
    for each in materials:
        name = each.model.name
        with inquiry.compute.borrow(each.anatomy.model):
            for number, (image, maps, flow) in enumerate(_maps(each, inquiry, query, images)):
                picture = _picture(image, each.preprocessing)
                figure = over_image(maps.with_provenance(model=name), picture, rollout=flow)
                stem = f"attention-maps-{slug(each.model.label)}-{number + 1}"
                found.append(Mapped(stem, maps.with_provenance(model=name), figure))
    return found


def write_attention_maps(found: Sequence[Mapped], folder: Path) -> None:
    """Maps as ``figures/attention-maps-<model>-<number>`` and ``results/<the same>.npz``."""
    for each in found:
        save_figure(each.figure, folder / "figures" / each.stem)
        each.maps.save(folder / "results" / f"{each.stem}.npz")


def _maps(
    materials: Materials, inquiry: Inquiry, query: Query, images: int
) -> Iterator[tuple[Tensor, AttentionMaps, Rollout | None]]:
    for image, _ in materials.batches(1)[:images]:
        here = image.to(inquiry.compute.torch_device)
        maps = attention_maps(materials.anatomy, here, query=query)
        yield image[0], maps, _rollout(materials, here)


def _rollout(materials: Materials, image: Tensor) -> Rollout | None:
    """The rollout by gradient; None for a model whose tokens change on the way."""
    try:
        return rollout(materials.anatomy, image, gradient=True)
    except InputError:
        return None


def _picture(
    image: Float[Tensor, "3 h w"], preprocessing: Preprocessing
) -> UInt8[np.ndarray, "h w 3"]:
    """The image as it was before it was standardised."""
    mean, std = (
        torch.tensor(v)[:, None, None] for v in (preprocessing.mean, preprocessing.std)
    )
    pixels = (255 * (image * std + mean)).round().clamp(0, 255)
    return pixels.byte().permute(1, 2, 0).numpy()
