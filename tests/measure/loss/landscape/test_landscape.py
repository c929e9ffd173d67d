"""Laws of loss landscapes (src/visprism/measure/loss/landscape/grid.py, evaluation.py)."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from timm.models.mlp_mixer import MlpMixer
from torch import nn
from torch.nn.functional import cross_entropy as mean_cross_entropy
from torch.optim.swa_utils import update_bn

from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.run import Run, TimeBudgetError
from visprism.measure.loss import Objective
from visprism.measure.loss.landscape import (
    curvature_at_origin,
    discard_partial,
    landscape,
    plane_along,
    plane_through,
    random_planes,
    seconds_per_point,
)
from visprism.models.layers.preactivation import PreActBasic
from visprism.models.zoo.alter_resnet import alter_resnet


def squares(logits, targets):
    """Half the squared error of each example: a loss whose landscape is a parabola."""
    return ((logits - targets) ** 2).sum(1) / 2


class Drawing(nn.Module):
    """Dropout that is never off."""

    def forward(self, images):
        return nn.functional.dropout(images, training=True)


class Small(nn.Sequential):
    """Convolutions and their norms, with statistics as training leaves them."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 6, 3, padding=1, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        )


def random_images(n, side=8, classes=5):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(n, 3, side, side, generator=generator)
    return images, torch.randint(classes, (n,), generator=generator)


