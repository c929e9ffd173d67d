"""Alarms: none in a healthy training, and one in each of six that are made ill."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from timm.models import VisionTransformer
from torch import nn
from torch.nn.functional import cross_entropy

import visprism as vp
from visprism import Monitor
from visprism.estimates.estimated import Estimated
from visprism.results import OutlierTokens
from visprism.study.alarms import alarms_of

CLASSES, SIDE = 4, 16


def vit():
    return VisionTransformer(
        img_size=SIDE, patch_size=4, embed_dim=16, depth=2, num_heads=2, mlp_ratio=2,
        num_classes=CLASSES, class_token=False, global_pool="avg",
    )  # fmt: skip


def cnn():
    layers = [(nn.Conv2d(c, 16, 3, padding=1), nn.ReLU()) for c in (3, 16, 16)]
    stages = (nn.Sequential(*pair) for pair in layers)
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES))


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
        block.attn.qkv.weight[:32] *= 200


def collapsed(model):
    """All tokens along one direction."""
    weight = model.patch_embed.proj.weight
    weight.copy_(weight[:1].expand_as(weight).clone())
    model.pos_embed.zero_()
    for block in model.blocks:
        block.attn.proj.weight.zero_()
        block.mlp.fc2.weight.zero_()


def dead(model):
    model[1][0].bias -= 100


def outliers(model):
    model.pos_embed[0, 3] += 40


def idle(model):
    for parameter in model.blocks[1].mlp.fc2.parameters():
        parameter.zero_().requires_grad_(False)


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


def test_outliers_are_an_alarm_where_attention_keeps_them():
    study = vp.examine({"net": vit().eval()}, [textures(1, 32)], analyses=["token-norms"])
    (result,) = (r for r in study.entries[0].results if isinstance(r, OutlierTokens))

    def alarms(kind, *shares):
        """Of studies whose outliers have these shares in blocks of this kind."""
        changed = [
            replace(
                result,
                share=Estimated(np.full(len(result), x)),
                kind=np.array([kind] * len(result)),
            )
            for x in shares
        ]
        entries = (replace(study.entries[0], results=(r,)) for r in changed)
        return [a.code for a in alarms_of([replace(study, entries=(e,)) for e in entries])]

    assert alarms("attention", 0.0, 0.02, 0.02) == ["VP204"]
    assert not alarms("attention", 0.0, 0.002, 0.002)
    assert not alarms("attention", 0.0, 0.0, 0.02)
    assert not alarms("attention", 0.02, 0.02, 0.02)
    assert not alarms("conv", 0.0, 0.02, 0.02)


@pytest.mark.parametrize("make", [vit, cnn])
def test_a_healthy_training_raises_no_alarm(make):
    model, raised = trained(make, healthy, 0.05, FEATURES, steps=100, every=25)
    assert not any(raised.values()), raised
    accuracy = vp.calibration(vp.predict(model.eval(), [textures(3, 64)]))
    assert accuracy.answers()[0].value > 0.5


@pytest.mark.parametrize(
    ("code", "make", "fall", "analysis"),
    [
        ("VP201", vit, grown_logits, "attention"),
        ("VP202", vit, collapsed, "singular-values"),
        ("VP203", cnn, dead, "variance"),
        ("VP204", vit, outliers, "token-norms"),
        ("VP206", vit, idle, "variance"),
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
