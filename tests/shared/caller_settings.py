"""Settings of torch, each as a caller of a measurement may have made it."""

from contextlib import ExitStack, contextmanager

import numpy as np
import torch

from visprism.core.devices import set_products, settings_of_products

SETTINGS = {
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "TF32 of products": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "TF32 of convolutions": lambda: setattr(torch.backends.cudnn, "allow_tf32", True),
    "no TF32 of convolutions": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "deterministic": lambda: setattr(torch.backends.cudnn, "deterministic", True),
    "newer settings": lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    "autocast": lambda: None,
}


@contextmanager
def made(*settings, device="cpu"):
    """Inside, a caller has made the settings; with "autocast", mixed precision is on."""
    before = settings_of_products()
    with ExitStack() as stack:
        stack.callback(set_products, *before)
        for name in settings:
            SETTINGS[name]()
        if "autocast" in settings:
            for kind in {device, "cpu"} - {"xla"}:
                stack.enter_context(torch.autocast(kind, torch.bfloat16))
        yield


def assert_equal(results, expected):
    """Equal tables, bit for bit."""
    for one, other in zip(results, expected, strict=True):
        for name, column in other.columns().items():
            np.testing.assert_array_equal(one.columns()[name], column, err_msg=name)
