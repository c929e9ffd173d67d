"""The selective scan against its definition as a matrix of all pairs of positions."""

import importlib
import sys

import torch
from rounding import assert_equal_up_to_rounding
from torch.nn import functional

from visprism.models.selective_scan import selective_scan, stand_in_for_kernels


def test_the_scan_is_the_sum_over_all_earlier_positions():
    generator = torch.Generator().manual_seed(0)

    def noise(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    u, delta, z = (noise(2, 3, 7) for _ in range(3))
    a, b, c, d, bias = -noise(3, 4).exp(), noise(2, 4, 7), noise(2, 4, 7), noise(3), noise(3)
    y = selective_scan(u, delta, a, b, c, d, z=z, delta_bias=bias, delta_softplus=True)
    step = functional.softplus(delta + bias[:, None])
    time = step.cumsum(-1)
    expected = d[:, None] * u
    for t in range(7):
        for s in range(t + 1):
            decay = (a * (time[:, :, t] - time[:, :, s])[..., None]).exp()
            weight = (decay * (b[:, :, s] * c[:, :, t])[:, None]).sum(-1)
            expected[:, :, t] += weight * step[:, :, s] * u[:, :, s]
    assert_equal_up_to_rounding(y, expected * functional.silu(z))


def test_it_stands_in_where_the_kernel_is_not_installed(monkeypatch):
    for name in ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.selective_scan_interface"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    stand_in_for_kernels()
    module = importlib.import_module("mamba_ssm.ops.selective_scan_interface")
    assert module.selective_scan_fn is selective_scan
    for name in list(sys.modules):
        if name.startswith("mamba_ssm"):
            monkeypatch.delitem(sys.modules, name)
