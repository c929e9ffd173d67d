"""Predictions: logits of models; and pixels that are undone."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from visprism import InputError, Predictions, Preprocessing, calibration, predict
from visprism.images.pixels import normalized
from visprism.passes.perturbed import PixelSpace


def values(metrics):
    return np.array([float(getattr(metrics, name)) for name in metrics.estimates()])


def test_logits_are_those_of_the_model_in_the_order_of_the_images(model, pairs):
    predictions = predict(model, pairs)
    with torch.no_grad():
        torch.testing.assert_close(predictions.logits, model(torch.cat([x for x, _ in pairs])))
    assert predictions.targets.tolist() == [0, 1, 2, 3, 4] * 2
    assert predictions.provenance.images == len(predictions) == 10
    assert predictions.provenance.image_shape == (3, 4, 4)
    assert predictions.provenance.batch_size == 4


def test_probabilities_are_refused_and_their_logarithm_gives_the_same_metrics():
    logits = 3 * torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    p, t = logits.softmax(1), torch.arange(40) % 6
    for given, sentence in (
        (p.half(), "logits must not be probabilities"),
        (torch.cat([logits[:15], p[15:]]), "0 and 1 that sum to 1 in 25 of 40 images"),
        (100 * p, "of at least 0 that sum to 100 in 40 of 40 images"),
    ):
        with pytest.raises(InputError, match=sentence):
            Predictions(given, t)
    # By chance a few rows of logits can look so; and logits may well lie in 0 ... 1.
    Predictions(torch.cat([logits[:30], p[30:]]), t)
    Predictions(logits.sigmoid(), t)
    ours, theirs = (values(calibration(Predictions(x, t))) for x in (logits, p.log()))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6, equal_nan=True)


def test_metrics_take_logits_with_a_gradient_and_any_default_type_of_torch(model, pairs):
    images, targets = pairs[0]
    expected = values(calibration(predict(model, [(images, targets)])))
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        given = Predictions(model(images), targets)
        np.testing.assert_allclose(values(calibration(given)), expected, rtol=1e-5)
    finally:
        torch.set_default_dtype(before)


def test_logits_and_targets_that_cannot_be_are_refused():
    nan = torch.tensor([[0, math.nan, 0], [1, 2, 3]])
    for logits, targets, sentence in (
        (torch.randn(2, 3), [0, 3], "targets must be between 0 and 2 .*, got 3"),
        (torch.randn(2, 3), [0, -1], "got 1 of 2 images without one"),
        (nan, [0, 1], "as the largest logit of 1 of 2 images"),
    ):
        with pytest.raises(InputError, match=sentence):
            Predictions(logits, torch.tensor(targets))


def half_in_training():
    model = nn.Sequential(nn.Flatten(), nn.Flatten()).eval()
    model[1].train()
    return model


def test_models_and_data_without_predictions_are_refused(model, pairs):
    images, _ = pairs[0]
    for given, data, sentence in (
        (model, [(images, torch.rand(4, 5))], "one class index"),
        (model, [images], r"a batch must be \(images, targets\), got Tensor"),
        (model, [], "batches must hold at least one image, got none"),
        (nn.Conv2d(3, 5, 1).eval(), pairs, r"logits \(images, classes\), got \(4, 5, 4, 4\)"),
        (nn.Flatten(), pairs, "model must be in evaluation mode. Call"),
        (half_in_training(), pairs, "model must be in evaluation mode, and its 1 is not"),
    ):
        with pytest.raises(InputError, match=sentence):
            predict(given, data)


def test_rounding_to_half_precision_leaves_pixels_between_0_and_1():
    way, pixels = Preprocessing((4, 4)), torch.tensor([0.0, 1.0]).expand(1, 3, 4, 2)
    rounded = normalized((255 * pixels).byte(), way).bfloat16()
    for images in (rounded, rounded.float()):
        undone = PixelSpace(way.mean, way.std).pixels(images)
        assert undone.dtype == images.dtype
        torch.testing.assert_close(undone.float(), pixels, rtol=0, atol=0.5 / 255)
