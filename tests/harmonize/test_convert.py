"""Laws of `harmonize`: CNNs of all libraries with MSA blocks in the place of Conv blocks."""

import copy
from functools import partial

import pytest
import timm
import torch
import torchvision
from small_models import Residual
from timm.layers import LayerNorm2d
from torch import nn

from visprism import InputError, conv_blocks, dissect, harmonize_model, load_model
from visprism.harmonize.blocks import select_blocks
from visprism.models.layers.residual_blocks import MSABlock, PostActMSABlock, PreActBasic
from visprism.models.zoo.alter_resnet import alter_resnet
from visprism.models.zoo.preact_resnet import preact_resnet


def timms(name, **arguments):
    return lambda: timm.create_model(name, num_classes=5, **arguments)


CNNS = {
    "resnet18": timms("resnet18", channels=(8, 8, 16, 16)),
    "convnext": timms("convnext_atto", depths=(1, 1, 2, 1)),
}
OTHERS = {
    "mobilenetv2": timms("mobilenetv2_035"),
    "torchvision's regnet": lambda: torchvision.models.regnet_x_400mf(num_classes=5),
}
PRE = {"convnext", "mobilenetv2"}


@pytest.fixture(
    params=[*CNNS, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def cnn(request):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return request.param, (CNNS | OTHERS)[request.param]().eval()


def msas(model):
    return [n for n, m in model.named_modules() if isinstance(m, MSABlock | PostActMSABlock)]


@pytest.mark.slow
@torch.no_grad()
def test_every_library_s_cnn_becomes_an_alternet(cnn, images):
    name, model = cnn
    before = copy.deepcopy(model.state_dict())
    blocks = conv_blocks(model, images)
    same = harmonize_model(model, images, ())
    torch.testing.assert_close(same(images), model(images), rtol=0, atol=0)

    changed = harmonize_model(model, images, "end-of-stage", head_dim=8)
    last = [max(b.name for b in blocks if b.stage == s) for s in {b.stage for b in blocks}]
    assert len(msas(changed)) == len(last)
    expected = MSABlock if name in PRE else PostActMSABlock
    assert all(isinstance(changed.get_submodule(n), expected) for n in msas(changed))
    assert changed(images).shape == model(images).shape
    grids = {b.name: (b.shape, b.stage) for b in dissect(model, images).blocks}
    for block in dissect(changed, images).blocks:
        if block.name in grids and block.name not in msas(changed):
            assert (block.shape, block.stage) == grids[block.name]

    after = changed.state_dict()
    for key, value in before.items():  # the model is as it was, and its other blocks are kept
        torch.testing.assert_close(model.state_dict()[key], value, rtol=0, atol=0)
        if not key.startswith(tuple(f"{n}." for n in msas(changed))):
            torch.testing.assert_close(after[key], value, rtol=0, atol=0)


def test_the_new_blocks_are_attention_and_learn(cnn, images):
    _, model = cnn
    changed = harmonize_model(model, images, "end-of-stage", head_dim=8).train()
    changed(images).square().sum().backward()
    dead = [n for n, p in changed.named_parameters() if p.grad is None]
    assert not dead
    kinds = {b.name: b.kind for b in dissect(changed.eval(), images).blocks}
    assert all("attention" in kind for n, kind in kinds.items() if n in msas(changed))


def test_a_preactivation_resnet_becomes_alter_resnet(images):
    depths, counts = (1, 2, 1, 3), (1, 1, 1, 2)
    model = preact_resnet(PreActBasic, 32, depths=depths, num_classes=5).eval()
    changed = harmonize_model(model, images, counts)
    alter = alter_resnet(
        PreActBasic, 32, num_classes=5, depths=depths, msas=counts, window=4
    ).eval()
    shapes = {name: p.shape for name, p in alter.state_dict().items()}
    assert {name: p.shape for name, p in changed.state_dict().items()} == shapes
    alter.load_state_dict(changed.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(changed(images), alter(images), rtol=0, atol=0)


def test_norms_and_stochastic_depth_are_of_the_replaced_block(images):
    convnext = harmonize_model(
        timms("convnext_atto", drop_path_rate=0.3)().eval(), images, "end-of-stage"
    )
    last = convnext.get_submodule(msas(convnext)[-1])
    assert isinstance(last.norm1, LayerNorm2d)
    assert last.drop_path.drop_prob == pytest.approx(0.3)
    norm = partial(timm.layers.GroupNorm, num_groups=4, eps=1e-3)
    resnet = timms("resnet10t", channels=(8, 8, 16, 16), norm_layer=norm)().eval()
    changed = harmonize_model(resnet, images, "end-of-stage")
    norm1 = changed.get_submodule(msas(changed)[0]).norm1
    assert (norm1.eps, norm1.num_groups) == (1e-3, 4)


class OddlyMade(nn.Module):
    """One block is called twice, another has two names."""

    def __init__(self):
        super().__init__()
        self.stem, self.twice, self.once = nn.Conv2d(3, 8, 3), Residual(), Residual()
        self.last = self.alias = Residual(nn.InstanceNorm2d)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.twice(self.twice(self.stem(x)))
        return self.head(self.alias(self.once(x)).mean((2, 3)))


def test_a_block_with_two_names_is_replaced_under_both_and_one_called_twice_is_not(images):
    model = OddlyMade().eval()
    assert [block.name for block in conv_blocks(model, images)] == ["once", "last"]
    changed = harmonize_model(model, images, ["last"], head_dim=8)
    assert changed.last is changed.alias
    assert isinstance(changed.last, PostActMSABlock)
    assert isinstance(changed.last.norm1, nn.InstanceNorm2d)
    assert isinstance(changed.once, Residual)


PLACEMENTS = [
    ("alternating", "must be .alternate. or .end-of-stage., .*, got .alternating."),
    (["layer9.0"], r"residual Conv blocks \(layer1.0, .*\), got 'layer9.0'"),
    (["layer1.0", "layer1.0"], "got a name twice"),
    ((1, 1), r"one number per stage, at most \[2, 2, 2\], .*, got \(1, 1\)"),
    ((0, 0, 3), r"every second of \[3, 3, 3\] blocks, got \(0, 0, 3\)"),
]


def test_refuses_a_placement_that_does_not_fit(images):
    blocks = conv_blocks(load_model("resnet20").model, images)
    for placement, said in PLACEMENTS:
        with pytest.raises(InputError, match=said):
            select_blocks(blocks, placement)