def trained(model, images):
    """With weights of a fixed draw, and running statistics of these images."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator) + (p.ndim < 2))
        model.train()
        for _ in range(30):
            model(images)
    return model.eval()


@pytest.fixture
def small():
    return trained(Small(), random_images(16)[0])


@pytest.fixture
def batches():
    images, targets = random_images(12)
    return list(zip(images.split(5), targets.split(5), strict=True))


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


# What it measures: closed forms.


def test_of_least_squares_it_is_a_parabola():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).double().eval()
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(7, 3, 2, 2, generator=generator, dtype=torch.float64)
    targets = torch.randn(7, 2, generator=generator, dtype=torch.float64)
    (plane,) = random_planes(model, points=5)
    found = landscape(model, [(images, targets)], [plane], loss=squares)
    x = images.flatten(1)
    residual = model(images).detach() - targets
    d1, d2 = (x @ d["1.weight"].T for d in (plane.first, plane.second))
    a, b = (torch.tensor(c)[:, None, None] for c in (found.a, found.b))
    values = ((residual + a * d1 + b * d2) ** 2).sum(2) / 2
    np.testing.assert_allclose(found.nll, values.mean(1), rtol=1e-12)
    np.testing.assert_allclose(found.nll_error, values.std(1) / 7**0.5, rtol=1e-12)
    center = values[(found.a == 0) & (found.b == 0)]
    np.testing.assert_allclose(found.rise, (values - center).mean(1), atol=1e-12)
    np.testing.assert_allclose(found.rise_error, (values - center).std(1) / 7**0.5, atol=1e-12)
    bend = curvature_at_origin(found)
    np.testing.assert_allclose(bend.fitted, [(d**2).sum() / 7 for d in (d1, d2)])
    np.testing.assert_allclose(bend.slope, [(d * residual).sum() / 7 for d in (d1, d2)])


def test_the_middle_curves_as_the_hessian_says(small, batches):
    small.double()
    small[2], small[5] = (
        nn.Softplus().eval(),
        nn.Softplus().eval(),
    )  # a ReLU has kinks within a step
    exact = [(x.double(), y) for x, y in batches]
    planes = random_planes(small, points=5, reach=0.01, pairs=2)
    found = curvature_at_origin(
        landscape(small, exact, planes), planes, Objective(small, exact)
    )
    np.testing.assert_allclose(found.fitted, found.hessian, rtol=1e-5)
    assert len(found) == 4
    assert abs(found.hessian).min() > 1e-3
    decayed = Objective(small, exact, weight_decay=0.1)
    with pytest.raises(InputError, match=r"objective must have weight_decay=0, .* got 0\.1"):
        curvature_at_origin(landscape(small, exact, planes), planes, decayed)
    with pytest.raises(InputError, match=r"planes must be those of the landscape \(2\), got 1"):
        curvature_at_origin(
            landscape(small, exact, planes), planes[:1], Objective(small, exact)
        )


def test_a_landscape_without_its_middle_has_no_curvature(small, batches):
    found = landscape(small, batches, lines(small))
    with pytest.raises(
        InputError, match="landscape must contain the model's weights at the center"
    ):
        curvature_at_origin(found.select(found.a != 0))


def test_the_l2_term_is_that_of_the_moved_weights(small, batches):
    planes = random_planes(small, points=3, pairs=2)
    found = landscape(small, batches, planes, weight_decay=0.1, decayed="*.weight")
    for pair, a, b, l2 in zip(found.pair, found.a, found.b, found.l2, strict=True):
        there = moved(small, planes[pair], a, b)
        decayed = [p.detach() for n, p in there.named_parameters() if "weight" in n]
        norms = sum(float((p.double() ** 2).sum()) for p in decayed)
        assert l2 == pytest.approx(0.05 * norms, rel=1e-6)


def test_logits_that_overflow_a_softmax_have_their_finite_loss():
    model = nn.Sequential(nn.Flatten(), nn.Linear(3, 2, bias=False)).eval()
    weight = torch.tensor([[1e30, 0.0, 0.0], [0.0, 1e30, 0.0]])
    with torch.no_grad():
        model[1].weight.copy_(weight)
    images = torch.tensor([[1.0, 3.0, 0.0]])[..., None, None]
    found = landscape(model, [(images, torch.tensor([0]))], random_planes(model, points=3))
    assert found.nll[4] == pytest.approx(2e30, rel=1e-6)
    assert np.isfinite(found.nll).all()


def test_the_accuracy_of_soft_targets_is_of_their_most_probable_class(small):
    images, targets = random_images(9)
    soft = 0.8 * nn.functional.one_hot(targets, 5) + 0.04
    hard, mixed = (landscape(small, [(images, t)], lines(small)) for t in (targets, soft))
    np.testing.assert_array_equal(hard.accuracy, mixed.accuracy)
    assert not np.allclose(hard.nll, mixed.nll)


def lines(model):
    return random_planes(model, points=3, lines=True)


# Against another implementation: the model itself, with its weights set by hand.


def hugging_face_vit():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=32, patch_size=8, num_labels=5,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def timm_model(name, **options):
    return lambda: timm.create_model(name, num_classes=5, **options)


VIT = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 24, "num_heads": 2}
MODELS = {
    "vit": timm_model("vit_tiny_patch16_224", **VIT),
    "swin": timm_model(
        "swin_tiny_patch4_window7_224", img_size=32, window_size=4, embed_dim=12,
        depths=(2, 1), num_heads=(2, 4),
    ),
    "pit": timm_model("pit_ti_224", img_size=32, patch_size=8, stride=4, depth=(1, 1, 1)),
    "mixer": lambda: MlpMixer(5, img_size=32, patch_size=8, num_blocks=2, embed_dim=24),
    "convnext": timm_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 16, 16)),
    "resnet": timm_model("resnet18", channels=(4, 8, 8, 8), stem_width=4),
    "mobilenet": timm_model("mobilenetv2_035"),
    "alternet": lambda: alter_resnet(
        PreActBasic, 32, num_classes=5, depths=(1, 1), msas=(0, 1), num_heads=(1, 2),
        head_dim=8, window=3,
    ),
    "levit": timm_model("levit_128s", img_size=64),
    "hugging face vit": hugging_face_vit,
}  # fmt: skip


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
    planes = random_planes(model, points=3, reach=0.5, tables=True)
    found = landscape(model, batches, planes)
    for i in (0, 4, 5, 8):
        there = moved(model, planes[0], found.a[i], found.b[i])
        for module in there.modules():  # what was computed of other weights
            if getattr(module, "attention_bias_cache", None):
                module.attention_bias_cache.clear()
        loss, accuracy = plainly(there, batches)
        assert found.nll[i] == pytest.approx(loss, rel=1e-4)
        assert found.accuracy[i] == accuracy
    assert len(set(found.nll.tolist())) == 9
    for n, tensor in model.state_dict(keep_vars=True).items():
        same, values, stride = before[n]
        assert tensor is same
        assert torch.equal(tensor, values)
        assert tensor.stride() == stride
    after = model(images)
    assert torch.equal(getattr(after, "logits", after), getattr(logits, "logits", logits))


def test_reestimated_statistics_are_those_of_torch(small, batches):
    (plane,) = random_planes(small, points=3)
    images = torch.cat([x for x, _ in batches])
    found = landscape(small, batches, [plane], batch_norm="reestimated", batch_size=12)
    for i in range(9):
        there = moved(small, plane, found.a[i], found.b[i])
        update_bn([images], there)
        assert found.nll[i] == pytest.approx(plainly(there.eval(), batches)[0], rel=1e-5)
    frozen = landscape(small, batches, [plane])
    assert abs(frozen.nll - found.nll).max() > 0.01


def test_a_checkpoint_in_the_plane_has_its_own_loss(small, batches):
    other = copy.deepcopy(small)
    with torch.no_grad():
        other[3].weight.mul_(0.5)
        other[8].bias.add_(0.3)
    plane = plane_through(small, [other.state_dict()], points=5, margin=0.5)
    found = landscape(small, batches, [plane])
    there = found.a.tolist().index(1.0)
    assert found.nll[there] == pytest.approx(plainly(other, batches)[0], rel=1e-5)


def test_half_precision_is_near(small, batches):
    full, half = (
        landscape(small, batches, lines(small), run=Run(compute=Compute(precision=p)))
        for p in ("fp32", "bf16")
    )
    assert half.provenance.precision == "bf16"
    (middle,) = np.flatnonzero((full.a == 0) & (full.b == 0))
    assert half.rounding == pytest.approx(abs(half.nll[middle] - full.nll[middle]), rel=1e-3)
    assert full.rounding == 0
    assert ("bf16 changes" in str(half.findings())) == (half.rounding > 1e-3)
    assert "bf16 changes" in str(replace(half, rounding=0.01).findings())
    assert 0 < abs(half.nll / full.nll - 1).max() < 0.02


# What leaves it unchanged: invariances.


@pytest.mark.parametrize("size", [1, 4, 12, 100])
def test_the_cut_into_batches_does_not_matter(small, batches, size):
    whole = landscape(small, batches, random_planes(small, points=3))
    cut = landscape(small, batches, random_planes(small, points=3), batch_size=size)
    np.testing.assert_allclose(cut.nll, whole.nll, rtol=1e-5)
    assert cut.provenance.batch_size == min(size, 12)


def test_the_same_arguments_give_the_same_bits(small, batches):
    one, other = (landscape(small, batches) for _ in range(2))
    assert len(one) == 21 * 21
    for name, column in one.columns().items():
        np.testing.assert_array_equal(column, other.columns()[name])


class DrawnAnew:
    """Batches that are augmented in another way in every pass."""

    def __init__(self, batches):
        self.batches, self.passes = batches, 0

    def __iter__(self):
        self.passes += 1
        for images, targets in self.batches:
            yield images + self.passes, targets


def test_every_point_sees_the_same_samples(small, batches):
    drawn = DrawnAnew(batches)
    found = landscape(small, drawn, lines(small))
    assert drawn.passes == 1
    fixed = landscape(small, [(x + 1, y) for x, y in batches], lines(small))
    np.testing.assert_array_equal(found.nll, fixed.nll)


def test_a_model_that_wants_its_maps_channels_first_gets_them(small, batches):
    class Viewing(nn.Module):
        def forward(self, x):
            return x.view(len(x), -1)[:, :5]

    model = nn.Sequential(small[0], small[3].eval(), Viewing()).eval()
    found = landscape(model, batches, lines(model))
    assert found.nll[1] == pytest.approx(plainly(model, batches)[0], rel=1e-6)


# Interrupted runs.


class StoppedError(Exception):
    pass


def interrupted_after(points):
    def progress(items, _):
        for done, item in enumerate(items):
            if done == points:
                raise StoppedError
            yield item

    return Run(progress=progress)


def test_an_interrupted_and_resumed_run_gives_the_same_bits(small, batches, tmp_path):
    planes = random_planes(small, points=3, pairs=2)
    path = tmp_path / "part"
    state = {n: t.clone() for n, t in small.state_dict().items()}
    with pytest.raises(StoppedError):
        landscape(small, batches, planes, resume=path, run=interrupted_after(12))
    assert all(torch.equal(t, state[n]) for n, t in small.state_dict().items())
    left = []
    found = landscape(
        small,
        batches,
        planes,
        resume=path,
        run=Run(progress=lambda n, _: left.append(len(n)) or n),
    )
    assert left == [1 + 7]  # the weights themselves, and the points that were missing
    whole = landscape(small, batches, planes)
    for name, column in whole.columns().items():
        np.testing.assert_array_equal(column, found.columns()[name])
    discard_partial(path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_can_be_interrupted_again_and_by_other_processes(small, batches, tmp_path):
    planes = random_planes(small, points=3, pairs=2)
    path = tmp_path / "part"
    for points in (4, 5):
        with pytest.raises(StoppedError):
            landscape(small, batches, planes, resume=path, run=interrupted_after(1 + points))
    with np.load(tmp_path / "part.0") as stored:
        assert stored["number"].tolist() == list(range(9))
        halves = {rank: dict(stored) for rank in (0, 3)}
    for rank, half in halves.items():  # as two processes would have left them
        mine = half["number"] % 2 == (rank == 3)
        half |= {name: half[name][mine] for name in ("number", "row")}
        with (tmp_path / f"part.{rank}").open("wb") as file:
            np.savez(file, **half)
    left = []
    found = landscape(
        small,
        batches,
        planes,
        resume=path,
        run=Run(progress=lambda n, _: left.append(len(n)) or n),
    )
    assert left == [1 + 9]
    np.testing.assert_array_equal(found.nll, landscape(small, batches, planes).nll)


@pytest.mark.parametrize("what", ["model", "data", "settings"])
def test_a_part_of_another_landscape_is_refused(small, batches, tmp_path, what):
    path = tmp_path / "part"
    landscape(small, batches, lines(small), resume=path)
    planes = random_planes(small, points=5 if what == "settings" else 3, lines=True)
    if what == "model":
        with torch.no_grad():
            small[0].weight.mul_(1 + 1e-6)
        planes = lines(small) if what == "settings" else planes
    images = [(x + (what == "data"), y) for x, y in batches]
    with pytest.raises(InputError, match=rf"is of a landscape with other .*{what}"):
        landscape(small, images, planes, resume=path)


def test_a_damaged_part_is_refused(small, batches, tmp_path):
    (tmp_path / "part.0").write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"part\.0 must be a partial landscape"):
        landscape(small, batches, lines(small), resume=tmp_path / "part")


# Contracts and errors.


def test_losses_that_are_not_finite_are_kept_and_told(batches):
    class Exploding(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(5, 3))

        def forward(self, x):
            big = torch.where(self.w.sum() > 15.0, float("inf"), 1.0)
            return (x.mean((2, 3)) @ self.w.T) * big

    model = Exploding().eval()
    plane = plane_along(model, {"w": torch.ones(5, 3)}, points=3)
    found = landscape(model, batches, [plane])
    assert np.isfinite(found.nll).tolist() == [True, True, False]
    assert "the NLL is not finite at 1 of 3 points" in map(str, found.findings())


def test_a_loss_that_is_not_finite_at_the_weights_is_refused(small, batches):
    with torch.no_grad():
        small[8].bias[0] = float("nan")
    with pytest.raises(
        InputError, match="the loss of the model's weights must be finite, got nan"
    ):
        landscape(small, batches, lines(small))


def test_a_model_in_training_mode_is_refused(small, batches):
    with pytest.raises(
        InputError, match=r"must be in evaluation mode. Call model\.eval\(\) first"
    ):
        landscape(small.train(), batches)


def test_a_model_that_draws_random_numbers_is_refused(small, batches):
    noisy = nn.Sequential(Drawing(), small).eval()
    with pytest.raises(InputError, match=r"other logits each time.* turn that off"):
        landscape(noisy, batches, lines(noisy))


def test_data_without_labels_is_refused(small, batches):
    with pytest.raises(InputError, match="targets must be class indices from 0 on, got -1"):
        landscape(small, [(x, torch.full_like(y, -1)) for x, y in batches])
    with pytest.raises(InputError, match=r"a batch must be \(images, targets\), got Tensor"):
        landscape(small, [x for x, _ in batches])
    with pytest.raises(InputError, match="batches must hold at least one image, got none"):
        landscape(small, [])


def test_a_loss_of_one_number_for_the_batch_is_refused(small, batches):
    with pytest.raises(
        InputError, match=r"loss must return one number per example, got shape \(\) for 12"
    ):
        landscape(small, batches, lines(small), loss=mean_cross_entropy)


def test_images_of_several_shapes_are_refused(small):
    odd = [(random_images(2, side)[0], torch.zeros(2, dtype=torch.long)) for side in (8, 9)]
    with pytest.raises(InputError, match=r"images must have one shape, got 3x8x8, 3x9x9"):
        landscape(small, odd)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"batch_norm": "batch"},
            "batch_norm must be 'frozen' or 'reestimated' for landscapes, got 'batch'",
        ),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0, got -1.0"),
        ({"batch_size": -2}, "batch_size must be at least 1, got -2"),
        ({"decayed": "nothing*"}, "no parameter matches nothing"),
    ],
)
def test_settings_that_cannot_be_are_refused(small, batches, options, said):
    with pytest.raises(InputError, match=said):
        landscape(small, batches, lines(small), **options)


def test_everything_is_as_it_was_after_a_failure_too(small, batches):
    seen = []

    def failing(logits, targets):
        seen.append(1)
        if len(seen) == 3:
            raise StoppedError
        return squares(logits, nn.functional.one_hot(targets, 5))

    before = {n: (t.data_ptr(), t.clone()) for n, t in small.state_dict().items()}
    with pytest.raises(StoppedError):
        landscape(small, batches, batch_norm="reestimated", loss=failing)
    for n, t in small.state_dict().items():
        assert (t.data_ptr(), True) == (before[n][0], torch.equal(t, before[n][1]))
    assert "forward" not in vars(small[1])
    assert not any(m.training for m in small.modules())


def test_it_is_written_and_read(small, batches, tmp_path):
    found = landscape(small, batches, random_planes(small, points=3, pairs=2))
    found.save(tmp_path / "x.npz")
    assert type(found).load(tmp_path / "x.npz") == found
    assert found.classes == 5
    assert found.provenance.images == 12


def test_nll_and_l2_add_up_to_the_objective(small, batches):
    found = landscape(small, batches, lines(small), weight_decay=0.1)
    np.testing.assert_array_equal(found.objective, found.nll + found.l2)


def test_a_deadline_ends_it_between_two_batches(small, batches):
    state = {n: t.clone() for n, t in small.state_dict().items()}
    with pytest.raises(TimeBudgetError, match="time budget"):
        landscape(small, batches, run=Run(deadline=0.0))
    assert all(torch.equal(t, state[n]) for n, t in small.state_dict().items())


def test_progress_counts_the_batches_of_all_points(small, batches):
    steps = []

    def progress(items, label):
        for item in items:
            steps.append(label)
            yield item

    for treatment, passes in (("frozen", 1), ("reestimated", 2)):
        steps.clear()
        run = Run(progress=progress)
        landscape(small, batches, lines(small), batch_norm=treatment, batch_size=5, run=run)
        assert steps == ["landscape"] * (1 + 3) * 3 * passes  # points, batches


def test_the_seconds_of_a_point_are_estimated(small, batches):
    assert 0 < seconds_per_point(small, batches) < 1
