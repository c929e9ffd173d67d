"""Laws of attacks and of robust accuracy."""

from copy import deepcopy
from itertools import pairwise, product

import pytest
import torch
from attacked import MEAN, SPACE, STD, attacked, gray, predicted, small_network
from scipy.stats import kstest
from torch import nn

from visprism import Adversarial, Attack, InputError, adversarial
from visprism.analyses.predictions.attacks import AttackLoss, PerturbationBall, attack_images


@pytest.fixture
def network():
    return small_network()


def robust(model, batches, attacks):
    return adversarial(model, batches, attacks, mean=MEAN, std=STD)


def test_the_gradient_is_that_of_finite_differences(network):
    pixels, _ = gray(2)
    targets = torch.tensor([0, 3])
    network = network.double()
    values = AttackLoss(network, SPACE, targets).values(pixels)
    towards = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(2)).double()
    step = 1e-4

    def log_odds(x):
        probabilities = network(SPACE.normalized(x)).softmax(1)
        return -torch.logit(probabilities.gather(1, targets[:, None])[:, 0])

    with torch.no_grad():
        rise = log_odds(pixels + step * towards) - log_odds(pixels - step * towards)
        logits = network(SPACE.normalized(pixels))
    slope = rise / (2 * step)
    torch.testing.assert_close(
        (values.gradient * towards).sum((1, 2, 3)), slope, rtol=1e-4, atol=1e-7
    )
    assert all(p.grad is None for p in network.parameters())
    expected = [max(z - row[t] for i, z in enumerate(row) if i != t)
                for row, t in zip(logits.tolist(), targets.tolist(), strict=True)]  # fmt: skip
    assert values.margin.tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "norm"),
    [
        ("fgsm", "linf"),
        ("pgd", "linf"),
        ("pgd", "l2"),
        ("apgd", "linf"),
        ("apgd", "l2"),
        ("random", "l2"),
    ],
)
def test_no_attack_goes_too_far(network, name, norm):
    pixels, _ = gray(4)
    pixels = pixels.float()
    pixels[0], pixels[1] = 0, 1
    targets = predicted(network, pixels)
    attack = Attack(name, 0.3, norm, steps=4, restarts=2)
    change = attacked(network, pixels, targets, attack, SPACE) - pixels
    length = change.abs().amax((1, 2, 3)) if norm == "linf" else change.flatten(1).norm(dim=1)
    assert (length <= 0.3 * (1 + 1e-4)).all()
    assert (length[2:] > 0.05).all()
    assert (pixels + change).min() >= 0
    assert (pixels + change).max() <= 1


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_starts_are_uniform_in_the_ball(norm):
    pixels = torch.full((2000, 1, 1, 3), 0.5, dtype=torch.float64)
    ball = PerturbationBall(Attack("pgd", 0.3, norm))
    start = ball.random_start(pixels, 0, range(2000), 0) / 0.3
    share = (start + 1) / 2 if norm == "linf" else start.flatten(1).norm(dim=1) ** 3
    assert kstest(share.flatten().numpy(), "uniform").pvalue > 0.01


def test_more_starts_and_more_steps_never_find_less(network):
    pixels = gray(6)[0].float()
    targets = predicted(network, pixels)
    loss, margins = AttackLoss(network, SPACE, targets), []
    for restarts, steps in ((1, 2), (2, 2), (4, 2), (4, 9)):
        attack = Attack("pgd", 0.2, steps=steps, restarts=restarts, step_size=0.5)
        margins.append(loss.margin(attacked(network, pixels, targets, attack, SPACE)))
    for fewer, more in pairwise(margins):
        assert (fewer <= more).all()


def test_misclassified_images_stay_as_they_are(network):
    pixels = gray(4)[0].float()
    targets = predicted(network, pixels)
    targets[::2] = (targets[::2] + 1) % 4
    result = attack_images(network, pixels, targets, Attack("pgd", 0.5), SPACE)
    assert result.correct.tolist() == [False, True, False, True]
    assert torch.equal(result.pixels[::2], pixels[::2])
    assert not torch.equal(result.pixels[1::2], pixels[1::2])


def scaled(model, factor):
    """The same decisions with another scale of the logits."""
    model = deepcopy(model)
    for parameter in model[4].parameters():
        parameter.data *= factor
    return model


