"""Laws of attribution maps and their scores."""

import numpy as np
import pytest
import torch
from maps import small_resnet, small_vit
from scipy.ndimage import gaussian_filter
from torch import nn

import visprism as vp
from visprism.analyses.features.attribution import (
    GRAD_CAM,
    GRADIENT_ACTIVATION,
    RANDOM,
    blurred,
    faithfulness,
    gradient_maps,
    ranks,
)
from visprism.kit.inputs import subject_of

SIDE, PATCH = 16, 4


class Patches(nn.Module):
    """Class 0 is a linear function of one patch; class 1 is constant."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, PATCH, PATCH, bias=False)
        self.head = nn.Linear(6, 2, bias=False)

    def forward(self, x):
        return self.head(self.stem(x).relu()[:, :, 1, 2])


@pytest.fixture
def patches():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, images = Patches().eval(), torch.randn(12, 3, SIDE, SIDE)
    model.stem.weight.data.abs_()
    model.head.weight.data = torch.tensor([[0.02] * 6, [0.0] * 6])
    images[:, :, PATCH : 2 * PATCH, 2 * PATCH : 3 * PATCH] = 5  # patch (1, 2)
    return vp.dissect(model, images), images


def test_a_map_whose_sum_is_zero_up_to_rounding_is_blank():
    """Before the last attention, a LayerNorm makes the gradient orthogonal to patch tokens."""
    model = small_vit(num_classes=5)
    nn.init.normal_(model.head.weight)
    images = torch.randn(4, 3, 32, 32)
    anatomy = vp.dissect(model, images)
    first, last = anatomy["stem"], anatomy["blocks.0.mlp"]
    _, maps = gradient_maps(anatomy, [first, last], images)
    assert maps[GRADIENT_ACTIVATION, first].all()
    assert not maps[GRADIENT_ACTIVATION, last].any()
    assert maps[GRAD_CAM, last].any()


def test_a_map_that_is_right_inserts_the_class_in_the_first_part_and_deletes_it_too(patches):
    anatomy, images = patches
    block = anatomy[0]
    right = torch.zeros(12, SIDE, SIDE)
    right[:, PATCH : 2 * PATCH, 2 * PATCH : 3 * PATCH] = 1
    maps = {(GRAD_CAM, block): right, (RANDOM, block): 1 - right}
    target, order = torch.zeros(12, dtype=torch.long), torch.arange(SIDE**2).expand(12, -1)
    # The patch is a sixteenth: the first part.
    scores = faithfulness(anatomy, images, target, maps, order, 16)
    with torch.no_grad():
        blur, full, empty = (
            anatomy.model(x).double().softmax(1)[:, 0].numpy()
            for x in (blurred(images), images, torch.zeros_like(images))
        )
    for score, method, inner, first, last in (
        ("insertion", GRAD_CAM, full, blur, full),
        ("insertion", RANDOM, blur, blur, full),
        ("deletion", GRAD_CAM, empty, full, empty),
    ):
        expected = (first / 2 + 15 * inner + last / 2) / 16
        assert scores[score, method, block] == pytest.approx(expected, abs=1e-6)


def test_the_blur_is_gaussian_with_an_eighth_of_the_side():
    image = torch.rand(1, 1, SIDE, 24, dtype=torch.float64)
    expected = gaussian_filter(image[0, 0].numpy(), SIDE / 8, mode="mirror", truncate=3)
    np.testing.assert_allclose(blurred(image)[0, 0], expected)


def measured(model, batches, **options):
    return vp.Attribution(**options).measure(subject_of(model, batches), vp.Run())


def test_the_gain_is_over_the_random_map(patches):
    anatomy, images = patches
    scores, _ = measured(anatomy, [images], steps=2)
    for name in ("insertion", "deletion"):
        values = getattr(scores, name)
        gain = values - values[scores.method == RANDOM]
        np.testing.assert_allclose(getattr(scores, f"{name}_gain"), gain, atol=1e-12)


@pytest.mark.parametrize(
    ("build", "name", "module"),
    [(small_resnet, "layer2.0", "layer2.0"), (small_vit, "blocks.0.mlp", "blocks.0")],
)
def test_maps_are_those_of_hooks(build, name, module):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build(num_classes=4).eval()
        images = torch.randn(3, 3, 32, 32)
    anatomy = vp.dissect(model, images)
    outputs = []

    def keep(_module, _inputs, out):
        out.retain_grad()
        outputs.append(out)

    hook = model.get_submodule(module).register_forward_hook(keep)
    logits = model(images.clone().requires_grad_())
    hook.remove()
    logits.max(1).values.sum().backward()
    a, g = outputs[0].detach(), outputs[0].grad
    if build is small_vit:
        a, g = (x[:, 1:].mT.unflatten(2, (4, 4)) for x in (a, g))
    cam = (g.mean((2, 3), keepdim=True) * a).sum(1).clamp(min=0)
    block = anatomy[name]
    _, maps = gradient_maps(anatomy, [block, anatomy[-2]], images)
    torch.testing.assert_close(maps[GRAD_CAM, block], cam, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(
        maps[GRADIENT_ACTIVATION, block], (a * g).sum(1), rtol=1e-3, atol=1e-6
    )


def test_a_map_orders_equal_values_as_the_random_map():
    random, order = torch.rand(2, 4, 4), torch.rand(2, SIDE**2).argsort(1)
    size = (SIDE, SIDE)
    flat = ranks((random, torch.ones(2, 4, 4)), order, size)
    torch.testing.assert_close(flat, ranks((random,), order, size))


def test_a_map_of_zeros_has_no_score(patches):
    anatomy, images = patches
    anatomy.model.head.weight.data[0] *= -1  # Grad-CAM of class 1, which is constant
    images[0] = -5  # read as 0
    scores, _ = measured(anatomy, [images], steps=2)
    cam = scores.select(scores.method == GRAD_CAM)
    assert cam.scored.tolist() == [0] * len(cam)
    assert np.isnan(cam.insertion).all()
    assert np.isfinite(scores.insertion[scores.method == RANDOM]).all()


def test_blocks_behind_the_last_attention_of_a_class_token_have_no_gradient():
    model, images = small_vit(num_classes=4), torch.randn(3, 3, 32, 32)
    scores, _ = measured(model, [images], steps=2, blocks=1)
    assert set(scores.block) == {"blocks.0.mlp"}
    assert scores.without_gradient == "blocks.1.attn, blocks.1.mlp"
