"""Vocabulary: the names of torch's functions, by what they do to a feature map."""

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
