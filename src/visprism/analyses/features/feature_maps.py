"""Feature maps: the activations of single channels of one image, as the model computes them.

The channels with the largest variance over positions say most about where things are. Values
are neither scaled nor smoothed: a picture goes from the smallest to the largest value of its
channel, and both are stated.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from visprism import kit
from visprism.analyses.pictures import image_pictures, pictures_section
from visprism.anatomy.run.surgery import watch
from visprism.anatomy.trace.forward import forward
from visprism.drawing.color_bars import caption, picture
from visprism.kit.model_on_images import inputs_of
from visprism.passes.batches import blocks_on_grid, images_of
from visprism.passes.blocks import spread
from visprism.table.result import column as quantity

NUM_CHANNELS = 8
_GAP = 0.08  # between pictures, of the side of one


@kit.result("feature-maps", "Feature maps", table=False)
class ChannelMaps(kit.Valued, kit.PerBlock):
    """Activations of single channels; one row for each block, channel and position.

    Each picture is one channel of a block for the first image, black at its smallest and white
    at its largest value, which stand below it. Channels are those with the largest variance
    over positions, from left to right.
    """

    value_name = "activation"

    channel: np.ndarray = quantity("Channel", "", "number of the channel, from 0")
    row: np.ndarray = quantity("Row", "", "of the grid, from 0 at the top")
    column: np.ndarray = quantity("Column", "", "of the grid, from 0 at the left")
    activation: np.ndarray = quantity("Activation", "", "as the model computes it")

    def pictures(self) -> dict[tuple[str, int], Float[np.ndarray, "h w"]]:
        """The map of each channel, by block and channel, in the order of the rows."""
        keys = np.char.add(np.char.add(self.block, "\t"), self.channel.astype(str))
        names, first, number = np.unique(keys, return_index=True, return_counts=True)
        maps = {}
        for i in np.argsort(first):
            rows = slice(first[i], first[i] + number[i])
            shape = self.row[rows].max() + 1, self.column[rows].max() + 1
            block, channel = str(names[i]).split("\t")
            maps[block, int(channel)] = self.activation[rows].reshape(shape)
        return maps

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Range of activations of the first and the last block."""
        for name in dict.fromkeys(self.block[[0, -1]].tolist()):
            values = self.activation[self.block == name]
            yield f"activations of {name}: {values.min():.3g} to {values.max():.3g}"


@kit.analysis
class FeatureMaps(kit.Analysis):
    """Feature maps of the first image: single channels of each block."""

    name = "feature-maps"
    needs = kit.Needs.FEATURES
    images = kit.Sizes(quick=1, standard=1, full=1)
    passes = 1.2
    default = False
    source = "Zeiler & Fergus (2014), Visualizing and understanding convolutional networks"
    gives = (ChannelMaps, pictures_section("Image of the feature maps"))

    num_blocks: int = kit.option(6, "number of blocks, spread over the depth", minimum=1)
    num_channels: int = kit.option(
        NUM_CHANNELS, "number of channels, those with the largest variance", minimum=1
    )
    channels: tuple[int, ...] = kit.option(
        (), "numbers of channels, from 0, instead of those with the largest variance", minimum=0
    )

    def used(self) -> Mapping[str, tuple[object, str]]:
        """A number of channels has no effect where channels are named."""
        return {"num_channels": (not self.channels, "channels that are not named")}

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """The channels of the first image, by one forward pass."""
        anatomy = subject.anatomy
        images = images_of(inputs_of(subject.batches(1)[0]), anatomy, run.compute)
        blocks = spread(blocks_on_grid(anatomy), self.num_blocks)
        with (
            run.compute.borrow(anatomy.model),
            torch.no_grad(),
            watch(anatomy, blocks=blocks) as maps,
            run.compute.autocast(),
        ):
            forward(anatomy.model, images)
        chosen = self.channels or self.num_channels
        channels = channel_maps({b: maps[b.name][0] for b in blocks}, chosen)
        origin = run.measured(images=1, batch_size=1, image_shape=anatomy.image_shape)
        return channels.measured(origin), *image_pictures(subject, 1, origin)


def channel_maps(
    maps: Mapping[kit.Block, Float[Tensor, "c h w"]], channels: int | Sequence[int]
) -> ChannelMaps:
    """Channels of the feature maps of one image, by block.

    Args:
        maps: of one image.
        channels: numbers of channels, or how many of those with the largest variance over
            positions; equal ones in the order of their numbers.
    """
    rows: list[kit.Block] = []
    columns: dict[str, list[np.ndarray]] = {
        name: [] for name in ("channel", "row", "column", "activation")
    }
    for block, x in maps.items():
        if isinstance(channels, int):
            variance = x.double().flatten(1).var(1, correction=0)
            chosen = variance.argsort(descending=True, stable=True)[:channels]
        elif max(channels) < len(x):
            chosen = torch.tensor(channels)
        else:
            raise kit.InputError(
                f"channels must be below {len(x)}, the number of channels of {block.name!r}, "
                f"got {max(channels)}"
            )
        values = x[chosen.to(x.device)].cpu().double().numpy()
        number, row, column = np.indices(values.shape).reshape(3, -1)
        rows += [block] * values.size
        columns["channel"].append(chosen.cpu().numpy()[number])
        columns["row"].append(row)
        columns["column"].append(column)
        columns["activation"].append(values.ravel())
    values_of: dict[str, Any] = {k: np.concatenate(v) for k, v in columns.items()}
    return ChannelMaps(**kit.block_columns(rows), **values_of)


@kit.figure(width=6.0, height=4.6, across=1, share=False)
def _(result: ChannelMaps, ax: Axes) -> Axes:
    """Blocks from top to bottom, their channels from left to right; the range below each."""
    step, place = 1 + _GAP, dict[str, int]()
    blocks = list(dict.fromkeys(result.block.tolist()))
    for (block, channel), values in result.pictures().items():
        number = place[block] = place.get(block, -1) + 1
        left, top = number * step, blocks.index(block) * (step + 0.3)
        about = f"{block} · channel {channel}"
        picture(ax, values, left, top, about=about, cmap="gray")
        text = f"{channel}: {values.min():.2g} to {values.max():.2g}"
        caption(ax, text, (left + 0.5, top + 1), fontsize=4)
        if not number:
            ax.text(-0.1, top + 0.5, block, ha="right", va="center", fontsize=5)
    ax.set(xlim=(0, max(place.values()) * step + 1), ylim=(len(blocks) * (step + 0.3), 0))
    ax.set_aspect("equal")
    ax.axis("off")
    return ax
