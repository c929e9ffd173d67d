"""Glass blur: pixels get the colors of random neighbors, as seen through rippled glass.

The published code visits the pixels one by one, from the lower right to the upper left, and
gives each the colors of a random neighbor; it means to swap the two, but NumPy's views make it
a copy. A neighbor that was visited before already has the colors of its neighbor. So each pixel
points to an original pixel or to one that was visited before, and the chain of pointers ends.
Pointer doubling follows all chains of all images in a number of steps that is the logarithm of
the longest chain, with the same result.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.data.corruptions.filters import gaussian
from visprism.data.corruptions.randomness import Randomness
from visprism.data.corruptions.registry import CORRUPTIONS, in_unit
from visprism.data.corruptions.severities import severity_parameters

Images = Float[Tensor, "b 3 h w"]


@CORRUPTIONS.register
@in_unit
def glass_blur(images: Images, severity: int, randomness: Randomness) -> Images:
    """Pixels copied from near ones between two Gaussian blurs."""
    sigma, reach, repeats = severity_parameters("glass_blur", severity, images)
    height, width = images.shape[2:]
    blurred = gaussian(images, sigma).mul_(255).add_(1e-3).floor_().div_(255)
    source = torch.arange(height * width, device=images.device).expand(len(images), -1)
    for _ in range(repeats):
        moves = randomness.integers(-reach, reach, 2, height, width)
        source = source.gather(1, copied_from(moves, reach))
    flat = blurred.flatten(2)
    shuffled = flat.gather(2, source[:, None].expand_as(flat))
    return gaussian(shuffled.view_as(images), sigma)


def copied_from(moves: Int64[Tensor, "b 2 h w"], reach: int) -> Int64[Tensor, "b n"]:
    """The pixel whose colors each pixel has after one round.

    Args:
        moves: where the neighbor of each pixel lies, in rows and columns.
        reach: width of the border that is not visited: rows and columns from `reach` + 1 to the
            side less `reach` are visited, as in the published code.
    """
    _, _, height, width = moves.shape
    number = height * width
    place = torch.arange(number, device=moves.device)
    row, column = place // width, place % width
    inside = (row > reach) & (row <= height - reach) & (column > reach)
    inside &= column <= width - reach
    neighbor = place + (moves[:, 0] * width + moves[:, 1]).flatten(1)
    neighbor = torch.where(inside, neighbor, place)
    # Pixels are visited in reverse raster order.
    done = inside[neighbor] & (neighbor > place)
    source = torch.where(done, neighbor + number, neighbor)
    while True:
        further = source.gather(1, source % number)
        pending = source >= number
        if not pending.any():
            return source
        source = torch.where(pending, further, source)
