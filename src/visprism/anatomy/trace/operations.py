"""Operations: the role of a torch function, derived from its call.

Operations with weights or that move information over the grid start a block (``WORK``); others
belong to the operation before them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from torch import Tensor

from visprism.anatomy.trace import torch_functions as vocabulary

Role = Literal[
    "conv",  # a spatial kernel larger than 1
    "linear",  # a linear map of the channels of one position
    "token-mixing",  # a linear map, or recurrence, over positions
    "attention",  # a whole attention in one call
    "bilinear",  # a product of two tensors that both depend on the image
    "pool",  # a window larger than 1
    "global pool",  # to a fixed number of positions
    "opaque",  # a module whose inside torch functions do not show
    "softmax",
    "activation",
    "norm",
    "layout",  # the same numbers in another shape or order
    "merge",  # a sum or concatenation of tensors that depend on the image
    "pointwise",
]
WORK = frozenset({"conv", "linear", "token-mixing", "attention", "bilinear", "pool", "opaque"})


def plain(name: str) -> str:
    """The function's name without the mark of its in-place form: ``add_`` and ``__iadd__``."""
    if name.startswith("__i") and name.endswith("__"):
        outer = f"__{name[3:]}"
        if outer in {"__add__", "__sub__", "__mul__", "__truediv__", "__matmul__"}:
            return outer
    return name.removesuffix("_") if not name.endswith("__") else name


def function_name(function: Callable[..., Any]) -> str:
    """The name of a torch function; of a property such as `Tensor.mT`, that of the property."""
    name = getattr(function, "__name__", type(function).__name__)
    if name == "__get__":
        name = getattr(getattr(function, "__self__", None), "__name__", name)
    return plain(name)


@dataclass(frozen=True)
class Call:
    """One call of a torch function."""

    function: Callable[..., Any]
    name: str  # without the mark of its in-place form
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    made: Sequence[Tensor]  # what it gives
    data_inputs: int  # number of nodes that made its operands

    @cached_property
    def operands(self) -> list[Tensor]:
        """All tensors that go in."""
        return tensors_in([self.args, self.kwargs])

    @cached_property
    def role(self) -> Role:
        """Its role: what it does to a feature map."""
        return _role_of(self)


def _role_of(call: Call) -> Role:
    name = call.name
    if name in vocabulary.ATTENTIONS:
        return "attention"
    if name in vocabulary.PRODUCTS:
        return "bilinear" if call.data_inputs > 1 else "linear"
    if name in vocabulary.CONVOLUTIONS:
        return "conv" if _slides(call) else "linear"
    if name in {"linear", "bilinear"}:
        return "linear"
    if name in vocabulary.POOLS:
        return "pool" if _window(call) > 1 else "layout"
    if name.startswith("adaptive_"):
        return "global pool"
    if name in vocabulary.RECURRENCES | vocabulary.TRANSFORMS:
        return "token-mixing"
    if name in vocabulary.SOFTMAXES:
        return "softmax"
    if name in vocabulary.ACTIVATIONS:
        return "activation"
    if name in vocabulary.NORMS:
        return "norm"
    if call.data_inputs > 1 and name in vocabulary.SUMS | vocabulary.JOINS:
        return "merge"
    if name in vocabulary.LAYOUTS:
        return "layout"
    return "pointwise"


def _slides(call: Call) -> bool:
    """Whether a convolution has a window larger than 1 that slides."""
    weight = call.args[1] if len(call.args) > 1 else call.kwargs["weight"]
    kernel = weight.shape[2:]
    # The whole feature map at once, as VGG's first fully connected layer, is a linear map.
    covers_map = call.operands[0].shape[2:] == kernel and all(
        n == 1 for n in call.made[0].shape[2:]
    )
    return not covers_map and any(k > 1 for k in kernel)


def _window(call: Call) -> int:
    """The longest side of a pooling window."""
    size = call.kwargs.get("kernel_size", call.args[1] if len(call.args) > 1 else 1)
    return max(size) if isinstance(size, Sequence) else int(size)


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in a nesting of sequences and mappings, in order."""
    tensors, left = [], [value]
    while left:
        part = left.pop()
        if isinstance(part, Tensor):
            tensors.append(part)
        elif isinstance(part, Mapping):
            left.extend(reversed(list(part.values())))
        elif isinstance(part, tuple | list):
            left.extend(reversed(part))
    return tensors
