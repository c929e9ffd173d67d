"""Laws of attribution maps and their scores (measure/features/attribution.py)."""

import numpy as np
import pytest
import timm
import torch
from torch import nn

from visprism import InputError, dissect
from visprism.measure.features.attribution import attribution
from visprism.analyses.features.attribution import faithfulness, gradient_maps
from visprism.analyses.features.attribution import GRAD_CAM, GRADIENT_ACTIVATION, RANDOM

SIDE, PATCH = 16, 4


class Patches(nn.Module):
    """Class 0 is a linear function of one patch; class 1 is constant."""

    def __init__(self, *, pooled=False):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, PATCH, PATCH, bias=False)
        self.head = nn.Linear(6, 2, bias=False)
        self.pooled = pooled

    def forward(self, x):
        x = self.stem(x).relu()
        return self.head(x.mean((2, 3)) if self.pooled else x[:, :, 1, 2])


@pytest.fixture
def patches():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, images = Patches().eval(), torch.randn(12, 3, SIDE, SIDE)
    model.stem.weight.data.abs_()
    model.head.weight.data = torch.tensor([[0.02] * 6, [0.0] * 6])
    images[:, :, PATCH : 2 * PATCH, 2 * PATCH : 3 * PATCH] = 5  # patch (1, 2)
    return dissect(model, images), images


# Closed forms.


def test_only_the_patch_that_is_read_is_relevant(patches):
    anatomy, images = patches
    target, maps = gradient_maps(anatomy, [anatomy[0]], images)
    logits = anatomy.model(images)
    assert target.tolist() == [0] * 12
    product = maps[GRADIENT_ACTIVATION, anatomy[0]]
    expected = torch.zeros(12, 4, 4)
    expected[:, 1, 2] = logits[:, 0].detach()  # linear: the map sums to the logit
    torch.testing.assert_close(product, expected)


def test_a_map_that_is_right_inserts_the_class_in_the_first_part_and_deletes_it_too(patches):
    anatomy, images = patches
    block = anatomy[0]
    right = torch.zeros(12, SIDE, SIDE)
    right[:, PATCH : 2 * PATCH, 2 * PATCH : 3 * PATCH] = 1
    maps = {(GRAD_CAM, block): right, (RANDOM, block): 1 - right}
    target = torch.zeros(12, dtype=torch.long)
    scores = faithfulness(
        anatomy, images, target, maps, steps=8, seed=0, indices=range(12)
    )  # the patch is a sixteenth: half of the first part
    from visprism.analyses.features.attribution import _blurred

    with torch.no_grad():
        ends = [
            anatomy.model(x).double().softmax(1)[:, 0].numpy()
            for x in (_blurred(images), images, torch.zeros_like(images))
        ]
    blurred, full, empty = ends
    assert scores["insertion", GRAD_CAM, block] == pytest.approx(
        (blurred / 2 + 7 * full + full / 2) / 8
    )
    assert scores["insertion", RANDOM, block] == pytest.approx(
        (blurred / 2 + 7 * blurred + full / 2) / 8, abs=1e-6
    )
    assert scores["deletion", GRAD_CAM, block] == pytest.approx(
        (full / 2 + 7 * empty + empty / 2) / 8
    )
    assert empty == pytest.approx(0.5)


def test_of_a_pooled_linear_head_grad_cam_is_cam():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model, images = Patches(pooled=True).eval(), torch.randn(5, 3, SIDE, SIDE)
    anatomy = dissect(model, images)
    target, maps = gradient_maps(anatomy, [anatomy[0]], images)
    features = model.stem(images).relu()
    cam = torch.einsum("bc,bchw->bhw", model.head.weight[target], features) / 16
    torch.testing.assert_close(maps[GRAD_CAM, anatomy[0]], cam.clamp(min=0).detach())
    torch.testing.assert_close(maps[GRADIENT_ACTIVATION, anatomy[0]], cam.detach())


# What leaves it unchanged.


def test_batches_change_nothing_and_the_model_is_given_back(patches):
    anatomy, images = patches
    before = [p.clone() for p in anatomy.model.parameters()]
    one, _ = attribution(anatomy, [images], steps=4)
    cut, _ = attribution(anatomy, images.split(5), steps=4)
    for name in ("insertion", "deletion", "insertion_gain", "insertion_gain_low"):
        np.testing.assert_allclose(getattr(one, name), getattr(cut, name), atol=1e-6)
    assert all(
        torch.equal(a, b) for a, b in zip(before, anatomy.model.parameters(), strict=True)
    )
    assert all(p.grad is None for p in anatomy.model.parameters())
    assert one.insertion_gain[one.method == RANDOM].tolist() == [0] * int(
        (one.method == RANDOM).sum()
    )


def test_a_shift_of_all_logits_changes_no_map(patches):
    anatomy, images = patches
    _, maps = gradient_maps(anatomy, [anatomy[0]], images)
    anatomy.model.head.bias = nn.Parameter(torch.full((2,), 3.0))
    _, shifted = gradient_maps(dissect(anatomy.model, images), [anatomy[0]], images)
    for one, other in zip(maps.values(), shifted.values(), strict=True):
        torch.testing.assert_close(one, other)


# Against another implementation.


@pytest.mark.parametrize("kind", ["resnet18", "vit_tiny_patch16_224"])
def test_maps_are_those_of_hooks(kind):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        options = {"img_size": 32, "patch_size": 8, "depth": 2} if "vit" in kind else {}
        model = timm.create_model(kind, num_classes=4, **options).eval()
        images = torch.randn(3, 3, 32, 32)
    anatomy = dissect(model, images)
    name, module = (
        ("blocks.0.mlp", model.blocks[0]) if "vit" in kind else ("layer2.1", model.layer2[1])
    )
    outputs = []

    def keep(_module, _inputs, out):
        out.retain_grad()
        outputs.append(out)

    hook = module.register_forward_hook(keep)
    logits = model(images.clone().requires_grad_())
    hook.remove()
    logits.max(1).values.sum().backward()
    a, g = outputs[0].detach(), outputs[0].grad
    if "vit" in kind:
        a, g = (x[:, 1:].mT.unflatten(2, (4, 4)) for x in (a, g))
    cam = torch.stack(
        [
            sum(g[i, c].mean() * a[i, c] for c in range(a.shape[1])).clamp(min=0)
            for i in range(3)
        ]
    )
    block = anatomy[name]
    _, maps = gradient_maps(anatomy, [block, anatomy[-2]], images)
    torch.testing.assert_close(maps[GRAD_CAM, block], cam, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(
        maps[GRADIENT_ACTIVATION, block], (a * g).sum(1), rtol=1e-3, atol=1e-6
    )


# Sentences and errors.


def test_the_sentence_names_a_maximum_and_its_baseline(patches):
    anatomy, images = patches
    scores, maps = attribution(anatomy, [images], steps=4)
    best = scores.method == GRADIENT_ACTIVATION
    assert (scores.insertion_gain[best] > 0.02).all()
    assert (scores.deletion_gain[best] < -0.05).all()
    text = scores.findings()[0].text
    assert text.startswith("gradient x activation: largest insertion gain over a random map of")
    assert len(maps.pictures()) == 4 * len(set(scores.block.tolist()))


def test_a_model_without_logits_is_refused():
    model = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.ReLU()).eval()
    images = torch.randn(2, 3, SIDE, SIDE)
    with pytest.raises(InputError, match=r"Sequential must return logits \(images, cl"):
        attribution(dissect(model, images), [images])
