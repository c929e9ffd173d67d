"""Gradients that are zero outside of a box, and the backward operations that keep the box.

The gradient of one position of a feature map is zero nearly everywhere in the layers just
before it. A `BoxGradient` holds the values inside of a box alone. Autograd passes it from
operation to operation as any gradient; those of `box_rules` compute what is inside of the box
of their result, so that zeros cost nothing. Any other operation has the full tensor, so that
results are those of ordinary tensors up to rounding for every model.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_any, tree_map, tree_map_only

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}  # of aten operations; each may return NotImplemented


class BoxGradient(Tensor):
    """A gradient of shape `full_shape`, zero outside of a box, as seen after a view.

    `full_shape` and `shape` hold the same numbers in the same order. They differ while the box
    is none in `shape`, as where rows and columns are merged before a linear map.
    """

    inside: Tensor  # values in the box
    start: tuple[int, ...]  # the box's first index along each axis of `full_shape`
    full_shape: tuple[int, ...]

    @staticmethod
    def __new__(  # noqa: D102
        cls: type["BoxGradient"],
        values: Tensor,
        start: Sequence[int],
        full_shape: Sequence[int],
        shape: Sequence[int] | None = None,
    ) -> "BoxGradient":
        self = Tensor._make_wrapper_subclass(
            cls,
            tuple(full_shape if shape is None else shape),
            dtype=values.dtype,
            device=values.device,
        )
        self.inside, self.start, self.full_shape = values, tuple(start), tuple(full_shape)
        return self

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN206  # pyrefly: ignore
        if rule := RULES.get(func):
            result = rule(func, *args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return _on_full_tensors(func, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyrefly: ignore

    @property
    def is_full(self) -> bool:
        """Whether the box is the whole tensor."""
        return self.inside.shape == self.full_shape

    def box(self) -> tuple[slice, ...]:
        """The box as an index of a tensor of shape `full_shape`."""
        return tuple(
            slice(a, a + n) for a, n in zip(self.start, self.inside.shape, strict=True)
        )

    def dense(self) -> Tensor:
        """The gradient as an ordinary tensor."""
        if self.is_full:
            return self.inside.reshape(self.shape)
        full = self.inside.new_zeros(self.full_shape)
        full[self.box()] = self.inside
        return full.view(self.shape)

    def viewed(self, shape: Sequence[int]) -> "BoxGradient":
        """The gradient in another shape: at once where the box is a box there, else later."""
        shape = tuple(shape)
        box = _box_after_view(self.start, self.inside.shape, self.full_shape, shape)
        if box is None:
            return BoxGradient(self.inside, self.start, self.full_shape, shape)
        start, extent = box
        return BoxGradient(self.inside.reshape(extent), start, shape)

    def settled(self) -> "BoxGradient":
        """The gradient with ``full_shape == shape``; full where its box is none there."""
        if self.full_shape == self.shape:
            return self
        return BoxGradient(self.dense(), [0] * self.ndim, self.shape)


def _box_after_view(
    start: Sequence[int], extent: Sequence[int], size: Sequence[int], shape: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """First index and extent of a box after a view to `shape`; None if it is none there."""
    if size == shape:
        return list(start), list(extent)
    if 0 in size or tuple(extent) == tuple(size):
        return [0] * len(shape), list(shape)
    new_start: list[int] = []
    new_extent: list[int] = []
    for old, new in _groups(size, shape):
        part = slice(*old)
        run = _run_of_box(start[part], extent[part], size[part])
        box = run and _box_of_run(*run, shape[slice(*new)])
        if not box:
            return None
        new_start += box[0]
        new_extent += box[1]
    return new_start, new_extent


def _groups(
    size: Sequence[int], shape: Sequence[int]
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Ranges of axes of both that hold the same number of values, as short as they can be."""
    ends = [
        {p: i for i, p in enumerate(accumulate(s, int.__mul__, initial=1))}
        for s in (size, shape)
    ]
    common = sorted(ends[0].keys() & ends[1].keys())
    old, new = ([end[p] for p in common] for end in ends)  # behind axes of one value
    old, new = [0, *old[1:]], [0, *new[1:]]
    if len(common) == 1:  # one value
        old, new = [0, len(size)], [0, len(shape)]
    return [((old[i], old[i + 1]), (new[i], new[i + 1])) for i in range(len(old) - 1)]


def _run_of_box(
    start: Sequence[int], extent: Sequence[int], size: Sequence[int]
) -> tuple[int, int] | None:
    """First place and length of the run of values that a box is; None if it is none."""
    partial = [i for i, (n, s) in enumerate(zip(extent, size, strict=True)) if n != s]
    if partial and any(n != 1 for n in extent[: partial[-1]]):
        return None
    first = 0
    for at, s in zip(start, size, strict=True):
        first = first * s + at
    return first, prod(extent)


def _box_of_run(
    first: int, length: int, size: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """The box that a run of values is in a tensor; None if it is none."""
    start: list[int] = []
    extent: list[int] = []
    for s in reversed(size):
        if first % s == 0 and length % s == 0:
            at, n = 0, s
        elif first % s + length <= s:
            at, n = first % s, length
        else:
            return None
        start.append(at)
        extent.append(n)
        first, length = first // s, max(1, length // n)
    return start[::-1], extent[::-1]


def _on_full_tensors(func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """The result of an operation that has no rule for boxes.

    Raises:
        NotImplementedError: if it changes a gradient in place.
    """
    if func._schema.is_mutable and tree_any(_is_box, _mutated(func, args, kwargs)):
        raise NotImplementedError(f"{func} changes a gradient in place")
    args, kwargs = tree_map_only(BoxGradient, BoxGradient.dense, (args, kwargs))
    out = func(*args, **kwargs)
    if func._schema.is_mutable:
        return out

    def boxed(x: Any) -> Any:  # noqa: ANN401
        if not isinstance(x, Tensor) or not x.is_floating_point():
            return x
        return BoxGradient(x, [0] * x.ndim, x.shape)

    return tree_map(boxed, out)


def _is_box(x: object) -> bool:
    return isinstance(x, BoxGradient)


def _mutated(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:  # noqa: ANN401
    """The arguments that an operation changes."""
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    return [
        given[a.name]
        for a in func._schema.arguments
        if a.name in given and a.alias_info is not None and a.alias_info.is_write
    ]
