"""Alarms: none in a healthy training, and one in each of six that are made ill."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from internals import Estimated, alarms_of
from torch import nn
from torch.nn.functional import cross_entropy

import visprism as vp
from visprism import Monitor
from visprism.results import OutlierTokens

CLASSES, SIDE = 4, 16


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.scale * self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.place = nn.Parameter(0.1 * torch.randn(1, (SIDE // 4) ** 2, 16))
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.norm(self.blocks(x)).mean(1))


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [[nn.Conv2d(c, 16, 3, padding=1), nn.ReLU()] for c in (3, 16, 16)]
        self.stages = nn.Sequential(*(nn.Sequential(*pair) for pair in layers))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        return self.head(self.stages(x).mean((2, 3)))


def textures(seed, n):
    """Stripes in one of four directions, with noise."""
    generator = torch.Generator().manual_seed(seed)
    place = torch.arange(SIDE).float()
    down, right = torch.meshgrid(place, place, indexing="ij")
    waves = torch.stack([down, right, down + right, down - right]).mul(1.3).sin()
    targets = torch.arange(n) % CLASSES
    noise = torch.randn(n, 3, SIDE, SIDE, generator=generator)
    return waves[targets][:, None] + 0.5 * noise, targets


def grown_logits(model):
    for block in model.blocks:
        block.attention.in_proj_weight[:32] *= 30


def collapsed(model):
    """All tokens along one direction."""
    weight = model.patch.weight
    weight.copy_(weight[:1].expand_as(weight).clone())
    model.place.zero_()
    for block in model.blocks:
        block.attention.out_proj.weight.zero_()
        block.scale.zero_()


def dead(model):
    model.stages[1][0].bias -= 100


def outliers(model):
    model.place[0, 3] += 40


def idle(model):
    model.blocks[1].scale.zero_()
    model.blocks[1].scale.requires_grad_(False)


def healthy(model):
    pass


def trained(make, fall, lr, analyses, steps=40, every=10):
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    monitor = Monitor([textures(1, 32)], analyses, every=every, share=1.0)
    images, targets = textures(2, 64)
    for step in range(1, steps + 1):
        if step == 11:
            with torch.no_grad():
                fall(model)
        optimizer.zero_grad()
        cross_entropy(model(images), targets).backward()
        optimizer.step()
        monitor.step(model, step, optimizer)
    return model, {
        step: [alarm[-6:-1] for alarm in study.header["alarms"]]
        for step, study in monitor.studies.items()
    }


FEATURES = ("variance", "singular-values", "token-norms", "attention")


@pytest.fixture(scope="module")
def token_norms():
    """Studies of a network whose outliers have these shares in blocks of this kind."""
    study = vp.examine({"net": ViT().eval()}, [textures(1, 32)], analyses=["token-norms"])
    (entry,) = study.entries
    (result,) = (r for r in entry.results if isinstance(r, OutlierTokens))

    def of(share, kind):
        shares = Estimated(
            np.full(len(result), float(share)), result.share.low, result.share.high
        )
        changed = replace(result, share=shares, kind=np.full(len(result), kind))
        return replace(study, entries=(replace(entry, results=(changed,)),))

    return of


@pytest.mark.parametrize(
    ("shares", "kind", "alarm"),
    [
        ((0, 0.02, 0.02), "attention", True),
        ((0, 0.002, 0.002), "attention", False),
        ((0, 0, 0.02), "attention", False),
        ((0.02, 0.02, 0.02), "attention", False),
        ((0, 0.02, 0.02), "conv", False),
    ],
)
def test_outliers_are_an_alarm_where_attention_keeps_them(token_norms, shares, kind, alarm):
    codes = [a.code for a in alarms_of([token_norms(share, kind) for share in shares])]
    assert codes == ["VP204"] * alarm


@pytest.mark.parametrize("make", [ViT, CNN])
def test_a_healthy_training_raises_no_alarm(make):
    model, raised = trained(make, healthy, 0.05, FEATURES, steps=100, every=25)
    assert not any(raised.values()), raised
    accuracy = vp.calibration(vp.predict(model.eval(), [textures(3, 64)]))
    assert accuracy.answers()[0].value > 0.5


@pytest.mark.parametrize(
    ("code", "make", "fall", "analysis"),
    [
        ("VP201", ViT, grown_logits, "attention"),
        ("VP202", ViT, collapsed, "singular-values"),
        ("VP203", CNN, dead, "variance"),
        ("VP204", ViT, outliers, "token-norms"),
        ("VP206", ViT, idle, "variance"),
    ],
)
def test_an_ill_training_raises_its_alarm(caplog, code, make, fall, analysis):
    _, raised = trained(make, fall, 1e-3, analysis)
    assert code not in raised[10]
    assert code in raised[40]
    (sentence,) = [r.message for r in caplog.records if f"[{code}]" in r.message]
    assert sentence.startswith("step ")


def test_curvature_above_the_threshold_for_ten_measurements_is_an_alarm():
    """Label noise and a learning rate beyond 2 / eigenvalue, frozen by an update of 0."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e3)
    monitor = Monitor([textures(1, 16)], "training-curvature", every=1, share=1.0)
    codes = []
    for step in range(1, 12):
        study = monitor.step(model, step, optimizer)
        codes.append(study.header["alarms"])
    assert not any(codes[:9])
    assert all("VP205" in alarms[0] for alarms in codes[9:])
