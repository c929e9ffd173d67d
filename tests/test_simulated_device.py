"""Analyses on a simulated device, whose tensors do not mix with those of the CPU.

What `make device` finds in minutes, a missing transfer first of all, fails here in seconds.
"""

import pytest
import torch
from caller_settings import assert_equal
from measurements import measurement
from simulated_device import DEVICE, SimulatedDevice, put_there
from small_models import seeded
from timm.models.vision_transformer import VisionTransformer
from unusual_modules import Network

from visprism import Compute, Run

# One for each way of passing through a model. Left to `make device`: passes that begin at a
# cached feature map (attribution, readout, token norms, rollout), which is copied while torch's
# functions are not intercepted and loses its place; and, for their time, the others.
CHOSEN = [
    "adversarial", "attention", "calibration", "cka", "class-separability", "corruptions",
    "fourier", "frequency-noise", "out-of-distribution", "patch-pca", "receptive-field",
    "sharpness", "variance",
]  # fmt: skip


def network(name):
    if name == "attention":
        options = {"img_size": 16, "patch_size": 4, "embed_dim": 12, "depth": 2}
        return seeded(lambda: VisionTransformer(**options, num_heads=2, num_classes=10))
    return seeded(Network)


@pytest.fixture
def simulated():
    with SimulatedDevice():
        yield


@pytest.mark.usefixtures("simulated")
@pytest.mark.parametrize("name", CHOSEN)
def test_a_model_is_measured_where_it_lies(name, tmp_path):
    model = put_there(network(name))
    results = measurement(name, model, tmp_path, Run())(model)
    assert {r.provenance.device for r in results} == {str(DEVICE)}


@pytest.mark.usefixtures("simulated")
def test_a_model_is_measured_on_a_device_that_is_named(tmp_path):
    model = network("fourier")
    run = Run(compute=Compute(DEVICE.type))
    results, expected = (
        measurement("fourier", model, tmp_path, r)(model) for r in (run, Run())
    )
    assert results[0].provenance.device == DEVICE.type
    assert_equal(results, expected)


@pytest.mark.usefixtures("simulated")
def test_the_simulation_refuses_what_a_gpu_refuses():
    model, images = put_there(network("fourier")), torch.zeros(2, 3, 16, 16)
    with pytest.raises(RuntimeError, match="to be on one device"):
        model(images)
    logits = model(images.to(DEVICE))
    assert logits.device == DEVICE
    with pytest.raises(TypeError, match="to numpy"):
        logits.detach().numpy()
    with pytest.raises(RuntimeError, match="for generator"):
        torch.randn(2, device=DEVICE, generator=torch.Generator())
    assert logits.detach().cpu().numpy().shape == (2, 10)
