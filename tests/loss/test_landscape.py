"""Laws of loss landscapes (src/visprism/loss/)."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from landscape_cases import least_squares, random_images, squares
from scipy import stats
from small_models import hugging_face_config
from torch import nn
from torch.nn.functional import cross_entropy as mean_cross_entropy
from torch.optim.swa_utils import update_bn
from transformers import ViTForImageClassification

import visprism as vp
from visprism.loss.points import reestimate


def moved(model, plane, a, b):
    """A copy of the model with its weights at a point, by its own state dict."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for way, direction in ((a, plane.first), (b, plane.second)):
        for name, part in direction.items():
            state[name] += way * part
    other = copy.deepcopy(model)
    other.load_state_dict(state)
    return other.eval()


@torch.no_grad()
def plainly(model, batches):
    """Mean loss and accuracy, as anybody would compute them."""
    images, targets = (torch.cat(part) for part in zip(*batches, strict=True))
    logits = model(images)
    logits = getattr(logits, "logits", logits)
    right = (logits.argmax(1) == targets).double().mean()
    return float(mean_cross_entropy(logits.double(), targets)), float(right)


def test_of_least_squares_it_is_a_parabola():
    model, ((images, targets),) = least_squares()
    (plane,) = vp.random_planes(model, seed=1)
    surface = vp.landscape(model, [(images, targets)], loss=squares, run=vp.Run(seed=1))
    x = images.flatten(1)
    residual = model(images).detach() - targets
    d1, d2 = (x @ d["1.weight"].T for d in (plane.first, plane.second))
    a, b = (torch.tensor(c)[:, None, None] for c in (surface.a, surface.b))
    values = ((residual + a * d1 + b * d2) ** 2).sum(2) / 2
    np.testing.assert_allclose(surface.nll, values.mean(1), rtol=1e-12)
    t = stats.t.ppf(0.975, 6)
    half = t * values.std(1) / 7**0.5
    np.testing.assert_allclose(surface.nll.high - surface.nll, half, rtol=1e-9)
    center = values[(surface.a == 0) & (surface.b == 0)]
    np.testing.assert_allclose(surface.rise, (values - center).mean(1), atol=1e-12)
    half = t * (values - center).std(1) / 7**0.5
    np.testing.assert_allclose(surface.rise.high - surface.rise, half, atol=1e-10)


def test_logits_that_overflow_a_softmax_have_their_finite_loss():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 2, bias=False)).eval()
    weight = torch.tensor([[1e30, 0.0, 0.0], [0.0, 1e30, 0.0]])
    with torch.no_grad():
        model[1].weight.copy_(weight)
    images = torch.tensor([[1.0, 3.0, 0.0]])[..., None, None]
    surface = vp.landscape(
        model, [(images, torch.tensor([0]))], vp.random_planes(model, points=3)
    )
    assert surface.nll[4] == pytest.approx(2e30, rel=1e-6)
    assert np.isfinite(surface.nll).all()


def test_the_accuracy_of_soft_targets_is_of_their_most_probable_class(small):
    images, targets = random_images(9)
    soft = 0.8 * nn.functional.one_hot(targets, 5) + 0.04
    hard, mixed, exact = (
        vp.landscape(small, [(images, t)], vp.random_planes(small, points=3))
        for t in (targets, soft, nn.functional.one_hot(targets, 5))
    )
    np.testing.assert_array_equal(hard.accuracy, mixed.accuracy)
    assert not np.allclose(hard.nll, mixed.nll)
    np.testing.assert_allclose(exact.nll, hard.nll)


def test_another_loss_gets_logits_of_the_precision_of_the_model(small, batches):
    weighted = nn.CrossEntropyLoss(weight=torch.ones(5), reduction="none")
    surface = vp.landscape(small, batches, vp.random_planes(small, points=3), loss=weighted)
    plain = vp.landscape(small, batches, vp.random_planes(small, points=3))
    np.testing.assert_allclose(surface.nll, plain.nll, rtol=1e-5)


def timm_model(name, **options):
    return lambda: timm.create_model(name, num_classes=5, **options)


