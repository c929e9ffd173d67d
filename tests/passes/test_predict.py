"""Predictions: logits of models, of ensembles and of stochastic passes."""

import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from visprism import Compute, InputError, Predictions, Run, calibration, predict
from visprism.passes.predict import dropout_modules
from visprism.passes.predictions import check_shapes, check_tensors

SCRIPT = Path(__file__).with_name("predict_in_processes.py")


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def model(script):
    return script["Network"]()


@pytest.fixture
def pairs(script):
    """Ten labeled images, in batches of four."""
    images, targets = script["images"](10), torch.arange(10) % 5
    return list(zip(images.split(4), targets.split(4), strict=True))


def targets(*values):
    return torch.tensor(values)


# Logits.


def test_logits_are_those_of_the_model_in_the_order_of_the_images(model, pairs):
    predictions = predict(model, pairs)
    with torch.no_grad():
        torch.testing.assert_close(predictions.logits, model(torch.cat([x for x, _ in pairs])))
    assert predictions.targets.tolist() == [0, 1, 2, 3, 4] * 2
    assert predictions.provenance.images == len(predictions) == 10
    assert predictions.provenance.image_shape == (3, 4, 4)
    assert predictions.provenance.batch_size == 4


class Counted(Sequence):
    """Batches that count how often each was read."""

    def __init__(self, batches):
        self.batches, self.read = batches, [0] * len(batches)

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        self.read[index] += 1
        return self.batches[index]


@pytest.mark.usefixtures("unchecked")  # checks of annotations read batches, too
def test_each_batch_is_read_once(model, pairs):
    given, sampled = Counted(pairs), Counted(pairs)
    predict(model, given)
    predict(model, sampled, samples=2)
    assert given.read == sampled.read == [1, 1, 1]


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
    many = predict(model, pairs[:1], samples=4000).logits
    error = many.std(0) / 4000**0.5
    assert ((many.mean(0) - predict(model, pairs[:1]).logits).abs() < 5 * error).all()


def test_a_seed_repeats_its_passes_and_another_does_not(model, pairs):
    first, again, other = (
        predict(model, pairs, samples=2, run=Run(seed=seed)).logits for seed in (0, 0, 1)
    )
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert (first != other).any()


def test_several_models_are_an_ensemble(model, pairs, script):
    other = script["Network"]()
    nn.init.zeros_(other[-1].weight)
    predictions = predict([model, other], pairs)
    torch.testing.assert_close(predictions.logits[0], predict(model, pairs).logits)
    torch.testing.assert_close(predictions.logits[1], predict(other, pairs).logits)
    assert calibration(predictions).passes == 2


# Dropout.


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


class FunctionalDropout(nn.Module):
    """Dropout as a function, with the probability as a number of the module."""

    def __init__(self):
        super().__init__()
        self.drop_rate = 0.5
        self.linear = nn.Linear(48, 5)

    def forward(self, x):
        return self.linear(nn.functional.dropout(x.flatten(1), self.drop_rate, self.training))


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


@pytest.mark.parametrize(
    "network", [lambda: FusedAttention(0.5), FunctionalDropout, MultiHeadAttention]
)
def test_dropout_of_attention_and_of_functions_is_drawn(network, pairs):
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


def test_half_precision_gives_logits_in_float32(model, pairs):
    predictions = predict(model, pairs, run=Run(Compute(precision="bf16")))
    assert predictions.logits.dtype == torch.float32
    assert predictions.provenance.precision == "bf16"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.slow
