"""Images that a model changes in place stay as they are in the data of the user."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from visprism import Objective, Variance, dissect, observe, predict


class Centered(nn.Sequential):
    """A network that centers its images in place."""

    def forward(self, images):
        return super().forward(images.sub_(0.5))


@pytest.fixture
def model():
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)
    return Centered(nn.Conv2d(3, 4, 3), nn.ReLU(), *head).eval()


@pytest.fixture
def batch():
    return torch.rand(6, 3, 8, 8), torch.arange(6) % 5


def test_predictions_are_those_of_the_images_that_were_passed(model, batch):
    images = batch[0].clone()
    logits = predict(model, [batch]).logits
    assert torch.equal(batch[0], images)
    with torch.no_grad():
        torch.testing.assert_close(logits, model(images))


def test_feature_maps_are_those_of_the_images_that_were_passed(model, batch):
    images = batch[0].clone()
    anatomy = dissect(model, images.clone())
    variances = [observe(anatomy, [batch], [Variance()])[0].variance for _ in range(2)]
    assert torch.equal(batch[0], images)
    assert (variances[0] == variances[1]).all()


def test_the_gradient_of_the_loss_is_that_of_the_images_that_were_passed(model, batch):
    images, targets = batch
    gradient = Objective(model, [batch]).gradient()
    logits = nn.Sequential.forward(model, images - 0.5)
    expected = torch.autograd.grad(cross_entropy(logits, targets), [*model.parameters()])
    torch.testing.assert_close(gradient, torch.cat([g.flatten() for g in expected]))
