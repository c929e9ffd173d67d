"""Analyses on a simulated device: tensors do not mix with the CPU's and are not of 64 bits.

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

import visprism as vp
from visprism import Compute, Run

# One for each way of passing through a model. Left to `make device`: passes that begin at a
# cached feature map (attribution, readout, token norms, rollout), which is copied while torch's
# functions are not intercepted and loses its place; and, for their time, the others.
CHOSEN = [
    "adversarial", "attention", "calibration", "cka", "class-separability", "corruptions",
    "fourier", "frequency-noise", "out-of-distribution", "patch-pca", "quantization",
    "receptive-field", "sharpness", "singular-values", "token-similarity", "variance",
]  # fmt: skip


def network(name):
    if name == "attention":
        options = {"img_size": 16, "patch_size": 4, "embed_dim": 12, "depth": 2}
        return seeded(lambda: VisionTransformer(**options, num_heads=2, num_classes=10))
    return seeded(Network)


@pytest.fixture
def simulated():
    with SimulatedDevice() as device:
        yield device


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
def test_a_device_is_named_to_a_call(tmp_path):
    model, data = network("fourier"), [torch.rand(4, 3, 16, 16)]
    anatomy = vp.dissect(model, data[0], device=DEVICE.type)
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    results = (
        vp.Fourier()(model, data, device=DEVICE.type),
        *vp.observe(anatomy, data, vp.Fourier(), device=DEVICE.type),
        vp.predict(model, [(data[0], torch.arange(4))], device=DEVICE.type),
    )
    assert {r.provenance.device for r in results} == {DEVICE.type}


@pytest.mark.usefixtures("simulated")
def test_images_and_targets_may_lie_on_the_device():
    images, targets = torch.rand(8, 3, 16, 16), torch.arange(8) % 10
    there = [(images[:4].to(DEVICE), targets[:4].to(DEVICE)), (images[4:], targets[4:])]
    model = put_there(network("fourier"))
    studies = [
        vp.examine({"a": model}, data, analyses=["fourier", "calibration"])
        for data in (there, [(images, targets)])
    ]
    assert not studies[0].failures
    for name in studies[0].analyses:
        assert_equal([studies[0]["a"][name]], [studies[1]["a"][name]])


@pytest.mark.usefixtures("simulated")
def test_a_tensor_that_a_model_keeps_elsewhere_is_said():
    model = network("fourier")
    model.kept = torch.ones(1).to(DEVICE)
    model.register_forward_pre_hook(lambda m, x: (x[0] * m.kept,))
    with pytest.raises(vp.InputError, match="The model may keep a device, or a tensor"):
        vp.Fourier()(model, [torch.rand(4, 3, 16, 16)])


def test_torch_makes_tensors_on_the_cpu_by_default():
    model, data = network("fourier"), [torch.rand(4, 3, 16, 16)]
    for measure in (vp.Fourier(), lambda model, data: vp.examine(model, data)):
        with (
            torch.device("meta"),
            pytest.raises(vp.InputError, match="default device must be the CPU, got meta"),
        ):
            measure(model, data)


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
