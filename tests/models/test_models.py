"""Laws of every network of the zoo (src/visprism/models)."""

import copy
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from internals import image_size, stream

from visprism import MODELS, load_model

# The smallest of each family; the others differ in numbers alone.
SMALL = [
    "alexnet_32?head=gap",
    "alter_resnet18_32",
    "conv_vit_tiny_patch2_32",
    "deit_tiny_patch2_32",
    "mobilenetv2_32",
    "preact_resnet18_32",
    "resnet18_32",
    "resnet20",
    "sasa_resnet26_32",
    "swin_tiny_patch1_window4_32",
    "vgg11_32?head=gap",
    "vit_pico_patch4_32",
    "alter_resnet20",
    "pit_pico_patch4_32",
    "mixer_pico_patch4_32",
]

BY_ANOTHER_NAME = {  # modules whose networks compiled.py calls otherwise
    "cifar_resnet": "resnet20",
    "alter_cifar_resnet": "alter_resnet20",
    "mobilenet": "mobilenetv2",
}


@pytest.fixture(scope="module", params=SMALL)
def model(request):
    """In evaluation mode; several tests read it, and none changes it."""
    model = load_model(request.param).model
    for parameter in model.parameters():
        if not parameter.any():  # a head of zeros, as timm starts with, hides all before it
            torch.nn.init.normal_(parameter, std=0.1, generator=stream(0, "head"))
    return model


@pytest.fixture
def images():
    return torch.randn(2, 3, 32, 32, generator=stream(0, "test"))


def outputs(model, images):
    """Logits; those of both classifiers of a DeiT in training mode."""
    logits = model(images)
    return logits if isinstance(logits, tuple) else (logits,)


def test_the_smallest_of_each_family_is_tested():
    tested = {MODELS[name.partition("?")[0]].__module__ for name in SMALL}
    assert tested == {f.__module__ for f in MODELS.values()}


@torch.no_grad()
def test_an_image_is_judged_alone(model, images):
    torch.testing.assert_close(model(images)[1:2], model(images[1:2]), rtol=1e-4, atol=1e-5)


def test_every_parameter_gets_a_gradient(model, images):
    model = copy.deepcopy(model).train()
    sum(logits.square().sum() for logits in outputs(model, images)).backward()
    dead = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert not dead


@pytest.mark.slow
def test_every_family_compiles_to_one_graph_and_can_be_exported():
    """In a process of its own: the tests' checks of types cannot be traced."""
    script = Path(__file__).parent / "compiled.py"
    answer = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    checked = {name.partition(",")[0] for name in answer.stdout.splitlines()}
    families = {MODELS[name.partition("?")[0]].__module__.rpartition(".")[2] for name in SMALL}
    assert checked >= families - set(BY_ANOTHER_NAME) | set(BY_ANOTHER_NAME.values())


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


def test_a_shortcut_carries_the_image_where_the_branch_is_silent():
    model = load_model("resnet20").model
    block = model.layer1[0]
    torch.nn.init.zeros_(block.bn2.weight)
    x = torch.randn(2, 16, 8, 8, generator=stream(0, "x")).relu()
    torch.testing.assert_close(block(x), x, rtol=0, atol=0)
