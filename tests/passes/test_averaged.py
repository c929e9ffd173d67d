"""Ensembles and Monte Carlo dropout, whose outputs are logarithms of mean probabilities."""

import pytest
import timm
import torch
import torchvision
from small_models import seeded
from timm.layers import DropPath
from torch import nn

import visprism as vp
from visprism import Ensemble, InputError, MonteCarloDropout, predict
from visprism.passes.averaged import dropout_modules


def test_an_ensemble_averages_probabilities(model, pairs):
    other = nn.Sequential(nn.Flatten(), nn.Linear(48, 5)).eval()
    one, two = (predict(m, pairs).logits.softmax(1) for m in (model, other))
    both = predict(Ensemble([model, other]), pairs).logits
    torch.testing.assert_close(both.exp(), (one + two) / 2)
    with pytest.raises(InputError, match="models must hold at least one, got none"):
        Ensemble([])
    with pytest.raises(InputError, match=r"evaluation mode, and its models\.1 is not"):
        predict(Ensemble([model, other.train()]), pairs)


def test_they_state_the_preprocessing_that_their_members_state():
    model = vp.load_model("resnet20.shapes").model
    numbers = [
        str(vp.examine({"m": m}, "shapes", analyses="calibration", limit=40).table()[0])
        for m in ("resnet20.shapes", model, Ensemble([model, model]))
    ]
    assert len(set(numbers)) == 1
    with pytest.raises(InputError, match="models must state the same preprocessing, got 32x32"):
        Ensemble([model, nn.Identity()])


def test_many_passes_have_the_mean_probability_over_what_dropout_draws():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5)).eval()
    images = torch.tensor([2.0, -torch.inf]).reshape(1, 2, 1, 1).clamp(min=0)  # logits 2 and 0
    p = predict(MonteCarloDropout(model, 4000), [(images, torch.tensor([0]))]).logits.exp()
    # The logit is doubled in half of the passes and 0 in the others.
    expected = (torch.tensor(4.0).sigmoid() + 0.5) / 2
    torch.testing.assert_close(p[0, 0], expected, atol=0.02, rtol=0)


def test_passes_differ_by_dropout_alone_and_the_model_stays_as_it_was(model, pairs):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    predictions = predict(MonteCarloDropout(model), pairs)
    assert (predictions.logits.softmax(1) - predict(model, pairs).logits.softmax(1)).any()
    assert not any(module.training for module in model.modules())
    for name, value in model.state_dict().items():  # batch norm has counted nothing
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    torch.testing.assert_close(torch.get_rng_state(), state)


def test_draws_follow_from_the_seed_and_the_image_whatever_the_batch(model, pairs):
    first, again, other = (
        predict(MonteCarloDropout(model, 2, seed=seed), pairs).logits for seed in (0, 0, 1)
    )
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert (first != other).any()
    images, targets = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    single = zip(images.split(1), targets.split(1), strict=True)
    alone = predict(MonteCarloDropout(model, 2), single).logits
    torch.testing.assert_close(alone, first)
    dropped = MonteCarloDropout(nn.Sequential(nn.Flatten(), nn.Dropout()).eval(), 1)
    ones = torch.ones(1, 3, 8, 8)
    assert ((dropped(ones) - dropped(2 * ones)).abs() > 1).any()


@pytest.mark.parametrize(
    "network",
    [
        lambda: timm.create_model("test_vit", img_size=32, attn_drop_rate=0.5),
        lambda: torchvision.models.VisionTransformer(
            32, 8, 1, 2, 24, 48, attention_dropout=0.5
        ),
    ],
    ids=["fused", "torch's own"],
)
def test_dropout_of_attention_is_drawn(network):
    model = seeded(network)
    pairs = [(torch.rand(2, 3, 32, 32), torch.arange(2))]
    first, other = (
        predict(MonteCarloDropout(model, 1, seed=seed), pairs).logits for seed in (0, 1)
    )
    assert (first != other).any()
    assert not any(module.training for module in model.modules())


def test_a_model_without_dropout_is_refused():
    with pytest.raises(InputError, match=r"model must have dropout .*, got Flatten without it"):
        MonteCarloDropout(nn.Flatten())


def test_normalization_and_stochastic_depth_stay_in_evaluation_mode():
    block = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.5), DropPath(0.5))
    assert dropout_modules(block.eval()) == [block[2]]


def test_every_analysis_of_outputs_takes_both():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 8, 4, 4), nn.Flatten(), nn.Dropout(), nn.Linear(512, 10)
        model = nn.Sequential(*layers).eval()
    models = {"ensemble": Ensemble([model, model]), "dropout": MonteCarloDropout(model)}
    options = {
        "corruptions": {"corruptions": ("fog",), "severities": (3,)},
        "adversarial": {"attacks": ("pgd",), "epsilons": (0.1,), "steps": 3},
    }
    data, way = vp.load_data("shapes?size=32", limit=24), vp.Preprocessing((32, 32))
    names = ["calibration", *options]
    study = vp.examine(models, data, analyses=names, options=options, preprocessing=way)
    assert not study.failures
    plain = vp.Calibration()(model, data, preprocessing=way).nll
    assert study["ensemble"]["calibration"].nll == pytest.approx(plain, rel=1e-5)
    dropped = vp.Calibration(samples=5)(model, data, preprocessing=way).nll
    assert study["dropout"]["calibration"].nll != plain != dropped
