"""Operations: what a torch function does to a feature map, told from the call itself.

A role is a word for one call. What has weights or moves information over the grid makes a
block (``WORK``); everything else follows the work that it stands behind.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor

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

ATTENTIONS = frozenset(
    {
        "scaled_dot_product_attention",
        "multi_head_attention_forward",
        "_native_multi_head_attention",
        "_transformer_encoder_layer_fwd",
        "flex_attention",
    }
)
PRODUCTS = frozenset(
    {
        "matmul",
        "__matmul__",
        "__rmatmul__",
        "bmm",
        "mm",
        "baddbmm",
        "addmm",
        "einsum",
        "tensordot",
    }
)
CONVOLUTIONS = frozenset(
    f"conv{transposed}{d}d" for d in (1, 2, 3) for transposed in ("", "_transpose")
) | {"deform_conv2d"}
POOLS = frozenset(f"{kind}_pool{d}d" for kind in ("avg", "max", "lp") for d in (1, 2, 3)) | {
    "max_pool2d_with_indices",
    "max_pool1d_with_indices",
}
NORMS = frozenset(
    {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize"}
    | {"local_response_norm", "native_layer_norm"}
)
ACTIVATIONS = frozenset(
    ["relu", "relu6", "gelu", "silu", "mish", "sigmoid", "tanh", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu", "elu", "selu", "celu", "softplus", "softsign", "prelu", "glu", "logsigmoid", "threshold", "clamp", "exp", "square"]
)
RECURRENCES = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
TRANSFORMS = frozenset(
    f"fft_{inverse}{real}fft{d}"
    for inverse in ("", "i")
    for real in ("", "r")
    for d in ("", "2", "n")
)
LAYOUTS = frozenset(
    ["reshape", "view", "view_as", "reshape_as", "flatten", "unflatten", "permute", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "squeeze", "unsqueeze", "expand", "expand_as", "broadcast_to", "contiguous", "clone", "roll", "flip", "rot90", "chunk", "split", "tensor_split", "unbind", "select", "narrow", "__getitem__", "cat", "concat", "concatenate", "stack", "hstack", "vstack", "pad", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "repeat", "tile", "index_select", "gather", "T", "mT", "H", "mH", "t", "__setitem__", "unfold", "take_along_dim", "masked_select", "as_strided"]
)
REDUCTIONS = frozenset(["mean", "sum", "max", "min", "amax", "amin"])
SUMS = frozenset(["add", "__add__", "__radd__", "sub", "__sub__", "__rsub__", "sum", "mean", "addcmul", "lerp"])
JOINS = frozenset(["cat", "concat", "concatenate", "stack", "hstack", "vstack"])


def plain(name: str) -> str:
    """The function's name without the mark of its in-place form: ``add_`` and ``__iadd__``."""
    if name.startswith("__i") and name.endswith("__"):
        outer = f"__{name[3:]}"
        if outer in {"__add__", "__sub__", "__mul__", "__truediv__", "__matmul__"}:
            return outer
    return name.removesuffix("_") if not name.endswith("__") else name


def role_of(
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    data_inputs: int,
    shape: Sequence[int],
) -> Role:
    """The role of one call of the function `name`.

    Args:
        name: without the mark of an in-place form.
        args: as the function was called.
        kwargs: as the function was called.
        data_inputs: number of distinct operands that depend on the image.
        shape: of the tensor that it gives, the first of several.
    """
    if name in ATTENTIONS:
        return "attention"
    if name in PRODUCTS:
        return "bilinear" if data_inputs > 1 else "linear"
    if name in CONVOLUTIONS:
        kernel = (args[1] if len(args) > 1 else kwargs["weight"]).shape[2:]
        # The whole feature map at once, as VGG's first fully connected layer: no window slides.
        reads_all = args[0].shape[2:] == kernel and all(n == 1 for n in shape[2:])
        return "linear" if reads_all or all(k == 1 for k in kernel) else "conv"
    if name in {"linear", "bilinear"}:
        return "linear"
    if name in POOLS:
        return "pool" if _window(args, kwargs) > 1 else "layout"
    if name.startswith("adaptive_"):
        return "global pool"
    if name in RECURRENCES | TRANSFORMS:
        return "token-mixing"
    if name in {"softmax", "log_softmax", "gumbel_softmax"}:
        return "softmax"
    if name in ACTIVATIONS:
        return "activation"
    if name in NORMS:
        return "norm"
    if data_inputs > 1 and name in SUMS | JOINS:
        return "merge"
    if name in LAYOUTS:
        return "layout"
    return "pointwise"


def _window(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """The longest side of a pooling window."""
    size = kwargs.get("kernel_size", args[1] if len(args) > 1 else 1)
    return max(size) if isinstance(size, Sequence) else int(size)


def tensors_in(value: Any) -> list[Tensor]:  # noqa: ANN401 (any nesting of arguments)
    """All tensors in a nesting of sequences and mappings, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        return [t for v in value.values() for t in tensors_in(v)]
    if isinstance(value, tuple | list):
        return [t for v in value for t in tensors_in(v)]
    return []
