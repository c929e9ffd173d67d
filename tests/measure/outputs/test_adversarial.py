"""Laws of attacks (src/visprism/measure/outputs/{attacks,adversarial}.py)."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from visprism.core.errors import InputError
from visprism.measure.outputs import Attack, adversarial
from visprism.measure.outputs.attacks import _Loss, attacked
from visprism.measure.outputs.bands import band
from visprism.measure.outputs.pixel_space import PixelSpace
from visprism.results.base import Result

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.5)
SPACE = PixelSpace(MEAN, STD)


class Linear(nn.Module):
    """Logits (w x, 0) of the pixels: the NLL of class 1 is log(1 + exp(w x))."""

    def __init__(self, shape=(3, 8, 8)):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.w = nn.Parameter(torch.randn(shape, generator=generator).double())

    def forward(self, x):
        score = (SPACE.pixels_unchecked(x) * self.w).sum((1, 2, 3))
        return torch.stack([score, torch.zeros_like(score)], dim=1)


# The model sees standardised images; what it computes of pixels shall be known.
PixelSpace.pixels_unchecked = lambda self, x: x * self._of(self.std, x) + self._of(self.mean, x)


@pytest.fixture
def linear():
    return Linear().eval()


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(32, 4),
        ).eval()  # fmt: skip


def grey(number=5, size=8, channels=3):
    """Pixels far from 0 and 1, with targets 1."""
    generator = torch.Generator().manual_seed(1)
    pixels = 0.3 + 0.4 * torch.rand(number, channels, size, size, generator=generator)
    return pixels.double(), torch.ones(number, dtype=torch.long)


def score(model, pixels):
    return model(SPACE.standardised(pixels))[:, 0]


# Closed forms.


@pytest.mark.parametrize("epsilon", [0.01, 0.1])
def test_fgsm_raises_the_score_of_a_linear_classifier_by_epsilon_times_the_norm(
    linear, epsilon
):
    pixels, targets = grey()
    found = attacked(linear, pixels, targets, Attack("fgsm", epsilon), SPACE)
    with torch.no_grad():
        rise = score(linear, found) - score(linear, pixels)
    torch.testing.assert_close(
        rise, torch.full_like(rise, epsilon * linear.w.abs().sum().item())
    )


@pytest.mark.parametrize("name", ["fgsm", "pgd"])
def test_in_the_euclidean_norm_it_rises_by_epsilon_times_that_of_the_weights(linear, name):
    pixels, targets = grey()
    found = attacked(
        linear, pixels, targets, Attack(name, 0.5, "l2", steps=60, step_size=0.2), SPACE
    )
    with torch.no_grad():
        rise = score(linear, found) - score(linear, pixels)
    torch.testing.assert_close(
        rise, torch.full_like(rise, 0.5 * linear.w.norm().item()), rtol=1e-3, atol=0
    )


def test_pgd_finds_the_corner_that_fgsm_finds_on_a_linear_classifier(linear):
    pixels, targets = grey()
    one = attacked(linear, pixels, targets, Attack("fgsm", 0.05), SPACE)
    many = attacked(linear, pixels, targets, Attack("pgd", 0.05, steps=8), SPACE)
    torch.testing.assert_close(one, many)


def test_the_gradient_is_that_of_finite_differences(network):
    pixels, _ = grey(2)
    targets = torch.tensor([0, 3])
    loss = _Loss(network.double(), SPACE, targets)
    found = loss.gradient(pixels)
    towards = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(2)).double()
    step = 1e-4

    def each(x):  # in double precision, as differences are small
        logits = network(SPACE.standardised(x))
        return functional.cross_entropy(logits, targets, reduction="none")

    with torch.no_grad():
        slope = (each(pixels + step * towards) - each(pixels - step * towards)) / (2 * step)
    torch.testing.assert_close((found * towards).sum((1, 2, 3)), slope, rtol=1e-4, atol=1e-7)
    assert all(p.grad is None for p in network.parameters())


# PerturbationBall.


@pytest.mark.parametrize("name", ["fgsm", "pgd", "random"])
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("frequency", [None, 0.5])
def test_no_attack_goes_too_far(network, name, norm, frequency):
    pixels, targets = grey(4)
    pixels = pixels.float()
    pixels[0], pixels[1] = 0, 1
    attack = Attack(name, 0.3, norm, steps=4, restarts=2, frequency=frequency)
    change = attacked(network, pixels, targets, attack, SPACE) - pixels
    length = change.abs().amax((1, 2, 3)) if norm == "linf" else change.flatten(1).norm(dim=1)
    assert (length <= 0.3 * (1 + 1e-4)).all()
    assert (length[2:] > 0.05).all()
    if frequency is None:
        assert (pixels + change).min() >= 0
        assert (pixels + change).max() <= 1
    else:
        outside = torch.fft.fft2(change).abs()[..., ~band((8, 8), frequency)]
        assert outside.max() < 1e-4


def test_stronger_attacks_raise_the_loss_more(network):
    pixels, targets = grey(6)
    pixels = pixels.float()
    loss = _Loss(network, SPACE, targets)
    reached = [
        loss.each(attacked(network, pixels, targets, attack, SPACE)).sum()
        for attack in (
            Attack("random", 0.1),
            Attack("fgsm", 0.1),
            Attack("pgd", 0.1, steps=20),
        )
    ]
    assert loss.each(pixels).sum() < reached[1]
    assert reached[0] < reached[1] <= reached[2] + 1e-6


def test_more_starts_never_find_less(network):
    pixels, targets = grey(6)
    loss = _Loss(network, SPACE, targets)
    found = [
        loss.each(
            attacked(
                network, pixels.float(), targets, Attack("pgd", 0.2, steps=2, restarts=n), SPACE
            )
        )
        for n in (1, 2, 4)
    ]
    assert (found[0] <= found[1]).all()
    assert (found[1] <= found[2]).all()


def test_a_loss_without_a_slope_changes_nothing():
    class Deaf(nn.Module):
        def forward(self, x):
            return torch.zeros(len(x), 2) + 0 * x.mean()

    pixels, targets = grey(2)
    pixels = pixels.float()
    for norm in ("linf", "l2"):
        attack = Attack("fgsm", 0.5, norm)
        assert torch.equal(attacked(Deaf().eval(), pixels, targets, attack, SPACE), pixels)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"epsilon": 4.0}, "pixels are 0 ... 1; four steps of 255 are written 4/255"),
        ({"name": "pgd", "step_size": -0.01}, "wants a length above 0"),
    ],
)
def test_refuses_sizes_that_make_no_sense(wrong, match):
    with pytest.raises(InputError, match=match):
        Attack(**wrong)


# The study.


def test_each_attack_has_its_own_accuracy_whatever_the_batch(network):
    pixels, _ = grey(8)
    pixels = pixels.float()
    images = SPACE.standardised(pixels)
    with torch.no_grad():
        targets = network(images).argmax(1)
    attacks = [
        Attack("pgd", 0.2, steps=3),
        Attack("random", 0.2),
        Attack("fgsm", 0.2, frequency=0.5),
    ]
    results = [
        adversarial(
            network,
            list(zip(images.split(size), targets.split(size), strict=True)),
            attacks,
            mean=MEAN,
            std=STD,
        )
        for size in (8, 3)
    ]
    for name in ("accuracy", "drop", "drop_error", "nll_rise", "nll_rise_error"):
        one, cut = (getattr(r, name) for r in results)
        assert one == pytest.approx(cut, abs=1e-5)
    found = results[0]
    assert found.clean_accuracy == 1
    assert found.steps.tolist() == [3, 1, 1]
    np.testing.assert_array_equal(found.frequency, [np.nan, np.nan, 0.5])
    new = attacked(network, pixels, targets, attacks[2], SPACE)
    with torch.no_grad():
        right = (network(SPACE.standardised(new)).argmax(1) == targets).double().mean()
    assert found.accuracy[2] == pytest.approx(float(right))


def test_results_are_saved_and_read(network, tmp_path):
    pixels, targets = grey(2)
    batches = [(SPACE.standardised(pixels.float()), targets)]
    found = adversarial(network, batches, [Attack()], mean=MEAN, std=STD)
    found.save(tmp_path / "a.npz")
    assert Result.load(tmp_path / "a.npz").attack.tolist() == ["fgsm"]
    assert "of the images are right under fgsm with linf 8/255" in found.sentences()[0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "carlini"}, "unknown attack 'carlini'; wants fgsm, pgd, random"),
        ({"norm": "l1"}, "norm is 'l1'; wants linf or l2"),
        ({"ring": "oval"}, "ring is 'oval'; wants square or round"),
        ({"epsilon": 0.0}, "epsilon is 0.0, steps 10, restarts 1; wants a change above 0"),
        ({"steps": 0}, "epsilon is 0.031.*steps 0"),
        ({"frequency": 2.0}, "there is no band at 2.0; wants the middle of one"),
    ],
)
def test_an_attack_that_makes_no_sense_is_refused(options, sentence):
    with pytest.raises(InputError, match=sentence):
        Attack(**options)


class Detached(nn.Sequential):
    """A network that the gradient does not pass."""

    def forward(self, x):
        return super().forward(x.detach())


def test_a_model_that_passes_no_gradient_is_refused_and_random_changes_are_not(network):
    pixels, targets = grey(2)
    batches = [(SPACE.standardised(pixels.float()), targets)]
    given = {"mean": MEAN, "std": STD}
    detached = Detached(network).eval()
    for model in (detached, detached.requires_grad_(requires_grad=False)):
        adversarial(model, batches, [Attack("random")], **given)
        for name in ("fgsm", "pgd"):
            with pytest.raises(InputError, match="Detached passes no gradient back to its im"):
                adversarial(model, batches, [Attack(name)], **given)


def test_the_interval_is_that_of_so_many_images():
    # Newcombe (1998), table I: 15 of 148.
    linear = nn.Sequential(nn.Flatten(), nn.Linear(192, 2)).eval()
    nn.init.zeros_(linear[1].weight)
    linear[1].bias.data = torch.tensor([0.0, 2.0])
    targets = (torch.arange(148) < 15).long()
    images = torch.zeros(148, 3, 8, 8)
    found = adversarial(linear, [(images, targets)], [Attack("random")], mean=MEAN, std=STD)
    assert [round(float(v), 4) for v in (found.low[0], found.high[0])] == [0.0624, 0.1605]


def test_what_a_user_can_get_wrong(network):
    pixels, targets = grey(2)
    images = SPACE.standardised(pixels.float())
    given = {"mean": MEAN, "std": STD}
    with pytest.raises(InputError, match=r"there is no attack; give at least one"):
        adversarial(network, [(images, targets)], [], **given)
    with pytest.raises(InputError, match=r"once their standardisation is undone, and not in 0"):
        adversarial(network, [(images * 9, targets)], [Attack()], **given)
    with pytest.raises(InputError, match="4 channels, but there are 3 means"):
        adversarial(network, [(torch.zeros(2, 4, 8, 8), targets)], [Attack()], **given)
    with pytest.raises(InputError, match="metrics need targets"):
        adversarial(network, [images], [Attack()], **given)
    with pytest.raises(InputError, match=r"8x8 have no frequency in the band at 0\.1 pi"):
        adversarial(network, [(images, targets)], [Attack(frequency=0.1)], **given)
    with pytest.raises(InputError, match="training mode"):
        adversarial(network.train(), [(images, targets)], [Attack()], **given)
