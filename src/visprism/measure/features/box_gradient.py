"""Gradients that are zero outside of a box, and the backward operations that keep the box.

The gradient of one position of a feature map is zero nearly everywhere in the layers just
before it. A `BoxGradient` holds the values inside of a box alone. Autograd passes it from
operation to operation as any gradient; those of `box_rules` compute what is inside of the box
of their result, so that zeros cost nothing. Other operations that are linear have the full
tensor. Any other, such as a user's clipping of gradients, is refused: it could tell the
gradient from a multiple of it.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_any, tree_leaves, tree_map, tree_map_only

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}  # of aten operations; each may return NotImplemented

# Names of operations that are linear in a gradient, with any other factor; in all gradients
# together; and of autograd, which are linear in the one that they are given.
_PRODUCTS = frozenset({"bmm", "convolution", "div", "mm", "mul"})
# fmt: off
_SUMS = frozenset({
    "add", "as_strided", "cat", "clone", "col2im", "constant_pad_nd", "cumsum", "diagonal",
    "expand", "flip", "gather", "im2col", "index", "index_add", "index_put", "index_select",
    "masked_fill", "mean", "narrow", "neg", "new_zeros", "permute", "pixel_shuffle",
    "pixel_unshuffle", "repeat", "reshape", "roll", "scatter", "scatter_add", "select",
    "slice", "split", "split_with_sizes", "squeeze", "stack", "sub", "sum", "t",
    "transpose", "tril", "triu", "unbind", "unfold", "unsqueeze", "view", "where",
    "zeros_like", "_reshape_alias", "_to_copy", "_unsafe_index_put", "_unsafe_view",
})
# fmt: on
_OF_AUTOGRAD = ("_backward", "_backward_data")


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


def _on_full_tensors(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operation that has no rule for boxes.

    Raises:
        NotImplementedError: if it changes a gradient in place, is not known to be linear, or
            makes complex numbers of gradients.
    """
    if func._schema.is_mutable and tree_any(_is_box, _mutated(func, args, kwargs)):
        raise NotImplementedError(f"{func} changes a gradient in place")
    if not _is_linear(func, args, kwargs):
        raise NotImplementedError(f"{func} is not known to be linear in the gradients")
    args, kwargs = tree_map_only(BoxGradient, BoxGradient.dense, (args, kwargs))
    out = func(*args, **kwargs)
    if func._schema.is_mutable:
        return out

    def boxed(x: Any) -> Any:
        if not isinstance(x, Tensor) or not (x.is_floating_point() or x.is_complex()):
            return x
        if x.is_complex():
            raise NotImplementedError(f"{func} makes complex numbers of gradients")
        return BoxGradient(x, [0] * x.ndim, x.shape)

    return tree_map(boxed, out)


def _is_linear(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a multiple of the gradients is known to give that multiple of the result."""
    name = func.overloadpacket.__name__
    given = tree_leaves((args, kwargs))
    gradients = sum(map(_is_box, given))
    if name in _PRODUCTS:
        rounds = kwargs.get("rounding_mode") is not None
        return gradients == 1 and not rounds and (name != "div" or _is_box(args[0]))
    if name.endswith(_OF_AUTOGRAD):
        return gradients == 1
    constants = [x for x in given if isinstance(x, Tensor) and x.is_floating_point()]
    constants += _arguments(func, args, kwargs, lambda a: a.name in {"other", "value"})
    constants = [torch.as_tensor(x) for x in constants if not _is_box(x)]  # integers are places
    return name in _SUMS and not any(bool(x.any()) for x in constants)


def _is_box(x: object) -> bool:
    return isinstance(x, BoxGradient)


def _mutated(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that an operation changes."""
    return _arguments(
        func, args, kwargs, lambda a: a.alias_info is not None and a.alias_info.is_write
    )


def _arguments(
    func: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    condition: Callable[[Any], bool],
) -> list[Any]:
    """The values given for those arguments of the schema that meet the condition."""
    given = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
    return [given[a.name] for a in func._schema.arguments if a.name in given and condition(a)]
