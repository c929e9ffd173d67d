"""Laws of robust accuracy over a data set (src/visprism/measure/outputs/adversarial.py)."""

import numpy as np
import pytest
import torch
from attacked import MEAN, SPACE, STD, attacked, gray, small_network
from torch import nn

from visprism import Attack, InputError, Result, adversarial


@pytest.fixture
def network():
    return small_network()


def test_each_attack_has_its_own_accuracy_whatever_the_batch(network):
    pixels, _ = gray(8)
    pixels = pixels.float()
    images = SPACE.normalized(pixels)
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
        )[0]
        for size in (8, 3)
    ]
    for name in ("accuracy", "drop", "drop_low", "nll_rise", "nll_rise_error"):
        one, cut = (getattr(r, name) for r in results)
        assert one == pytest.approx(cut, abs=1e-5)
    result = results[0]
    assert result.clean_accuracy == 1
    assert result.steps.tolist() == [3, 0, 1, 0]  # the last is the worst case of both
    np.testing.assert_array_equal(result.frequency, [np.nan, np.nan, 0.5, np.nan])
    new = attacked(network, pixels, targets, attacks[2], SPACE)
    with torch.no_grad():
        right = (network(SPACE.normalized(new)).argmax(1) == targets).double().mean()
    assert result.accuracy[2] == pytest.approx(float(right))


def test_results_are_saved_and_read(network, tmp_path):
    pixels, targets = gray(2)
    batches = [(SPACE.normalized(pixels.float()), targets)]
    result, _ = adversarial(network, batches, [Attack()], mean=MEAN, std=STD)
    result.save(tmp_path / "a.npz")
    assert Result.load(tmp_path / "a.npz").attack.tolist() == ["fgsm"]
    assert "under fgsm (cross-entropy) with L∞ norm 8/255" in result.findings()[0].text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"name": "carlini"},
            "name must be one of apgd, apgd-t, fgsm, pgd, random, got 'carlini'",
        ),
        ({"norm": "l1"}, "norm must be one of linf, l2, got 'l1'"),
        ({"band_shape": "oval"}, "band_shape must be one of square, round, got 'oval'"),
        ({"epsilon": 0.0}, "epsilon must be finite and positive, got 0.0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"frequency": 2.0}, "frequency must be between 0 and 1 .* got 2.0"),
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
    pixels, targets = gray(2)
    batches = [(SPACE.normalized(pixels.float()), targets)]
    given = {"mean": MEAN, "std": STD}
    detached = Detached(network).eval()
    for model in (detached, detached.requires_grad_(requires_grad=False)):
        adversarial(model, batches, [Attack("random")], **given)
        for name in ("fgsm", "pgd"):
            with pytest.raises(InputError, match="Detached must pass a gradient to its images"):
                adversarial(model, batches, [Attack(name)], **given)


def test_the_interval_is_that_of_so_many_images():
    # Newcombe (1998), table I: 15 of 148.
    linear = nn.Sequential(nn.Flatten(), nn.Linear(192, 2)).eval()
    nn.init.zeros_(linear[1].weight)
    linear[1].bias.data = torch.tensor([0.0, 2.0])
    targets = (torch.arange(148) < 15).long()
    images = torch.zeros(148, 3, 8, 8)
    result, _ = adversarial(linear, [(images, targets)], [Attack("random")], mean=MEAN, std=STD)
    assert [round(float(v), 4) for v in (result.low[0], result.high[0])] == [0.0624, 0.1605]


def test_what_a_user_can_get_wrong(network):
    pixels, targets = gray(2)
    images = SPACE.normalized(pixels.float())
    given = {"mean": MEAN, "std": STD}
    with pytest.raises(InputError, match="attacks must hold at least one, got none"):
        adversarial(network, [(images, targets)], [], **given)
    with pytest.raises(
        InputError, match="pixels must be between 0 and 1 when the normalization is undone"
    ):
        adversarial(network, [(images * 9, targets)], [Attack()], **given)
    with pytest.raises(InputError, match="one value for each of 4 channels, got 3 and 3"):
        adversarial(network, [(torch.zeros(2, 4, 8, 8), targets)], [Attack()], **given)
    with pytest.raises(InputError, match="this measurement needs targets"):
        adversarial(network, [images], [Attack()], **given)
    with pytest.raises(InputError, match=r"holds frequencies of 8x8 images, got 0\.1"):
        adversarial(network, [(images, targets)], [Attack(frequency=0.1)], **given)
    with pytest.raises(InputError, match="evaluation mode"):
        adversarial(network.train(), [(images, targets)], [Attack()], **given)