def test_two_processes_give_the_answer_of_one(tmp_path, monkeypatch, script):
    alone = script["predicted"]()
    for name, value in {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "RANK": "0",
    }.items():
        monkeypatch.setenv(name, value)
    other = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(tmp_path / "theirs.pt")],
        env=os.environ | {"RANK": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ours = script["predicted"]()
        _, errors = other.communicate(timeout=120)
    finally:
        other.kill()  # does nothing where it has ended
    assert other.returncode == 0, errors
    theirs = torch.load(tmp_path / "theirs.pt")
    for expected, mine, its in zip(alone, ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=0)
        torch.testing.assert_close(its, mine, rtol=0, atol=0)


# Errors.


@pytest.mark.parametrize("make", [np.asarray, lambda x: x.tolist()])
def test_arrays_and_lists_are_refused(make):
    logits, t = torch.randn(3, 4), torch.arange(3)
    with pytest.raises(InputError, match=r"logits must be a tensor, got .*\. Use torch"):
        check_tensors(logits=make(logits), targets=t)
    with pytest.raises(InputError, match=r"targets must be a tensor, got .*\. Use torch"):
        check_tensors(logits=logits, targets=make(t))


def test_logits_that_are_probabilities_for_most_images_are_refused():
    logits = 3 * torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    p, t = logits.softmax(1), torch.arange(40) % 6
    mixed = torch.cat([logits[:15], p[15:]])
    with pytest.raises(InputError, match="between 0 and 1 that sum to 1 in 25 of 40 images"):
        Predictions(mixed, t)
    with pytest.raises(InputError, match="of at least 0 that sum to 100 in 40 of 40 images"):
        Predictions(100 * p, t)
    # By chance a few rows of logits can look so; and logits may well lie in 0 ... 1.
    Predictions(torch.cat([logits[:30], p[30:]]), t)
    Predictions(logits.sigmoid(), t)


def test_probabilities_are_refused_and_their_logarithm_gives_the_same_metrics():
    logits = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    p, t = logits.softmax(1), torch.arange(20) % 4
    for given in (p, p.half(), p.bfloat16(), p[:1].expand(2, 20, 4)):
        with pytest.raises(InputError, match="logits must not be probabilities"):
            Predictions(given, t)
    ours, theirs = (calibration(Predictions(x, t)).value for x in (logits, p.log()))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6, equal_nan=True)


def test_logits_that_only_look_like_probabilities_here_and_there_are_taken():
    mixed = torch.tensor([[0.5, 0.5], [0.2, 0.7], [2.0, -1.0]])
    assert len(Predictions(mixed, targets(0, 1, 1))) == 3


@pytest.mark.parametrize("wrong", [5, -2])
def test_a_target_that_is_no_class_is_named(wrong):
    with pytest.raises(InputError, match=rf"targets must be between 0 and 4 .*, got {wrong}\."):
        Predictions(torch.randn(2, 5), targets(0, wrong))


def test_images_without_labels_are_counted():
    with pytest.raises(
        InputError, match=r"targets must be labels, got 1 of 2 images without one \(-1\)"
    ):
        Predictions(torch.randn(2, 5), targets(0, -1))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_numbers_are_refused(value):
    logits = torch.zeros(3, 4)
    logits[1, 2] = value
    with pytest.raises(
        InputError,
        match="or negative infinity for some classes, got NaN or infinity as the largest logit "
        "of 1 of 3 images",
    ):
        Predictions(logits, targets(0, 1, 2))


def test_an_image_without_a_class_that_is_not_ruled_out_is_refused():
    logits = torch.zeros(3, 4)
    logits[1] = -torch.inf
    with pytest.raises(InputError, match="as the largest logit of 1 of 3 images"):
        Predictions(logits, targets(0, 1, 2))


@pytest.mark.parametrize(
    ("logits", "number"), [((3,), 3), ((2, 3, 4, 4), 4), ((3, 4), 2), ((0, 4), 0)]
)
def test_shapes_that_do_not_fit_are_refused(logits, number):
    with pytest.raises(
        InputError, match=r"logits must be floating|targets must be one class index"
    ):
        check_shapes(torch.zeros(logits), torch.zeros(number, dtype=torch.long))


def test_targets_that_are_no_indices_are_refused(model, pairs):
    images, _ = pairs[0]
    with pytest.raises(
        InputError, match=r"targets must be one class index per image \(4\), got shape"
    ):
        predict(model, [(images, torch.rand(4, 5))])
    with pytest.raises(InputError, match=r"a batch must be \(images, targets\), got Tensor"):
        predict(model, [images])
    with pytest.raises(InputError, match="floating-point"):
        predict(model, [(images.byte(), torch.zeros(4, dtype=torch.long))])


def test_models_and_data_without_predictions_are_refused(model, pairs):
    with pytest.raises(
        InputError, match=r"model must be in evaluation mode\. Call model\.eval\(\) first"
    ):
        predict(model.train(), pairs)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(48, 5), nn.Dropout(0.0)).eval()
    with pytest.raises(
        InputError, match="samples must be 1 for Sequential, which has no dropout"
    ):
        predict(plain, pairs, samples=3)
    with pytest.raises(InputError, match="samples must be at least 1, got 0"):
        predict(plain, pairs, samples=0)
    with pytest.raises(InputError, match="a module or a sequence of at least one, got none"):
        predict([], pairs)
    with pytest.raises(InputError, match="data must hold at least one image, got none"):
        predict(plain, [])
    maps = nn.Sequential(nn.Conv2d(3, 5, 1)).eval()
    with pytest.raises(
        InputError, match=r"must be logits \(images, classes\), got \(4, 5, 4, 4\)"
    ):
        predict(maps, pairs)
