"""Images that a model changes in place stay as they are in the data of the user."""

import pytest
import torch
from maps import classifier
from torch import nn
from torch.nn.functional import cross_entropy

from visprism import Objective, Variance, dissect, observe, predict


class Centered(nn.Sequential):
    """A network that centers its images in place."""

    def forward(self, images):
        return super().forward(images.sub_(0.5))


def logits(model, batch):
    return predict(model, [batch]).logits


def variances(model, batch):
    anatomy = dissect(model, batch[0].clone())
    return torch.from_numpy(observe(anatomy, [batch], [Variance()])[0].variance.copy())


def gradient(model, batch):
    return Objective(model, [batch]).gradient()


def expected_gradient(model, batch):
    loss = cross_entropy(model(batch[0].clone()), batch[1])
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*model.parameters()])])


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (logits, lambda model, batch: model(batch[0].clone()).detach()),
        (variances, variances),
        (gradient, expected_gradient),
    ],
)
def test_a_model_measures_the_images_that_were_passed_and_they_stay(measure, expected):
    model = Centered(*classifier(nn.Conv2d(3, 4, 3), nn.ReLU(), channels=4)).eval()
    batch = torch.rand(6, 3, 8, 8), torch.arange(6) % 5
    images = batch[0].clone()
    measured = measure(model, batch)
    assert torch.equal(batch[0], images)
    torch.testing.assert_close(measured, expected(model, batch))
