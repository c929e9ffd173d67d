"""A selective scan in plain PyTorch, in place of the CUDA kernel of ``mamba_ssm``.

Packages of state-space networks (MambaVision) import ``selective_scan_fn`` from ``mamba_ssm``,
which is built for CUDA only. Here it is a loop over positions: slow, exact, on any device, and
differentiable to any order, which the kernel is not.

Source: Gu and Dao (2024), Mamba, algorithm 2.
"""

import importlib.util
import sys
from types import ModuleType

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

_PLACE = "mamba_ssm.ops.selective_scan_interface"


def selective_scan(
    u: Float[Tensor, "b d n"],
    delta: Float[Tensor, "b d n"],
    A: Float[Tensor, "d s"],
    B: Float[Tensor, "b s n"],
    C: Float[Tensor, "b s n"],
    D: Float[Tensor, " d"] | None = None,
    z: Float[Tensor, "b d n"] | None = None,
    delta_bias: Float[Tensor, " d"] | None = None,
    delta_softplus: bool = False,
    return_last_state: bool | None = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """The scan h_t = exp(delta_t A) h_{t-1} + delta_t B_t u_t, with y_t = C_t h_t + D u_t.

    The output is multiplied by silu(z) where `z` is given. Costs n steps of b d s operations.
    """
    step = delta if delta_bias is None else delta + delta_bias[:, None]
    step = functional.softplus(step) if delta_softplus else step
    state, outputs = torch.zeros_like(step[:, :, 0, None] * A), []
    for t in range(u.shape[-1]):
        decay = (step[:, :, t, None] * A).exp()
        state = decay * state + (step[:, :, t] * u[:, :, t])[..., None] * B[:, None, :, t]
        outputs.append((state * C[:, None, :, t]).sum(-1))
    y = torch.stack(outputs, -1)
    y = y if D is None else y + D[:, None] * u
    y = y if z is None else y * functional.silu(z)
    return (y, state) if return_last_state else y


def stand_in_for_kernels() -> None:
    """Let ``mamba_ssm``'s selective scan be `selective_scan`, where it is not installed.

    Call it before importing a package that needs the kernel. An installed one stays.
    """
    if _PLACE in sys.modules or importlib.util.find_spec("mamba_ssm") is not None:
        return
    parts = _PLACE.split(".")
    for i in range(len(parts)):
        name = ".".join(parts[: i + 1])
        sys.modules.setdefault(name, ModuleType(name))
    module = sys.modules[_PLACE]
    module.__dict__["selective_scan_fn"] = selective_scan
