"""Errors of objectives, products and landscapes: one sentence each."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from visprism import (
    Compute,
    InputError,
    Objective,
    Run,
    landscape,
)
from visprism.loss.products import hvp


@pytest.mark.parametrize(
    ("batches", "match"),
    [
        (lambda b: [(b[0], torch.full((10,), -1))], "class indices from 0 to 2, got -1"),
        (lambda b: [(b[0], torch.full((10,), 7))], "class indices from 0 to 2, got 7"),
        (lambda b: [(b[0], torch.ones(10, 4))], r"targets must be classes .*, got .*\(10, 4\)"),
        (lambda b: [(b[0], b[1][:4])], r"one entry per image \(10\), got shape \(4,\)"),
        (lambda b: [b[0]], r"a batch must be \(images, targets\), got Tensor"),
        (lambda b: [b][:0], "at least one batch .*, got none"),
        (lambda b: iter([b]), "batches must be re-iterable, got an iterator"),
        (lambda b: [(b[0] / (b[0] != b[0][3]), b[1])], "losses must be finite, got 1 of 10 in"),
    ],
)
def test_refuses_data(convolutional, images, classes, batches, match):
    with pytest.raises(InputError, match=match):
        Objective(convolutional, batches((images, classes))).gradient()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"parameters": "nothing.like.this"}, "no parameter matches nothing.like.this: the"),
        ({"parameters": "block:nothing"}, "unknown block 'nothing'"),
        ({"parameters": "stage:9"}, "no parameter matches stage:9: the model has the stages 0"),
        ({"parameters": "kind:recurrent"}, "no parameter matches kind:recurrent: the model"),
        ({"parameters": []}, "the selection of parameters must not be empty"),
        ({"weight_decay": -1.0}, r"weight_decay must be .*, got -1\.0"),
        ({"weight_decay": float("nan")}, "weight_decay must be .*, got nan"),
        ({"loss": functional.cross_entropy}, r"one number per example, got shape \(\) for 10"),
        ({"run": Run(compute=Compute(precision="bf16"))}, "precision must be 'fp32' for deriv"),
    ],
)
def test_refuses_options(regression, images, classes, options, match):
    with pytest.raises(InputError, match=match):
        Objective(regression, [(images, classes)], **options).gradient()


class Drawing(nn.Module):
    """Noise that is never off."""

    def forward(self, images):
        return images + torch.randn_like(images)


def test_refuses_a_model_that_is_not_deterministic(regression, images, classes):
    model = nn.Sequential(Drawing(), regression).eval()
    for measure in (Objective, landscape):
        with pytest.raises(InputError, match=r"must be deterministic, and its logits differ"):
            measure(model, [(images, classes)])


def test_refuses_a_model_in_training_mode_or_with_infinite_weights(regression, images, classes):
    batches = [(images, classes)]
    for measure in (Objective, landscape):
        with pytest.raises(InputError, match=r"must be in evaluation mode. Call model.eval"):
            measure(regression.train(), batches)
        regression.eval()
    with torch.no_grad():
        regression[1].bias.fill_(torch.nan)
    with pytest.raises(InputError, match="parameters must be finite, got 1 that are not"):
        Objective(regression, batches)
    with pytest.raises(InputError, match="loss of the model's weights must be finite, got nan"):
        landscape(regression, batches)


def test_refuses_statistics_of_a_single_value(images, classes):
    model = nn.Sequential(nn.Flatten(), nn.Linear(72, 4), nn.BatchNorm1d(4)).double().eval()
    batches = [(images[:1], classes[:1])]
    for measure in (
        lambda: landscape(model, batches, batch_norm="reestimated"),
        lambda: Objective(model, batches, batch_norm="batch").nll(),
    ):
        with pytest.raises(InputError, match="more than one image for the statistics of Batch"):
            measure()


class Halved(torch.autograd.Function):
    """Differentiable once only."""

    @staticmethod
    def forward(_ctx, x):
        return x / 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(_ctx, grad):
        return grad / 2


class Halving(nn.Module):
    def forward(self, x):
        return Halved.apply(x).tanh()


def test_names_an_operation_that_cannot_be_differentiated_twice(images, classes):
    model = nn.Sequential(nn.Flatten(), nn.Linear(72, 8), Halving(), nn.Linear(8, 3))
    objective = Objective(model.double().eval(), [(images, classes)])
    with pytest.raises(
        InputError, match=r"second derivatives, got none .* functions are Halved"
    ):
        hvp(objective, objective.theta)


class ChangedLater(nn.Module):
    """Changes in place what the gradient of an exponential needs."""

    def forward(self, x):
        return x.exp().sub_(1)


class WithoutGradient(nn.Module):
    """A layer that runs under no_grad."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    @torch.no_grad()
    def forward(self, x):
        return self.layer(x)


def network(*last):
    return nn.Sequential(nn.Flatten(), nn.Linear(72, 8), nn.Tanh(), *last).eval()


def quantized():
    model = network(nn.Linear(8, 3))
    model[3] = torch.ao.quantization.quantize_dynamic(nn.Sequential(model[3]))[0]
    return model.eval()


@pytest.mark.filterwarnings("ignore")  # of torch.ao
@pytest.mark.parametrize(
    ("make", "match"),
    [
        (quantized, r"gradient with respect to 1\.weight, got none.*2 of 2 parameters"),
        (
            lambda: network(WithoutGradient(nn.Linear(8, 8)), nn.Linear(8, 3)),
            r"gradient with respect to 1\.weight, got none.*4 of 6 parameters have none",
        ),
        (lambda: network(nn.Linear(8, 3), ChangedLater()), "differentiable, .* inplace operat"),
    ],
    ids=["quantized head", "no_grad", "changed in place"],
)
def test_refuses_a_model_without_gradients(make, match, images, classes):
    with pytest.raises(InputError, match=match):
        Objective(make(), [(images.float(), classes)])
