"""Networks that give maps: encoder-decoders, pyramids, segmentation heads."""

import pytest
import torch
import torchvision
from rounding import assert_equal_up_to_rounding
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import DeformConv2d

from visprism import ablate, costs, dissect, watch


class DoubleConv(nn.Sequential):
    def __init__(self, channels, out):
        layers = [nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        more = [nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        super().__init__(*layers, *more)


class PlainUNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        w = [width * 2**i for i in range(3)]
        self.enter, self.pool = DoubleConv(3, w[0]), nn.MaxPool2d(2)
        self.down1, self.down2 = DoubleConv(w[0], w[1]), DoubleConv(w[1], w[2])
        self.wider1 = nn.ConvTranspose2d(w[2], w[1], 2, 2)
        self.up1 = DoubleConv(2 * w[1], w[1])
        self.wider2 = nn.ConvTranspose2d(w[1], w[0], 2, 2)
        self.up2 = DoubleConv(2 * w[0], w[0])
        self.classes = nn.Conv2d(w[0], 4, 1)

    def forward(self, x):
        a = self.enter(x)
        b = self.down1(self.pool(a))
        x = self.down2(self.pool(b))
        x = self.up1(torch.cat([b, self.wider1(x)], 1))
        return self.classes(self.up2(torch.cat([a, self.wider2(x)], 1)))


@pytest.fixture(scope="module")
def images():
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_a_plain_u_net_goes_down_and_up(images):
    torch.manual_seed(0)
    model = PlainUNet().eval()
    anatomy = dissect(model, images)
    assert [(b.name, b.kind, b.stage, b.shape[1]) for b in anatomy] == [
        ("stem", "stem", 0, 32),
        ("enter.3", "conv", 1, 32),
        ("pool", "downsample", 2, 16),
        ("down1", "conv", 2, 16),
        ("pool#2", "downsample", 3, 8),
        ("down2", "conv", 3, 8),
        ("wider1", "upsample", 2, 16),
        ("up1", "conv", 2, 16),
        ("wider2", "upsample", 1, 32),
        ("up2", "conv", 1, 32),
        ("head", "head", 1, 32),
    ]
    assert anatomy.notes == ()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images[:1])
    assert costs(anatomy).macs.sum() == counter.get_total_flops() // 2


def test_its_blocks_give_what_hooks_see(images):
    model = PlainUNet().eval()
    seen, names = {}, ("down1", "down2", "up1", "up2")
    anatomy = dissect(model, images)
    for name in names:
        module = model.get_submodule(name)
        module.register_forward_hook(lambda _m, _a, out, name=name: seen.update({name: out}))
    with torch.no_grad(), watch(anatomy) as maps:
        model(images)
    for name in names:
        assert_equal_up_to_rounding(maps[name], seen[name])


def test_the_main_output_of_torchvisions_segmentation_is_examined(images):
    build = torchvision.models.segmentation.fcn_resnet50
    model = build(weights=None, weights_backbone=None, aux_loss=True).eval()
    anatomy = dissect(model, images)
    names = [b.name for b in anatomy]
    assert "backbone.layer4.2" in names
    assert (names[-1], anatomy[-1].kind, anatomy[-1].shape) == ("head", "head", (21, 32, 32))
    assert any("aux_classifier" in note for note in anatomy.notes)


def test_every_level_of_a_pyramid_is_followed(images):
    model = resnet_fpn_backbone(backbone_name="resnet18", weights=None).eval()
    anatomy = dissect(model, images.repeat(1, 1, 2, 2))
    levels = [b.shape for b in anatomy if b.name.startswith("fpn")]
    assert {(256, side, side) for side in (2, 4, 8, 16)} <= set(levels)
    assert not any("Not on the way" in note for note in anatomy.notes)
    assert costs(anatomy).parameters.sum() == sum(p.numel() for p in model.parameters())


class Branch(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return x + self.inside(x)


class SelfAttention(nn.MultiheadAttention):
    def forward(self, x):
        return super().forward(x, x, x)[0]


class Hybrid(nn.Module):
    """Convolutions, then attention over their positions and a class token."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.convs = nn.Sequential(*(Branch(nn.Conv2d(8, 8, 3, padding=1)) for _ in range(2)))
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        attentions = (Branch(SelfAttention(8, 2, batch_first=True)) for _ in range(2))
        self.attentions, self.head = nn.Sequential(*attentions), nn.Linear(8, 5)

    def forward(self, x):
        x = self.convs(self.patch(x)).flatten(2).mT
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return self.head(self.attentions(x)[:, 0])


def test_the_first_attention_behind_a_class_token_can_be_ablated(images):
    model = Hybrid().eval()
    anatomy = dissect(model, images)
    first = next(b for b in anatomy if b.kind == "attention")
    with torch.no_grad(), ablate(anatomy, first):
        ablated = model(images)
    model.attentions[0] = nn.Identity()
    with torch.no_grad():
        assert_equal_up_to_rounding(ablated, model(images))


class Sampling(nn.Module):
    """A deformable convolution."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 4, 4), nn.Linear(8, 5)
        self.offsets = nn.Conv2d(8, 18, 1)
        self.deformable = DeformConv2d(8, 8, 3, padding=1)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.deformable(x, self.offsets(x)).relu()
        return self.head(x.mean((2, 3)))


def test_a_deformable_convolution_is_named_and_counted(images):
    anatomy = dissect(Sampling().eval(), images)
    assert (anatomy[1].kind, anatomy[1].operator) == ("conv", "deformable convolution")
    assert costs(anatomy).macs[1] == 64 * (18 * 8 + 8 * 8 * 9)
