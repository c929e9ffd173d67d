"""Predictions: logits of models, of ensembles and of stochastic passes."""

import math

import pytest
import torch
from internals import dropout_modules
from torch import nn

from visprism import InputError, Predictions, Run, calibration, predict


class Network(nn.Sequential):
    """A classifier with dropout."""

    def __init__(self):
        layers = nn.Flatten(), nn.Linear(48, 16), nn.BatchNorm1d(16), nn.Dropout()
        super().__init__(*layers, nn.Linear(16, 5))
        self.eval()


@pytest.fixture
def model():
    return Network()


@pytest.fixture
def pairs():
    """Ten labeled images, in batches of four."""
    images = torch.randn(10, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    return list(zip(images.split(4), (torch.arange(10) % 5).split(4), strict=True))


def test_logits_are_those_of_the_model_in_the_order_of_the_images(model, pairs):
    predictions = predict(model, pairs)
    with torch.no_grad():
        torch.testing.assert_close(predictions.logits, model(torch.cat([x for x, _ in pairs])))
    assert predictions.targets.tolist() == [0, 1, 2, 3, 4] * 2
    assert predictions.provenance.images == len(predictions) == 10
    assert predictions.provenance.image_shape == (3, 4, 4)
    assert predictions.provenance.batch_size == 4


def test_stochastic_passes_differ_by_dropout_alone_and_the_model_stays_as_it_was(model, pairs):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    predictions = predict(model, pairs, samples=5)
    assert predictions.logits.shape == (5, 10, 5)
    assert (predictions.logits[0] != predictions.logits[1]).any()
    assert not any(module.training for module in model.modules())
    for name, value in model.state_dict().items():  # batch norm has counted nothing
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    torch.testing.assert_close(torch.get_rng_state(), state)


def test_the_mean_of_many_stochastic_passes_is_the_pass_without_dropout(model, pairs):
    # The logits are linear in what dropout scales, so that their mean is not changed.
    many = predict(model, pairs[:1], samples=400).logits
    error = many.std(0) / 400**0.5
    assert ((many.mean(0) - predict(model, pairs[:1]).logits).abs() < 5 * error).all()


def test_a_seed_repeats_its_passes_and_another_does_not(model, pairs):
    first, again, other = (
        predict(model, pairs, samples=2, run=Run(seed=seed)).logits for seed in (0, 0, 1)
    )
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert (first != other).any()


def test_several_models_are_an_ensemble(model, pairs):
    other = Network()
    nn.init.zeros_(other[-1].weight)
    predictions = predict([model, other], pairs)
    torch.testing.assert_close(predictions.logits[0], predict(model, pairs).logits)
    torch.testing.assert_close(predictions.logits[1], predict(other, pairs).logits)
    assert calibration(predictions).passes == 2


class FusedAttention(nn.Module):
    """Attention that passes its dropout probability on if it is itself in training mode."""

    def __init__(self, p: float):
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 2, 2)
        self.attn_drop = nn.Dropout(p)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.embed(x).flatten(2).mT
        p = self.attn_drop.p if self.training else 0.0
        x = nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=p)
        return self.head(x.mean(1))


class MultiHeadAttention(nn.Module):
    """Attention of torch, which has its dropout probability as a number."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = x.flatten(2)[..., :4]
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


class UnusedDropout(nn.Module):
    """Has dropout that no pass applies."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout()
        self.linear = nn.Linear(48, 5)

    def forward(self, x):
        return self.linear(x.flatten(1))


class DropPath(nn.Module):
    """Stochastic depth, as timm has it."""

    def __init__(self):
        super().__init__()
        self.drop_prob = 0.5


@pytest.mark.parametrize("network", [lambda: FusedAttention(0.5), MultiHeadAttention])
def test_dropout_of_attention_is_drawn(network, pairs):
    model = network().eval()
    logits = predict(model, pairs, samples=4).logits
    assert all((logits[0] != other).any() for other in logits[1:])
    assert not any(module.training for module in model.modules())


def test_passes_that_are_all_equal_are_refused(pairs):
    with pytest.raises(InputError, match="samples must be 1 for UnusedDropout, all 3 passes"):
        predict(UnusedDropout().eval(), pairs, samples=3)


def test_normalization_and_stochastic_depth_stay_in_evaluation_mode():
    block = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.5), DropPath())
    assert dropout_modules(block.eval()) == [block[2]]


class OfDict(nn.Module):
    """A model that is called by keyword and returns a dict, as Hugging Face's are."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values):
        return {"features": pixel_values, "logits": self.model(pixel_values)}


def test_a_mapping_of_images_and_a_dict_of_outputs_are_understood(model, pairs):
    given = [({"pixel_values": x}, t) for x, t in pairs]
    predictions = predict(OfDict(model).eval(), given)
    torch.testing.assert_close(predictions.logits, predict(model, pairs).logits)


def test_probabilities_are_refused_and_their_logarithm_gives_the_same_metrics():
    logits = 3 * torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    p, t = logits.softmax(1), torch.arange(40) % 6
    for given, sentence in (
        (p.half(), "logits must not be probabilities"),
        (p[:1].expand(2, 40, 6), "logits must not be probabilities"),
        (torch.cat([logits[:15], p[15:]]), "0 and 1 that sum to 1 in 25 of 40 images"),
        (100 * p, "of at least 0 that sum to 100 in 40 of 40 images"),
    ):
        with pytest.raises(InputError, match=sentence):
            Predictions(given, t)
    # By chance a few rows of logits can look so; and logits may well lie in 0 ... 1.
    Predictions(torch.cat([logits[:30], p[30:]]), t)
    Predictions(logits.sigmoid(), t)
    ours, theirs = (calibration(Predictions(x, t)).value for x in (logits, p.log()))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6, equal_nan=True)


def test_metrics_take_logits_with_a_gradient_and_any_default_type_of_torch(model, pairs):
    images, targets = pairs[0]
    expected = calibration(predict(model, [(images, targets)])).value
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        given = Predictions(model(images), targets)
        torch.testing.assert_close(calibration(given).value, expected, equal_nan=True)
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
        (model, [(images, torch.rand(4, 5))], "one class index per image"),
        (model, [images], r"a batch must be \(images, targets\), got Tensor"),
        (model, [], "batches must hold at least one image, got none"),
        ([], pairs, "a module or a sequence of at least one, got none"),
        (nn.Conv2d(3, 5, 1).eval(), pairs, r"logits \(images, classes\), got \(4, 5, 4, 4\)"),
        (nn.Flatten(), pairs, "model must be in evaluation mode. Call"),
        (half_in_training(), pairs, "model must be in evaluation mode, and its 1 is not"),
    ):
        with pytest.raises(InputError, match=sentence):
            predict(given, data)
