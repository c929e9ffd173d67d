"""Convolution and pooling of gradients that are zero outside of a box; see `box_gradient`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from visprism.measure.features.box_gradient import BoxGradient
from visprism.measure.features.box_rules import cut, of_input_alone, rule

__all__ = ["BoxGradient"]  # with all rules

_aten = torch.ops.aten


@rule(_aten.convolution_backward.default)
def _convolution_backward(
    func: Any,
    g: Any,
    x: Tensor,
    weight: Tensor,
    _bias: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> Any:
    if transposed or not of_input_alone(mask) or not isinstance(g, BoxGradient):
        return NotImplemented
    g = g.settled()
    if g.ndim != 4 or g.inside.shape[1] != g.full_shape[1]:
        return NotImplemented
    kernel = weight.shape[2:]
    spans = [
        _span(g, i, kernel[i], stride[i], padding[i], dilation[i], x.shape[2 + i])
        for i in range(2)
    ]
    margins = [span.margin for span in spans]
    shape = (g.inside.shape[0], x.shape[1], *(span.length - 2 * span.margin for span in spans))
    plain = groups == 1 and not any(margins)
    if plain and tuple(kernel) == (1, 1):
        values = _mixed_channels(g.inside, weight, shape, stride)
    elif plain and list(kernel) == list(stride) and set(dilation) == {1}:
        values = _patches(g.inside, weight)
    else:
        options = stride, margins, dilation, False, [0, 0], groups, list(mask)
        values = func(g.inside, g.inside.new_empty(shape), weight, None, *options)[0]
    (top, rows), (left, columns) = ((span.start, span.within) for span in spans)
    return (
        BoxGradient(values[:, :, rows, columns], (g.start[0], 0, top, left), x.shape),
        None,
        None,
    )


def _mixed_channels(
    g: Tensor, weight: Tensor, shape: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """Gradient behind a convolution with a kernel of 1x1."""
    matrix = weight[:, :, 0, 0].t()
    values = (matrix @ g.flatten(2)).view(len(g), -1, *g.shape[2:])
    if values.shape == shape:
        return values
    full = values.new_zeros(shape)
    full[:, :, :: stride[0], :: stride[1]] = values
    return full


def _patches(g: Tensor, weight: Tensor) -> Tensor:
    """Gradient behind a convolution whose kernels do not overlap."""
    (number, _, rows, columns), (_, channels, height, width) = g.shape, weight.shape
    values = g.permute(0, 2, 3, 1).flatten(0, 2) @ weight.flatten(1)
    values = values.view(number, rows, columns, channels, height, width)
    return values.permute(0, 3, 1, 4, 2, 5).reshape(
        number, channels, rows * height, columns * width
    )


class _Span(NamedTuple):
    """What a box of a layer's output depends on, along one axis of its input."""

    start: int  # first index in the input
    length: int  # of what kernels reach, with what is beyond the ends of the input
    margin: int  # beyond both ends
    within: slice  # what is within the input, counted behind the first margin


def _span(
    g: BoxGradient, axis: int, kernel: int, stride: int, padding: int, dilation: int, size: int
) -> _Span:
    first = g.start[2 + axis] * stride - padding
    length = (g.inside.shape[2 + axis] - 1) * stride + dilation * (kernel - 1) + 1
    low, high = max(0, -first), max(0, first + length - size)
    if max(low, high) >= length:
        raise NotImplementedError("all that the gradient belongs to is padding")
    margin = min(low, high)
    return _Span(first + low, length, margin, slice(low - margin, length - margin - high))


@rule(_aten.max_pool2d_with_indices_backward.default)
def _max_pool_backward(
    _: Any,
    g: BoxGradient,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    _ceil: bool,
    indices: Tensor,
) -> Any:
    if not isinstance(g, BoxGradient) or isinstance(indices, BoxGradient) or g.ndim != 4:
        return NotImplemented
    g = g.settled()
    spans = [
        _span(g, i, kernel[i], (stride or kernel)[i], padding[i], dilation[i], x.shape[2 + i])
        for i in range(2)
    ]
    (top, height), (left, width) = (
        (span.start, span.within.stop - span.within.start) for span in spans
    )
    indices = cut(indices, g)
    row, column = indices // x.shape[3] - top, indices % x.shape[3] - left
    values = g.inside.new_zeros(*g.inside.shape[:2], height * width)
    values.scatter_add_(2, (row * width + column).flatten(2), g.inside.flatten(2))
    start = (*g.start[:2], top, left)
    return BoxGradient(values.view(*values.shape[:2], height, width), start, x.shape)
