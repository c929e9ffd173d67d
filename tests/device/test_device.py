"""Every measurement gives on another device what it gives on the CPU, and the model back."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from accelerate.hooks import attach_align_device_hook_on_blocks
from app_cases import VIT
from caller_settings import SETTINGS, made
from measurements import measurement
from small_models import seeded
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.nn.functional import cross_entropy
from unusual_modules import Network

from visprism import (
    ANALYSES,
    Compute,
    Fourier,
    Objective,
    Run,
    check_unchanged,
    dissect,
    examine,
    observe,
    predict,
    training_curvature,
)

pytestmark = pytest.mark.usefixtures("draws_of_python")

TOLERANCE = 1e-4  # of the largest value of a column
LOOSER = {
    ("fourier-plane", "vit"): 2e-4,  # one end of an interval of a logarithm: 1.01e-4
    # On a GPU, pixels whose scores differ by rounding swap places: areas change by 4e-5.
    ("attribution", "convnet"): 3e-4,
    ("attribution", "vit"): 3e-4,
    # Scores that differ by rounding swap places: each pair of images moves an AUROC by 2e-4.
    ("out-of-distribution", "convnet"): 1e-3,
    ("out-of-distribution", "vit"): 1e-3,
}
ROUNDING = 2e-6  # of float32, where all values of a column are smaller
# They read the trace, the weights or files alone.
ON_ANY_DEVICE = {"anatomy", "patch-filters", "position-embeddings", "trajectory"}
CASES = {  # where the model lies, and the device that is named
    "the model lies there": (True, False),
    "the device is named": (False, True),
    "both": (True, True),
}
NETWORKS = {
    "convnet": (Network, 1.5),
    "vit": (
        lambda: VisionTransformer(
            img_size=16, patch_size=4, embed_dim=12, depth=2, num_heads=2, num_classes=10
        ),
        4,
    ),
}
CHANGING = ["ablation", "hessian", "landscape"]  # one way through each part that patches
BUILT_IN = [n for n, a in ANALYSES.items() if a.__module__.startswith("visprism.")]
REFUSED = {
    "convnet": {"attention", "attention-maps", "position-embeddings", "relative-scores"},
    "vit": {"relative-scores"},
}


def network(name, of=None):
    """With weights as large as trained ones, and BatchNorm statistics other than 0 and 1."""
    build, scale = NETWORKS[name]
    model = seeded(of or build)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(scale)
        for norm in (m for m in model.modules() if isinstance(m, nn.BatchNorm2d)):
            norm.running_mean.normal_(0, 0.1, generator=draw)
            norm.running_var.uniform_(0.5, 1.5, generator=draw)
    return model


def assert_close(expected, results, tolerance=TOLERANCE):
    """Equal tables up to rounding; prints the largest difference of a column."""
    worst = 0.0
    for one, other in zip(expected, results, strict=True):
        for name, column in one.columns().items():
            values, on_device = np.asarray(column), np.asarray(other.columns()[name])
            if values.dtype.kind != "f":
                np.testing.assert_array_equal(on_device, values, err_msg=name)
                continue
            # A gain is a difference of areas, and as exact as they are.
            scale = np.asarray(one.columns().get(name.removesuffix("_gain"), column))
            largest = np.abs(scale[np.isfinite(scale)]).max(initial=0.0)
            allowed = tolerance * largest + ROUNDING
            np.testing.assert_allclose(on_device, values, rtol=0, atol=allowed, err_msg=name)
            difference = np.abs(on_device - values)[np.isfinite(values)].max(initial=0.0)
            worst = max(worst, difference / (largest + 1e-2))
    print(f"largest difference {worst:.1e}")  # noqa: T201 (for the table of the docs)


def measured(name, model, folder, run):
    results = []
    refusal = check_unchanged(
        lambda model: results.extend(measurement(name, model, folder, run)(model)),
        model,
        interrupt=False,
    )
    return refusal, results


@pytest.mark.parametrize("of", NETWORKS)
@pytest.mark.parametrize("name", BUILT_IN)
def test_every_analysis(name, of, device, tmp_path):
    refusal, expected = measured(name, network(of), tmp_path, Run())
    assert (refusal is not None) == (name in REFUSED[of])
    cases = CASES.values()
    if device == "xla":  # whose compiler takes seconds: one case for each network
        cases = [CASES["the device is named" if of == "convnet" else "the model lies there"]]
    for there, named in cases:
        model = network(of)
        model = model.to(device) if there else model
        run = Run(compute=Compute(device if named else None))
        settings = SETTINGS if there and named else ()
        with made(*settings, device=device):
            reason, results = measured(name, model, tmp_path, run)
        assert reason == refusal
        assert_close(expected, results, LOOSER.get((name, of), TOLERANCE))
        places = {r.provenance.device for r in results} - {""}
        assert name in ON_ANY_DEVICE or all(place.startswith(device) for place in places)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("name", CHANGING)
def test_a_model_is_given_back_also_when_a_measurement_is_interrupted(
    name, case, device, tmp_path
):
    there, named = case
    model = network("convnet")
    model = model.to(device) if there else model
    run = Run(compute=Compute(device if named else None))
    assert check_unchanged(measurement(name, model, tmp_path, run), model) is None


class Split(Network):
    """Its second half lies on another device than its first, and gets the feature map there."""

    def features(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x.to(block.conv.weight.device))
        return x


def split_by_hand(device):
    model = network("convnet", Split)
    for module in (model.blocks[1], model.head):
        module.to(device)
    return model


def split_by_hooks(device):
    """As accelerate splits a model that is given a map of devices."""
    model = network("convnet")
    places = {"stem": "cpu", "blocks.0": "cpu", "blocks.1": device, "head": device}
    attach_align_device_hook_on_blocks(model, {n: torch.device(d) for n, d in places.items()})
    return model


SPLITS = [split_by_hand, split_by_hooks]
FORWARD = [
    "fourier",
    "variance",
    "attribution",
    "ablation",
    "readout",
    "adversarial",
    "corruptions",
]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", FORWARD)
def test_a_model_over_two_devices(name, split, device, tmp_path):
    _, expected = measured(name, network("convnet"), tmp_path, Run())
    reason, results = measured(name, split(device), tmp_path, Run())
    assert reason is None
    assert_close(expected, results, LOOSER.get((name, "convnet"), TOLERANCE))


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", ["hessian", "sharpness", "training-curvature"])
def test_a_parameter_vector_needs_one_device(name, split, device, tmp_path):
    reason, _ = measured(name, split(device), tmp_path, Run())
    assert re.search(rf"must lie on one device .*, got cpu and {device}:0\. Move it", reason)


def test_a_device_is_not_named_for_a_model_over_two(device, tmp_path):
    run = Run(compute=Compute(device))
    reason, _ = measured("fourier", split_by_hand(device), tmp_path, run)
    assert f"must not be named for a model on cpu and {device}:0" in reason


def trained(device):
    """The curvature after a step of training."""
    torch.manual_seed(0)
    model = network("convnet").to(device).train()
    images, targets = torch.randn(16, 3, 16, 16), torch.arange(16) % 10
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    cross_entropy(model(images.to(device)), targets.to(device)).backward()
    optimizer.step()
    return training_curvature(model, [(images, targets)], optimizer, batch_norm="batch")


def test_a_step_of_training(device):
    assert_close([trained("cpu")], [trained(device)])


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Answers of live panels whose models are put on a device."""
    from visprism.app.live import panels
    from visprism.app.live.pool import Pool
    from visprism.app.settings import Settings

    def of(panel, subject, device, **values):
        monkeypatch.setattr("visprism.kit.inputs.default_device", lambda: device)
        specimen = Pool(Settings(tmp_path)).specimen(subject)
        assert next(specimen.anatomy.model.parameters()).device.type == device.type
        return panels.PANELS[panel](specimen, values)

    return of


