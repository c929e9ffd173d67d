"""Laws of every network of the zoo, and of its options (src/visprism/models)."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_models import noise, seeded
from small_zoo import NETWORKS, SIDES
from two_processes import SHARED

from visprism import MODELS, InputError, load_model
from visprism.models.zoo_registry import image_size


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


@pytest.mark.parametrize(
    ("name", "width"),
    [("resnet18_32", 512), ("vgg11_32", 4096), ("pit_tiny_224", 256)],
)
def test_a_network_without_classes_gives_what_its_classifier_would_read(name, width):
    with torch.device("meta"):  # shapes alone
        images = torch.zeros(2, 3, *[int(name.rpartition("_")[2])] * 2)
        assert MODELS[name](num_classes=0)(images).shape == (2, width)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("resnet20?num_classes=-1", "num_classes must be an integer of at least 0, got -1"),
        ("vit_pico_patch4_32?head=fc", "head must be one of token, gap, got 'fc'"),
        ("resnet20?smoothing=2", "smoothing must be True or False, got 2"),
        ("resnet20?mc_dropout=1", "mc_dropout must be a number .* below 1, got 1"),
        ("alter_resnet18_32?msas=(0, 1)", r"msas must have one number per stage \(4\)"),
        ("alter_resnet18_32?msas=(0, 0, 0, 9)", "msas must be 0 to 1 in stage 4"),
        ("preact_resnet18_32?depths=(0, 1)", "depths must be integers of at least 1, got 0"),
        ("vit_tiny_patch2_32?num_heads=5", "num_heads must divide the 192 channels, got 5"),
        ("vit_tiny_patch2_32?img_size=33", "must be a multiple of the patch size"),
        ("conv_vit_tiny_patch2_32?kernel=2", "kernel must be an odd number of tokens"),
        ("pit_tiny_224?img_size=225", "sides of images must be 16 plus a multiple of 8"),
        ("swin_tiny_patch1_window4_32?num_heads=(3, 6)", "num_heads must have one number"),
        ("sasa_resnet26_32?kernel=4", "kernel must be an odd number of pixels"),
        ("alter_resnet18_32?window=0", "window must be an integer of at least 1"),
    ],
)
def test_options_that_do_not_fit_are_refused_in_one_sentence(spec, sentence):
    with pytest.raises(InputError, match=sentence):
        load_model(spec)
