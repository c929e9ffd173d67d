"""Laws of every network of the zoo (src/visprism/models)."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from internals import image_size
from small_models import noise, seeded
from small_zoo import NETWORKS, SIDES
from two_processes import SHARED

from visprism import MODELS, load_model


@pytest.fixture(scope="module", params=NETWORKS)
def network(request):
    """In evaluation mode, and two images; tests read them, and none changes them."""
    side = SIDES[request.param]
    return seeded(NETWORKS[request.param]), noise(2, 3, side, side)


def outputs(model, images):
    """Logits; those of both classifiers of a DeiT in training mode."""
    logits = model(images)
    return logits if isinstance(logits, tuple) else (logits,)


def test_every_family_is_tested():
    families = {build.__module__.rpartition(".")[2] for build in MODELS.values()}
    assert {name.partition(",")[0] for name in NETWORKS} >= families


@torch.no_grad()
def test_an_image_is_judged_alone(network):
    model, images = network
    torch.testing.assert_close(model(images)[1:2], model(images[1:2]), rtol=1e-4, atol=1e-5)


def test_every_parameter_gets_a_gradient(network):
    model, images = copy.deepcopy(network[0]).train(), network[1]
    sum(logits.square().sum() for logits in outputs(model, images)).backward()
    dead = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not dead


@pytest.mark.slow
def test_every_family_compiles_to_one_graph_and_can_be_exported():
    """In a process of its own: the tests' checks of types cannot be traced."""
    program = [sys.executable, Path(__file__).parent / "compiled.py"]
    answer = subprocess.run(program, capture_output=True, text=True, env=os.environ | SHARED)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == list(NETWORKS)


# The deepest of a family have more of the same blocks, and take seconds even so.
@pytest.mark.sweep
@pytest.mark.parametrize(
    "name", [n for n in MODELS if not re.search("101|152|sasa.*(38|50)", n)]
)
def test_every_parameter_of_every_network_is_used_at_its_own_size(name):
    side = image_size(name)
    with torch.device("meta"):  # shapes alone: no arithmetic, no memory
        model = MODELS[name]()
        logits = outputs(model, torch.zeros(2, 3, side, side))
    sum(values.sum() for values in logits).backward()
    assert {values.shape for values in logits} == {(2, 1000 if side == 224 else 10)}
    assert not [n for n, p in model.named_parameters() if p.grad is None]


def test_resnet20_has_the_published_size_and_depth():
    model = load_model("resnet20").model
    kernels = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    # He et al. (2016), table 6: 0.27 M; with three projections instead of zeros, 2,752 more.
    assert sum(p.numel() for p in model.parameters()) == 269_722 + 2_752
    assert sum(k.kernel_size == (3, 3) for k in kernels) + 1 == 20