@pytest.mark.parametrize("name", ["fgsm", "pgd"])
def test_larger_logits_do_not_make_a_model_look_more_robust(network, name):
    # Logit gaps of a trained network, and beyond 17, where 1 - p_t is 0 in float32.
    networks = scaled(network, 60), scaled(network, 60 * 4096)
    pixels = gray(40)[0].float()
    batches = [(SPACE.normalized(pixels), predicted(network, pixels))]
    attacks = [Attack(name, 0.01, loss=loss) for loss in ("cross-entropy", "margin")]
    results = [robust(model, batches, attacks) for model in networks]
    with torch.no_grad():
        leading = networks[1](SPACE.normalized(pixels)).topk(2).values
    assert ((leading[:, 0] - leading[:, 1]) > 17).sum() > 20
    assert 0.05 < results[0].accuracy[1] < 0.95
    assert results[1].accuracy[1] == results[0].accuracy[1]  # the margin: exactly
    assert results[1].accuracy[0] <= results[0].accuracy[0] + 0.05
    assert results[1].accuracy[2] <= results[0].accuracy[2] + 0.05  # the worst case
    assert (results[1].zero_gradient[:2] == 0).all()


def test_the_worst_case_is_correct_under_every_attack(network):
    pixels = gray(40)[0].float()
    targets = predicted(network, pixels)
    attacks = [Attack("fgsm", 0.02), Attack("random", 0.02), Attack("pgd", 0.02, steps=3)]
    batches = [(SPACE.normalized(pixels), targets)]
    rows = robust(network, batches, [*attacks, Attack("fgsm", 0.1)])
    every = [pixels, *(attacked(network, pixels, targets, a, SPACE) for a in attacks)]
    with torch.no_grad():
        logits = [network(SPACE.normalized(x)) for x in every]
    correct = torch.stack([z.argmax(1) == targets for z in logits]).all(0)
    assert rows.attack.tolist() == ["fgsm", "random", "pgd", "fgsm", "worst case"]
    assert rows.accuracy[4] == pytest.approx(correct.double().mean().item())
    assert rows.drop == pytest.approx(1 - rows.accuracy)
    assert rows.epsilon[4] == 0.02
    single, worst = rows.answers()  # of each size; models are compared by their images
    assert worst.by_unit.tolist() == correct.double().tolist()
    assert (worst.value, single.value) == (rows.accuracy[4], rows.accuracy[3])


def test_a_loss_without_a_slope_changes_nothing_and_is_reported():
    class Deaf(nn.Module):
        def forward(self, x):
            return torch.zeros(len(x), 2) + 0 * x.mean()

    pixels, targets = gray(2)
    pixels = pixels.float()
    for norm in ("linf", "l2"):
        attack = Attack("fgsm", 0.5, norm)
        assert torch.equal(attacked(Deaf().eval(), pixels, targets, attack, SPACE), pixels)
    batches = [(SPACE.normalized(pixels), 0 * targets)]
    rows = robust(Deaf().eval(), batches, [Attack("fgsm")])
    assert rows.zero_gradient.tolist() == [1.0]
    # A constant output is right on both images, which says nothing at a chance of 1 in 2.
    assert [f.code for f in rows.findings()] == ["", "VP103", "VP101"]


def test_the_cut_into_batches_does_not_matter(network):
    pixels = gray(8)[0].float()
    images, targets = SPACE.normalized(pixels), predicted(network, pixels)
    attacks = [Attack(name, 0.2, steps=3) for name in ("pgd", "random", "fgsm")]
    batches = ([*zip(images.split(n), targets.split(n), strict=True)] for n in (8, 3))
    results = [robust(network, cut, attacks) for cut in batches]
    for name in ("accuracy", "drop"):
        one, cut = (getattr(r, name) for r in results)
        assert one == pytest.approx(cut, abs=1e-5)


class Detached(nn.Sequential):
    """A network that the gradient does not pass."""

    def forward(self, x):
        return super().forward(x.detach())


def test_a_model_that_passes_no_gradient_is_refused_and_random_changes_are_not(network):
    pixels, targets = gray(2)
    batches = [(SPACE.normalized(pixels.float()), targets)]
    detached = Detached(network).eval()
    for model in (detached, detached.requires_grad_(requires_grad=False)):
        robust(model, batches, [Attack("random")])
        for name in ("fgsm", "pgd"):
            with pytest.raises(InputError, match="Detached must pass a gradient to its images"):
                robust(model, batches, [Attack(name)])


def test_the_grid_holds_every_attack_at_every_size_once():
    attacks = Adversarial(epsilons=(0.01, 0.02), norm="l2", steps=7, restarts=3).grid()
    expected = {(name, "cross-entropy") for name in ("random", "fgsm", "pgd")}
    expected |= {("pgd", "margin")}
    made = [(a.name, a.loss, a.epsilon) for a in attacks]
    assert len(made) == len(set(made)) == 8
    assert set(made) == {(*pair, e) for pair, e in product(expected, (0.01, 0.02))}
    assert {(a.norm, a.steps, a.restarts) for a in attacks} == {("l2", 7, 3)}
    # One gradient of FGSM, 7 steps from 3 starts with 2 losses, none for random signs.
    assert sum(a.gradients for a in attacks) == 2 * (1 + 2 * 7 * 3)
    assert Attack("pgd", 0.2, steps=10).stride == pytest.approx(2.5 * 0.2 / 10)
