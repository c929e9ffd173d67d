"""Errors of objectives and losses (src/visprism/measure/loss/objective.py and losses.py)."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from visprism import InputError, Objective, smoothed_cross_entropy
from visprism.measure.loss import hvp


# Contracts and errors.
def test_refuses_a_loss_that_gives_one_number(network, images, classes):
    objective = Objective(network, [(images, classes)], loss=functional.cross_entropy)
    with pytest.raises(
        InputError, match=r"loss must return one number per example, got shape \(\) for 10"
    ):
        objective.gradient()


class Drawing(nn.Module):
    """Noise that is never off."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images):
        return self.network(images + torch.randn_like(images))


class Counting(nn.Module):
    """A model that goes by how often it ran."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, images):
        self.runs += 1
        return self.network(images) * self.runs


@pytest.mark.parametrize("kind", [Drawing, Counting])
def test_refuses_a_model_that_is_not_deterministic(kind, network, images, classes):
    model = kind(network).eval()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with pytest.raises(InputError, match=r"must be deterministic, and its logits differ"):
        Objective(model, [(images, classes)])
    for name, buffer in model.named_buffers():
        torch.testing.assert_close(buffer, before[name], rtol=0, atol=0)


def test_refuses_a_model_in_training_mode(network, images, classes):
    with pytest.raises(
        InputError, match=r"must be in evaluation mode. Call model.eval\(\) first"
    ):
        Objective(network.train(), [(images, classes)])


@pytest.mark.parametrize(
    ("selection", "match"),
    [
        ("nothing.like.this", "no parameter matches nothing.like.this: the model has"),
        ("block:nothing", "unknown block 'nothing'"),
        ("stage:9", "no parameter matches stage:9: the model has the stages 0"),
        ("kind:recurrent", "no parameter matches kind:recurrent: the model has the kinds"),
        ([], "the selection of parameters must not be empty"),
    ],
)
def test_refuses_a_selection_that_matches_nothing(
    regression, images, classes, selection, match
):
    with pytest.raises(InputError, match=match):
        Objective(regression, [(images, classes)], parameters=selection)


def test_refuses_images_without_labels(network, images):
    with pytest.raises(InputError, match="targets must be class indices from 0 on, got -1"):
        Objective(network, [(images, torch.full((10,), -1))]).gradient()


def test_refuses_classes_that_the_model_does_not_have(network, images):
    with pytest.raises(
        InputError, match=r"targets must be below 3 \(number of classes of the model\), got 7"
    ):
        Objective(network, [(images, torch.full((10,), 7))]).gradient()


def test_refuses_targets_of_another_shape(network, images):
    with pytest.raises(InputError, match=r"targets must be classes .*, got shape \(10, 4\)"):
        Objective(network, [(images, torch.ones(10, 4))]).gradient()


def test_refuses_a_loss_that_is_not_finite(network, images, classes):
    images = images.clone()
    images[3] = torch.inf
    with pytest.raises(InputError, match="losses must be finite, got 1 of 10 in batch 0"):
        Objective(network, [(images, classes)]).gradient()


def test_refuses_batches_without_targets(network, images):
    with pytest.raises(InputError, match=r"a batch must be \(images, targets\), got Tensor"):
        Objective(network, [images])
    with pytest.raises(InputError, match=r"at least one batch .*, got none"):
        Objective(network, [])


class Rounded(torch.autograd.Function):
    """A straight-through estimator, differentiable once only."""

    @staticmethod
    def forward(_ctx, x):
        return x.round()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(_ctx, grad):
        return grad


def test_names_an_operation_that_cannot_be_differentiated_twice(images, classes):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(72, 8), nn.Linear(8, 3)

        def forward(self, images):
            return self.second(Rounded.apply(self.first(images.flatten(1))).tanh())

    objective = Objective(Model().double().eval(), [(images, classes)])
    with pytest.raises(
        InputError, match=r"must have second derivatives, got none .* functions are Rounded"
    ):
        hvp(objective, objective.theta)


def test_refuses_a_vector_of_another_length(network, images, classes):
    objective = Objective(network, [(images, classes)])
    with pytest.raises(InputError, match="must have one entry per parameter"):
        hvp(objective, torch.ones(5).double())


def test_refuses_batches_that_can_be_read_once(network, images, classes):
    with pytest.raises(InputError, match="batches must be re-iterable, got an iterator"):
        Objective(network, iter([(images, classes)]))


def test_refuses_other_numbers_of_targets_than_images(network, images, classes):
    with pytest.raises(
        InputError, match=r"targets must have one entry per image \(10\), got 4"
    ):
        Objective(network, [(images, classes[:4])]).gradient()


def test_refuses_weights_that_are_not_finite(network, images, classes):
    with torch.no_grad():
        next(network.parameters()).fill_(torch.nan)
    with pytest.raises(InputError, match="parameters must be finite, got 1 that are not"):
        Objective(network, [(images, classes)])


@pytest.mark.parametrize("decay", [-1.0, float("nan"), float("inf")])
def test_refuses_weight_decay_that_is_negative_or_not_finite(network, images, classes, decay):
    with pytest.raises(InputError, match=rf"weight_decay must be .*, got {decay}"):
        Objective(network, [(images, classes)], weight_decay=decay)


def test_refuses_smoothing_that_is_no_part():
    with pytest.raises(InputError, match=r"smoothing must be at least 0 and below 1, got 1\.5"):
        smoothed_cross_entropy(1.5)


class ChangedLater(nn.Module):
    """Changes in place what the gradient of an exponential needs."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images):
        y = self.network(images).exp()
        y.sub_(1)
        return y


def test_refuses_a_change_in_place_of_what_a_gradient_needs(network, images, classes):
    objective = Objective(ChangedLater(network).eval(), [(images, classes)])
    v = torch.ones_like(objective.theta)
    with pytest.raises(InputError, match=r"in place that an earlier operation needs"):
        hvp(objective, v)
