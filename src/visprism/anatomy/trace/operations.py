"""Operations: the role of a torch function, derived from its call.

Operations with weights or that move information over the grid start a block (``WORK``); others
belong to the operation before them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from torch import Tensor

Role = Literal[
    "conv",  # a spatial kernel larger than 1
    "linear",  # a linear map of the channels of one position
    "token-mixing",  # a linear map, or recurrence, over positions
    "attention",  # a whole attention in one call
    "bilinear",  # a product of two tensors that both depend on the image
    "resize",  # to a finer or coarser grid
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
WORK = frozenset(
    {"conv", "linear", "token-mixing", "attention", "bilinear", "pool", "opaque", "resize"}
)


def plain(name: str) -> str:
    """The function's name without the mark of its in-place form: ``add_`` and ``__iadd__``."""
    if name.startswith("__i") and name.endswith("__"):
        outer = f"__{name[3:]}"
        if outer in {"__add__", "__sub__", "__mul__", "__truediv__", "__matmul__"}:
            return outer
    return name.removesuffix("_") if not name.endswith("__") else name


def function_name(function: Callable[..., Any]) -> str:
    """The name of a torch function, or of a property such as `Tensor.mT`."""
    name = getattr(function, "__name__", type(function).__name__)
    if name == "__get__":
        name = getattr(getattr(function, "__self__", None), "__name__", name)
    return plain(name)


def in_place(function: Callable[..., Any]) -> bool:
    """Whether a torch function changes its first operand."""
    name = getattr(function, "__name__", "")
    return name == "__setitem__" or plain(name) != name


@dataclass
class Operation:
    """One numbered call of a torch function."""

    number: int
    function: Callable[..., Any]
    name: str  # without the mark of its in-place form
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    out: Any  # what it returned
    data_inputs: int = 0  # number of nodes of a graph that made its operands
    data_operands: int = 0  # and of operands that they made

    @cached_property
    def operands(self) -> list[Tensor]:
        """All tensors that go in."""
        return tensors_in([self.args, self.kwargs])

    @cached_property
    def made(self) -> list[Tensor]:
        """The tensors that it returned or assigned to."""
        return [self.args[0]] if self.name == "__setitem__" else tensors_in(self.out)

    @cached_property
    def role(self) -> Role:
        """Its role: what it does to a feature map."""
        return _role_of(self)


def _role_of(call: Operation) -> Role:
    name = call.name
    if name in ATTENTIONS:
        return "attention"
    if name in PRODUCTS:
        return "bilinear" if call.data_operands > 1 else "linear"
    if name in CONVOLUTIONS:
        return "conv" if _slides(call) else "linear"
    if name in {"linear", "bilinear"}:
        return "linear"
    if name in POOLS:
        return "pool" if _window(call) > 1 else "layout"
    if name in RESIZES and call.operands[0].shape != call.made[0].shape:
        return "resize"
    if name.startswith("adaptive_"):
        return "global pool"
    if name in RECURRENCES | TRANSFORMS:
        return "token-mixing"
    if name in SOFTMAXES:
        return "softmax"
    if name in ACTIVATIONS:
        return "activation"
    if name in NORMS:
        return "norm"
    if call.data_inputs > 1 and name in SUMS | JOINS:
        return "merge"
    if name in LAYOUTS:
        return "layout"
    return "pointwise"


def _slides(call: Operation) -> bool:
    """Whether a convolution has a window larger than 1 that slides."""
    weight = call.args[1] if len(call.args) > 1 else call.kwargs["weight"]
    kernel = weight.shape[2:]
    # The whole feature map at once, as VGG's first fully connected layer, is a linear map.
    covers_map = call.operands[0].shape[2:] == kernel and all(
        n == 1 for n in call.made[0].shape[2:]
    )
    return not covers_map and any(k > 1 for k in kernel)


def _window(call: Operation) -> int:
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


# Vocabulary: the names of torch's functions, by what they do to a feature map.

# fmt: off
ATTENTIONS = frozenset({
    "scaled_dot_product_attention", "multi_head_attention_forward", "flex_attention",
    "_native_multi_head_attention", "_transformer_encoder_layer_fwd",
})
PRODUCTS = frozenset({
    "matmul", "__matmul__", "__rmatmul__", "bmm", "mm", "baddbmm", "addmm", "einsum",
    "tensordot",
})
CONVOLUTIONS = frozenset({
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "deform_conv2d",
})
POOLS = frozenset({
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool1d", "max_pool2d", "max_pool3d",
    "lp_pool1d", "lp_pool2d", "max_pool1d_with_indices", "max_pool2d_with_indices",
})
RESIZES = frozenset({"interpolate", "upsample", "grid_sample"})
WINDOWS = frozenset({"interpolate", "upsample", "fold"})  # more that works on a neighborhood
NORMS = frozenset({
    "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize",
    "local_response_norm", "native_layer_norm",
})
SOFTMAXES = frozenset({"softmax", "log_softmax", "gumbel_softmax"})
ACTIVATIONS = frozenset({
    "relu", "relu6", "gelu", "silu", "mish", "sigmoid", "tanh", "hardswish", "hardsigmoid",
    "hardtanh", "leaky_relu", "elu", "selu", "celu", "softplus", "softsign", "prelu", "glu",
    "logsigmoid", "threshold", "clamp", "exp", "square",
})
RECURRENCES = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
TRANSFORMS = frozenset({
    "fft_fft", "fft_fft2", "fft_fftn", "fft_rfft", "fft_rfft2", "fft_rfftn",
    "fft_ifft", "fft_ifft2", "fft_ifftn", "fft_irfft", "fft_irfft2", "fft_irfftn",
})
LAYOUTS = frozenset({
    "reshape", "view", "view_as", "reshape_as", "flatten", "unflatten", "permute", "transpose",
    "swapaxes", "swapdims", "movedim", "moveaxis", "squeeze", "unsqueeze", "expand",
    "expand_as", "broadcast_to", "contiguous", "clone", "roll", "flip", "rot90", "chunk",
    "split",
    "tensor_split", "unbind", "select", "narrow", "__getitem__", "__setitem__", "cat", "concat",
    "concatenate", "stack", "hstack", "vstack", "pad", "pixel_shuffle", "pixel_unshuffle",
    "channel_shuffle", "repeat", "tile", "index_select", "gather", "take_along_dim", "unfold",
    "as_strided", "T", "mT", "H", "mH", "t", "scatter", "index_copy", "masked_scatter",
    "masked_select", "take",
})
# Layouts that depend on how a tensor lies in memory, where its index map lies otherwise.
MEMORY_VIEWS = frozenset({"as_strided"})
DROPOUTS = frozenset({
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout",
    "feature_alpha_dropout",
})
ORDERINGS = frozenset({
    "sort", "msort", "topk", "cumsum", "cumprod", "scatter_add", "index_add",
})
REDUCTIONS = frozenset({"mean", "sum", "max", "min", "amax", "amin"})
SUMS = frozenset({
    "add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "sum", "mean", "addcmul",
    "lerp",
})
JOINS = frozenset({
    "cat", "concat", "concatenate", "stack", "hstack", "vstack", "__setitem__",
})
CREATIONS = frozenset({
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
    "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor",
})
# fmt: on
