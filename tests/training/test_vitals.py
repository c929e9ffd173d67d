"""Alarms of what every update has: one in each of many sick trainings, none in healthy ones."""

import pytest
import torch
from timm.models import VisionTransformer
from torch import nn
from torch.nn.functional import cross_entropy
from torchvision.models.resnet import BasicBlock, ResNet

import visprism as vp
from visprism.training.vitals import Vitals

CLASSES, SIDE = 4, 16


def textures(seed, n):
    """Stripes in one of four directions, with noise."""
    generator = torch.Generator().manual_seed(seed)
    place = torch.arange(SIDE).float()
    down, right = torch.meshgrid(place, place, indexing="ij")
    waves = torch.stack([down, right, down + right, down - right]).mul(1.3).sin()
    targets = torch.arange(n) % CLASSES
    noise = torch.randn(n, 3, SIDE, SIDE, generator=generator)
    return waves[targets][:, None] + 0.5 * noise, targets


def cnn():
    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=CLASSES)


def vit():
    return VisionTransformer(
        img_size=SIDE, patch_size=4, embed_dim=16, depth=2, num_heads=2, mlp_ratio=2,
        num_classes=CLASSES,
    )  # fmt: skip


def sgd(lr):
    return lambda model: torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def adamw(lr, decay=0.0):
    return lambda model: torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay)


def trained(make, optimizer_of, sicken=None, each=None, steps=60, loss_of=cross_entropy, **how):
    torch.manual_seed(0)
    model = make()
    optimizer = optimizer_of(model)
    if sicken is not None:
        with torch.no_grad():
            sicken(model)
    options = {"analyses": "calibration", "every": 20} | how
    images, targets = textures(2, 256)
    with vp.Monitor([textures(1, 64)], **options) as monitor:
        for step in range(1, steps + 1):
            rows = torch.randint(0, 256, (32,))
            optimizer.zero_grad()
            loss = loss_of(model(images[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            if each is not None:
                with torch.no_grad():
                    each(model)
            monitor.step(model, step, optimizer, {"loss": loss})
    return {alarm.code: alarm.step for alarm in monitor.alarms}


def shrinking(model):
    for parameter in model.parameters():
        parameter.mul_(0.8)


def growing(model):
    model.conv1.weight.mul_(1.2)


def dead_branch(model):
    model.layer3[0].bn1.bias.fill_(-100)


def dead_mlp(model):
    model.blocks[0].mlp.fc1.bias.fill_(-100)


def new_head(model):
    model.fc = nn.Linear(512, CLASSES)


def frozen_head(model):
    for parameter in model.head.parameters():
        parameter.zero_().requires_grad_(False)


def rising(logits, targets):
    """The gradient ascends, and the value is the loss."""
    loss = cross_entropy(logits, targets)
    return 2 * loss.detach() - loss


@pytest.mark.parametrize(
    ("code", "latest", "make", "optimizer", "how"),
    [
        ("VP207", 1, cnn, sgd(1e30), {}),
        ("VP207", 10, vit, sgd(30.0), {}),
        ("VP208", 40, cnn, sgd(1e-3), {"loss_of": rising}),
        ("VP209", 120, vit, adamw(1e-3), {"sicken": frozen_head, "steps": 120}),
        ("VP210", 4, cnn, sgd(100.0), {}),
        ("VP210", 32, cnn, sgd(0.01), {"each": shrinking}),
        ("VP210", 60, cnn, sgd(0.01), {"each": growing}),
        ("VP211", 16, cnn, sgd(0.0), {}),
        ("VP211", 16, vit, adamw(0.0), {}),
        ("VP211", 32, cnn, sgd(0.01), {"sicken": new_head}),
        ("VP212", 20, cnn, sgd(0.01), {"sicken": dead_branch}),
        ("VP212", 20, vit, adamw(1e-3), {"sicken": dead_mlp}),
    ],
)
def test_a_sick_training_raises_its_alarm(code, latest, make, optimizer, how):
    alarms = trained(make, optimizer, **how)
    assert alarms.get(code, 10**9) <= latest, alarms


@pytest.mark.parametrize(
    ("make", "optimizer"), [(cnn, sgd(0.1)), (cnn, adamw(1e-3)), (vit, adamw(1e-3, 0.05))]
)
def test_a_healthy_training_raises_none(make, optimizer):
    """Also with the running statistics of five updates, on maps of one position."""
    watched = ("variance", "singular-values", "token-norms", "attention", "calibration")
    assert not trained(make, optimizer, steps=100, every=5, share=1.0, analyses=watched)


def test_a_check_does_not_count_what_is_frozen_or_not_given_to_the_optimizer():
    model = cnn()
    for of_head in (True, False):
        model.requires_grad_(of_head)
        model.fc.requires_grad_()
        vitals = Vitals(5)
        optimizer = torch.optim.SGD(model.fc.parameters(), lr=0.1)
        for step in range(1, 30):
            cross_entropy(model(textures(1, 4)[0]), torch.arange(4)).backward()
            optimizer.step()
            assert not vitals.after(model, step, [optimizer])