PANELS = {
    "images": {},
    "attention": {"row": 9, "column": 30},
    "ablation": {"blocks": ["blocks.1.mlp"]},
    "receptive_field": {"block": "blocks.1.mlp", "x": 0.5, "y": 0.5},
    "landscape": {"distance": 0.5, "direction": 1},
}


def approximately(answer):
    if isinstance(answer, dict):
        return {key: approximately(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [approximately(value) for value in answer]
    return pytest.approx(answer, rel=1e-2, abs=2e-3) if isinstance(answer, float) else answer


@pytest.mark.parametrize("panel", PANELS)
def test_live_panels(panel, device, answers):
    values = {"images": [1], **PANELS[panel]}
    expected = answers(panel, VIT, torch.device("cpu"), **values)
    assert answers(panel, VIT, torch.device(device), **values) == approximately(expected)


class Wide(nn.Module):
    """Feature maps of 4 MiB for an image."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 256))

    def forward(self, images):
        maps = images.mean(1, keepdim=True) * self.scale[:, None, None]
        return maps.relu().mean((2, 3))


def in_batches(batches, number):
    ((images, targets),) = batches
    return list(zip(images.split(number), targets.split(number), strict=True))


@pytest.fixture
def too_little_memory(device):
    """Memory of a GPU for 100 MiB more than now."""
    if device != "cuda":
        pytest.skip("only the memory of a GPU of NVIDIA or AMD can be limited")
    model = Wide().eval().to(device)
    batches = [(torch.randn(64, 3, 64, 64), torch.arange(64))]
    few = [(images[:2], targets[:2]) for images, targets in batches]
    predict(model, few), Objective(model, few).gradient()  # what libraries hold stays
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(
        (torch.cuda.memory_reserved() + 100 * 2**20) / total
    )
    yield model, batches
    torch.cuda.set_per_process_memory_fraction(1.0)


def test_too_little_memory(too_little_memory):
    model, batches = too_little_memory
    with pytest.warns(UserWarning, match="images do not fit"):
        predictions = predict(model, batches)
    assert_same = torch.testing.assert_close
    assert_same(predictions.logits, predict(model.cpu(), batches).logits)
    number, gradients = 64, []

    def measure(model):
        objective = Objective(model, in_batches(batches, number))
        gradients.append(objective.gradient().cpu())

    while reason := check_unchanged(measure, model.cuda(), interrupt=False):
        number = int(re.search(r"\(CUDA out of memory.* Use batches of (\d+):", reason)[1])
    assert number < 64
    assert_same(gradients[0], Objective(model.cpu(), batches).gradient())


def test_a_command_names_the_device(device, tmp_path):
    """In a process that has imported nothing of the device before."""
    words = ["variance", "resnet20.shapes", "--data", "shapes", "--limit", "4", "--quiet"]
    command = [sys.executable, "-m", "visprism", *words, "--device", device]
    done = subprocess.run([*command, "--out", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_call_names_the_device_and_images_may_lie_on_it(device):
    model, there = network("convnet"), network("convnet").to(device)
    images, targets = torch.rand(8, 3, 16, 16), torch.arange(8) % 10
    data = [(images[:4].to(device), targets[:4].to(device)), (images[4:], targets[4:])]
    anatomy = dissect(model, images, device=device)
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    results = (
        Fourier()(model, [images], device=device),
        *observe(anatomy, [images], Fourier(), device=device),
        predict(model, data, device=device),
    )
    assert all(r.provenance.device.startswith(device) for r in results)
    studies = [
        examine({"a": m}, d, analyses=["fourier", "calibration"])
        for m, d in ((there, data), (model, [(images, targets)]))
    ]
    assert not studies[0].failures
    for name in studies[0].analyses:
        assert_close([studies[1]["a"][name]], [studies[0]["a"][name]])
