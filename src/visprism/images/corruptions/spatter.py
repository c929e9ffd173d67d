"""Spatter: drops of water or mud on the lens."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from visprism.images.corruptions.corrupt import Images, Randomness, corruption
from visprism.images.corruptions.filters import gaussian

Layer = Float[Tensor, "b h w"]  # eight-bit numbers, 0 to 255, where nothing else is said

_WATER = (175 / 255, 238 / 255, 238 / 255)  # pale turquoise
_MUD = (63 / 255, 42 / 255, 20 / 255)
_FARTHEST = 20  # pixels: what is farther from an edge counts as so far
_WEAK, _STRONG = 50, 150  # gradients of an edge


@corruption
def spatter(images: Images, parameters: Sequence, randomness: Randomness) -> Images:
    """Drops where smooth noise is high: with refracting edges for water, opaque for mud."""
    mean, deviation, sigma, threshold, strength, liquid = parameters
    layer = gaussian(deviation * randomness.normal(*images.shape[2:]) + mean, sigma)
    layer = torch.where(layer < threshold, 0.0, layer)
    if liquid == "mud":
        covered = gaussian((layer > threshold).float(), strength)
        covered = torch.where(covered < 0.8, 0.0, covered)[:, None]
        return images * (1 - covered) + covered * _color(_MUD, images)
    drops = (layer * 255).clamp_(0, 255).floor_()
    film = drops * relief(drops)
    # An image without a drop has nothing to divide by.
    film = strength * film / film.amax((1, 2), keepdim=True).clamp(min=1)
    return images + film[:, None] * _color(_WATER, images)


def relief(drops: Layer) -> Layer:
    """How bright the light makes each place: by the distance to the edge of a drop, lit aslant.

    Source: the published code, which does each of these steps in OpenCV.
    """
    even = equalised(_box(distances(edges(drops))).floor())
    wide, (height, width) = _mirrored(even)[:, 0], even.shape[1:]
    lit = even.clone()
    for row, column, weight in (
        (0, 0, -2),
        (0, 1, -1),
        (1, 0, -1),
        (1, 2, 1),
        (2, 1, 1),
        (2, 2, 2),
    ):
        lit.add_(wide[:, row : row + height, column : column + width], alpha=weight)
    return _box(lit.clamp_(0, 255)).round()


def edges(drops: Layer) -> Bool[Tensor, "b h w"]:
    """Canny's edges: ridges of the gradient above 150, and those above 50 that join them.

    Source: Canny (1986), A computational approach to edge detection; the sum of absolute
    derivatives as the gradient's size, and the four sectors, as in OpenCV.
    """
    wide = pad(drops[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    smooth = wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]
    across = smooth[..., 2:] - smooth[..., :-2]
    smooth = wide[..., :-2] + 2 * wide[..., 1:-1] + wide[..., 2:]
    down = smooth[:, 2:] - smooth[:, :-2]
    size = across.abs() + down.abs()
    near = pad(size, (1, 1, 1, 1))
    height, width = size.shape[1:]

    def shifted(dy: int, dx: int) -> Tensor:
        return near[:, 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    level = down.abs() < 0.41421356 * across.abs()
    upright = down.abs() > 2.41421356 * across.abs()
    falls = across * down < 0  # to the upper right
    ridge = torch.where(
        level,
        (size > shifted(0, -1)) & (size >= shifted(0, 1)),
        torch.where(
            upright,
            (size > shifted(-1, 0)) & (size >= shifted(1, 0)),
            torch.where(
                falls,
                (size > shifted(-1, 1)) & (size > shifted(1, -1)),
                (size > shifted(-1, -1)) & (size > shifted(1, 1)),
            ),
        ),
    )
    weak, strong = ridge & (size > _WEAK), ridge & (size > _STRONG)
    while True:
        grown = _grown(_grown(strong, 1), 2) & weak
        if torch.equal(grown, strong):
            return strong
        strong = grown


def _grown(marked: Bool[Tensor, "b h w"], axis: int) -> Bool[Tensor, "b h w"]:
    """Marked places and their two neighbors along an axis."""
    grown, last = marked.clone(), marked.shape[axis] - 1
    grown.narrow(axis, 1, last).logical_or_(marked.narrow(axis, 0, last))
    grown.narrow(axis, 0, last).logical_or_(marked.narrow(axis, 1, last))
    return grown


def distances(near: Bool[Tensor, "b h w"]) -> Layer:
    """Distance of each pixel to the nearest marked one; 20 where it is farther.

    Source: Felzenszwalb and Huttenlocher (2012), Distance transforms of sampled functions:
    along columns first, then the squares along rows.
    """
    far = _FARTHEST + 1
    down = torch.where(near, 0, far).short()
    for step in (1, 2, 4, 8, 16):  # any distance up to 31 is a sum of these
        down[:, step:] = torch.minimum(down[:, step:], down[:, :-step] + step)
        down[:, :-step] = torch.minimum(down[:, :-step], down[:, step:] + step)
    squares = down * down
    wide = pad(squares, (far, far), value=far * far)
    best, width = squares.clone(), near.shape[2]
    for step in range(1, far):
        left, right = (wide[..., far + d : far + d + width] for d in (-step, step))
        nearer = torch.minimum(left, right).add_(step * step)
        torch.minimum(best, nearer, out=best)
    return best.float().sqrt_().clamp_(max=_FARTHEST)


def equalised(layer: Layer) -> Layer:
    """Histogram equalisation: values by their rank, so that all become about equally frequent.

    The lowest value becomes 0 and the highest 255; a layer of one value stays as it is.
    """
    values = layer.long().flatten(1)
    counts = torch.zeros(len(values), 256, device=layer.device)
    counts.scatter_add_(1, values, torch.ones_like(values, dtype=torch.float32))
    lowest = counts.gather(1, values.amin(1, keepdim=True))
    total = float(values.shape[1])
    ranks = (counts.cumsum(1) - lowest).clamp(min=0) * (255 / (total - lowest).clamp(min=1))
    mapped = ranks.round().gather(1, values).view_as(layer)
    return torch.where((lowest == total)[..., None], layer, mapped)


def _box(layer: Layer) -> Layer:
    """Mean of 3x3 pixels."""
    wide = _mirrored(layer)[:, 0]
    rows = wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]
    return (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]).div_(9)


def _mirrored(layer: Layer) -> Float[Tensor, "b 1 _ _"]:
    return pad(layer[:, None], (1, 1, 1, 1), mode="reflect")


def _color(color: tuple[float | int, ...], images: Images) -> Float[Tensor, "3 1 1"]:
    return torch.tensor(color, device=images.device)[:, None, None]