VIT = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 24, "num_heads": 2}
MODELS = {
    "vit": timm_model("vit_tiny_patch16_224", **VIT),
    "resnet": timm_model("resnet18", channels=(4, 8, 8, 8), stem_width=4),
    "levit": timm_model("levit_128s", img_size=64),
    "hugging face vit": lambda: ViTForImageClassification(hugging_face_config(num_labels=5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_its_own_loss_at_every_point(name):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MODELS[name]().eval()
        for p in model.parameters():
            if not p.any():  # a branch or head that begins in zeros says nothing
                nn.init.normal_(p, std=0.2)
    images, targets = random_images(6, side=64 if name == "levit" else 32)
    batches = [(images, targets)]
    model(images)  # some compute something once, and keep it
    before = {
        n: (t, t.clone(), t.stride()) for n, t in model.state_dict(keep_vars=True).items()
    }
    logits = model(images)
    planes = vp.random_planes(model, points=3, reach=0.5, perturb_positions=True)
    surface = vp.landscape(model, batches, planes)
    for i in (0, 4, 5, 8):
        there = moved(model, planes[0], surface.a[i], surface.b[i])
        for module in there.modules():  # what was computed of other weights
            if getattr(module, "attention_bias_cache", None):
                module.attention_bias_cache.clear()
        loss, accuracy = plainly(there, batches)
        assert surface.nll[i] == pytest.approx(loss, rel=1e-4)
        assert surface.accuracy[i] == accuracy
    assert len(set(surface.nll.tolist())) == 9
    for n, tensor in model.state_dict(keep_vars=True).items():
        same, values, stride = before[n]
        assert tensor is same
        assert torch.equal(tensor, values)
        assert tensor.stride() == stride
    after = model(images)
    assert torch.equal(getattr(after, "logits", after), getattr(logits, "logits", logits))


def test_reestimated_statistics_are_those_of_torch(small, batches):
    (plane,) = vp.random_planes(small, points=3)
    images = torch.cat([x for x, _ in batches])
    surface = vp.landscape(small, batches, [plane], batch_norm="reestimated")
    for i in range(9):
        there = moved(small, plane, surface.a[i], surface.b[i])
        update_bn([images], there)
        assert surface.nll[i] == pytest.approx(plainly(there.eval(), batches)[0], rel=1e-5)
    frozen = vp.landscape(small, batches, [plane])
    assert abs(frozen.nll - surface.nll).max() > 0.01


def test_statistics_of_several_parts_are_the_total_ones():
    """Also where the parts are of other sizes and means."""
    images = torch.cat([torch.randn(30, 3, 4, 4), 5 + 2 * torch.randn(11, 3, 4, 4)])
    norm = nn.BatchNorm2d(3).eval()
    reestimate(norm, [images[:9], images[9:30], images[30:]], vp.Compute())
    torch.testing.assert_close(norm.running_mean, images.mean((0, 2, 3)))
    total = images.var((0, 2, 3), correction=0)
    torch.testing.assert_close(norm.running_var, total, rtol=0.003, atol=0)


def test_half_precision_is_near(small, batches):
    full, half = (
        vp.landscape(
            small,
            batches,
            vp.random_planes(small, points=3),
            run=vp.Run(compute=vp.Compute(precision=p)),
        )
        for p in ("fp32", "bf16")
    )
    assert half.provenance.precision == "bf16"
    (middle,) = np.flatnonzero((full.a == 0) & (full.b == 0))
    assert half.rounding == pytest.approx(abs(half.nll[middle] - full.nll[middle]), rel=1e-3)
    assert full.rounding == 0
    assert "bf16 changes" in str(replace(half, rounding=0.01).findings())
    some_roundings = 10 * torch.finfo(torch.bfloat16).eps
    assert 0 < abs(half.nll / full.nll - 1).max() < some_roundings


@pytest.mark.parametrize("treatment", ["frozen", "reestimated"])
def test_the_cut_into_batches_does_not_matter(small, treatment, monkeypatch):
    """Also with last batches of 1, 2, 10 and 50."""
    images, targets = random_images(250)
    planes = vp.random_planes(small, points=3)

    def nll(size):
        cut = list(zip(images.split(size), targets.split(size), strict=True))
        return vp.landscape(small, cut, planes, batch_norm=treatment).nll

    uncut = nll(250)
    for size in (8, 24, 62, 83, 100):
        np.testing.assert_allclose(nll(size), uncut, rtol=1e-5)
    monkeypatch.setattr("visprism.loss.points._MOST_IMAGES", 90)  # statistics of three parts
    uncut = nll(250)
    for size in (8, 24, 62, 83, 100):
        np.testing.assert_allclose(nll(size), uncut, rtol=1e-5)


def test_losses_that_are_not_finite_are_kept_and_told(batches):
    class Exploding(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(5, 3))

        def forward(self, x):
            big = torch.where(self.w.sum() > 15.0, float("inf"), 1.0)
            return (x.mean((2, 3)) @ self.w.T) * big

    model = Exploding().eval()
    across = torch.tensor([1.0, -1.0, 0.0]).repeat(5, 1)
    plane = vp.plane_along(model, {"w": torch.ones(5, 3)}, {"w": across}, points=3)
    surface = vp.landscape(model, batches, [plane])
    assert np.isfinite(surface.nll).tolist() == 3 * [True, True, False]
    assert "the NLL is not finite at 3 of 9 points" in map(str, surface.findings())


def test_a_deadline_ends_it_between_two_batches(small, batches):
    state = {n: t.clone() for n, t in small.state_dict().items()}
    with pytest.raises(vp.TimeBudgetError, match="time budget"):
        vp.landscape(small, batches, run=vp.Run(deadline=0.0))
    assert all(torch.equal(t, state[n]) for n, t in small.state_dict().items())


class DrawnAnew:
    """Batches that are augmented in another way in every pass."""

    def __init__(self, batches):
        self.batches, self.passes = batches, 0

    def __iter__(self):
        self.passes += 1
        for images, targets in self.batches:
            yield images + self.passes, targets


def test_every_point_sees_the_same_samples(small, batches):
    redrawn, planes = DrawnAnew(batches), vp.random_planes(small, points=3)
    surface = vp.landscape(small, redrawn, planes)
    assert redrawn.passes == 1
    fixed = vp.landscape(small, [(x + 1, y) for x, y in batches], planes)
    np.testing.assert_array_equal(surface.nll, fixed.nll)
