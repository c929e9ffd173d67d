"""Passes for logits in a study (src/visprism/kit/model_on_images.py)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rounding import assert_equal_up_to_rounding

from visprism import Attack, Preprocessing, Run, adversarial, predict
from visprism.kit.inputs import subject_of
from visprism.passes.perturbed import PixelSpace, evaluate_perturbed
from visprism.testing import assert_results_equal

NORMALIZATION = {"mean": (0.5,) * 3, "std": (0.25,) * 3}
WAY = Preprocessing((32, 32), **NORMALIZATION)


@pytest.fixture
def data():
    """100 images of 32x32 pixels in eight bits, normalized, in batches of 10."""
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(256, (100, 3, 32, 32), generator=generator) / 255
    targets = torch.randint(5, (100,), generator=generator)
    return list(zip(((pixels - 0.5) / 0.25).split(10), targets.split(10), strict=True))


@pytest.fixture
def images_of_passes(monkeypatch):
    """Number of images of each pass over clean images."""
    numbers = []

    def counted(model, batches, **options):
        numbers.append(sum(len(targets) for _, targets in batches))
        return predict(model, batches, **options)

    monkeypatch.setattr("visprism.kit.model_on_images.predict", counted)
    return numbers


def test_predictions_do_not_depend_on_the_order_of_the_calls(net, data, images_of_passes):
    run = Run()
    subject = replace(subject_of(net(), data, preprocessing=WAY), output_batch_size=48)
    full = replace(subject, passes=type(subject.passes)()).predictions(run)
    images_of_passes.clear()
    first = subject.limited(70).predictions(run)
    again = subject.limited(30).predictions(run)
    then = subject.predictions(run)
    assert images_of_passes == [96, 4]  # batches are full
    for predictions in (first, again, then):
        number = len(predictions)
        assert_equal_up_to_rounding(predictions.logits, full.logits[:number])
        assert torch.equal(predictions.targets, full.targets[:number])
        assert predictions.provenance.images == number
    subject.passes.clean = None
    limited = subject.limited(48).predictions(run)
    assert_equal_up_to_rounding(limited.logits, full.logits[:48])
    assert_equal_up_to_rounding(subject.predictions(run).logits, full.logits)
    assert images_of_passes[2:] == [48, 52]


def darkened(number, pixels, targets, indices):
    return 0.5 * pixels


def test_predictions_that_exist_replace_a_pass_and_change_nothing(net, data):
    model = net()
    clean, space = predict(model, data), PixelSpace(*NORMALIZATION.values())
    attacks, perturbed = [], []
    for given in ({}, {"clean": clean}):
        attacks.append(adversarial(model, data, [Attack("fgsm")], **NORMALIZATION, **given))
        perturbed.append(evaluate_perturbed(model, data, space, 1, darkened, **given)[0])
    assert_results_equal(*attacks, rtol=1e-4)
    for without, given in zip(*(vars(paired).values() for paired in perturbed), strict=True):
        np.testing.assert_allclose(given, without, rtol=1e-4, atol=1e-6)


def test_a_model_that_views_its_feature_maps_as_contiguous_is_measured(net, data):
    class Viewed(type(net())):
        def forward(self, x):
            x = self.conv(x)
            return self.head(x.view(len(x), 4, -1).mean(2))

    model = Viewed().eval()
    logits = torch.cat([model(images) for images, _ in data])
    torch.testing.assert_close(predict(model, data).logits, logits)
