"""A device other than the CPU: XLA on a CPU in the environment of `make device`, or a GPU."""

import importlib.util
import os

import pytest
import torch

if importlib.util.find_spec("torch_xla"):
    os.environ.setdefault("PJRT_DEVICE", "CPU")
    # The networks are tiny: most of the time goes to XLA's compiler.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    import torch_xla

    torch_xla.experimental.eager_mode(True)
    torch.empty(0, device="xla")  # before autograd counts the devices, at the first gradient
    NAME = "xla"
else:
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    NAME = None if accelerator is None else accelerator.type


@pytest.fixture(scope="session")
def device():
    """The name of the device, or a skip that says why there is none."""
    if NAME is None:
        pytest.skip("no GPU here, and XLA only in the environment of `make device`")
    return NAME
