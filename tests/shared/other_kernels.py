"""A plugin of pytest: products and convolutions round as on some other CPU.

Each CPU, number of threads and shape selects a kernel that sums in its own order. This plugin
scales results by 1 - 2 eps to 1 + 2 eps, by a hash of the shape and of the variable
OTHER_KERNELS. A test that compares floats of two paths for equality then fails:

    PYTHONPATH=tests/shared OTHER_KERNELS=1 pytest -p other_kernels
"""

import os
import zlib

import torch

OPERATORS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1, "mkldnn_convolution": 0}
_SALT = os.environ.get("OTHER_KERNELS", "")
_library = torch.library.Library("aten", "IMPL")


def _rounded(name, argument):
    kernel = torch.library.get_kernel(f"aten::{name}", "CPU")

    def call(keys, *args, **options):
        out, operand = kernel.call_boxed(keys, *args, **options), args[argument]
        if out.is_floating_point():
            digest = zlib.crc32(f"{_SALT} {tuple(operand.shape)}".encode())
            out.mul_(1 + (digest % 5 - 2) * torch.finfo(out.dtype).eps)
        return out

    return call


for _name, _argument in OPERATORS.items():
    _library.impl(
        _name, _rounded(_name, _argument), "CPU", with_keyset=True, allow_override=True
    )
