"""Laws of prediction (src/visprism/measure/outputs/predict.py, predictions.py)."""

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.measure.outputs import Predictions, predict, uncertainty
from visprism.measure.outputs.predictions import check_shapes, check_tensors

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


# What it gives.


def test_logits_are_those_of_the_model_in_the_order_of_the_images(model, pairs):
    found = predict(model, pairs)
    with torch.no_grad():
        torch.testing.assert_close(found.logits, model(torch.cat([x for x, _ in pairs])))
    assert found.targets.tolist() == [0, 1, 2, 3, 4] * 2
    assert found.provenance.images == len(found) == 10
    assert found.provenance.image_shape == (3, 4, 4)
    assert found.provenance.batch_size == 4


def test_stochastic_passes_differ_by_dropout_alone_and_the_model_stays_as_it_was(model, pairs):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    found = predict(model, pairs, samples=5)
    assert found.logits.shape == (5, 10, 5)
    assert (found.logits[0] != found.logits[1]).any()
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
        predict(model, pairs, samples=2, seed=seed).logits for seed in (0, 0, 1)
    )
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert (first != other).any()


def test_several_models_are_an_ensemble(model, pairs, script):
    other = script["Network"]()
    nn.init.zeros_(other[-1].weight)
    found = predict([model, other], pairs)
    torch.testing.assert_close(found.logits[0], predict(model, pairs).logits)
    torch.testing.assert_close(found.logits[1], predict(other, pairs).logits)
    assert uncertainty(found, resamples=0).passes == 2


class OfDict(nn.Module):
    """A model that is called by keyword and returns a dict, as Hugging Face's are."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixel_values):
        return {"features": pixel_values, "logits": self.model(pixel_values)}


def test_a_mapping_of_images_and_a_dict_of_outputs_are_understood(model, pairs):
    given = [({"pixel_values": x}, t) for x, t in pairs]
    found = predict(OfDict(model).eval(), given)
    torch.testing.assert_close(found.logits, predict(model, pairs).logits)


def test_half_precision_gives_logits_in_float32(model, pairs):
    found = predict(model, pairs, compute=Compute(precision="bf16"))
    assert found.logits.dtype == torch.float32
    assert found.provenance.precision == "bf16"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


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
        env=os.environ | {"RANK": "1", "OMP_NUM_THREADS": "1"},
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


# What it refuses.


@pytest.mark.parametrize("make", [np.asarray, lambda x: x.tolist()])
def test_what_is_no_tensor_is_refused(make):
    logits, t = torch.randn(3, 4), torch.arange(3)
    with pytest.raises(InputError, match=r"logits are of type .*; wants tensors, as torch"):
        check_tensors(logits=make(logits), targets=t)
    with pytest.raises(InputError, match=r"targets are of type .*; wants tensors, as torch"):
        check_tensors(logits=logits, targets=make(t))


def test_what_is_nearly_probabilities_is_refused_too():
    logits = 3 * torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    p, t = logits.softmax(1), torch.arange(40) % 6
    mixed = torch.cat([logits[:15], p[15:]])
    with pytest.raises(InputError, match=r"of 25 of 40 images lie in 0 \.\.\. 1 and sum"):
        Predictions(mixed, t)
    with pytest.raises(InputError, match="of 40 of 40 images are not below 0 and sum to 100"):
        Predictions(100 * p, t)
    # By chance a few rows of logits can look so; and logits may well lie in 0 ... 1.
    Predictions(torch.cat([logits[:30], p[30:]]), t)
    Predictions(logits.sigmoid(), t)


def test_probabilities_are_refused_and_their_logarithm_is_the_way_out():
    logits = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    p, t = logits.softmax(1), torch.arange(20) % 4
    for given in (p, p.half(), p.bfloat16(), p[:1].expand(2, 20, 4)):
        with pytest.raises(InputError, match=r"are probabilities; give the model's output"):
            Predictions(given, t)
    ours, theirs = (
        uncertainty(Predictions(x, t), resamples=0).value for x in (logits, p.log())
    )
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6, equal_nan=True)


def test_logits_that_only_look_like_probabilities_here_and_there_are_taken():
    mixed = torch.tensor([[0.5, 0.5], [0.2, 0.7], [2.0, -1.0]])
    assert len(Predictions(mixed, targets(0, 1, 1))) == 3


@pytest.mark.parametrize("wrong", [5, -2])
def test_a_target_that_is_no_class_is_named(wrong):
    with pytest.raises(InputError, match=rf"target {wrong} is none of the model's 5 classes"):
        Predictions(torch.randn(2, 5), targets(0, wrong))


def test_images_without_labels_are_counted():
    with pytest.raises(InputError, match=r"1 of 2 images have no label \(target -1\), which"):
        Predictions(torch.randn(2, 5), targets(0, -1))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_numbers_are_refused(value):
    logits = torch.zeros(3, 4)
    logits[1, 2] = value
    with pytest.raises(InputError, match="1 of 3 rows of logits hold NaN or"):
        Predictions(logits, targets(0, 1, 2))


@pytest.mark.parametrize(
    ("logits", "number"), [((3,), 3), ((2, 3, 4, 4), 4), ((3, 4), 2), ((0, 4), 0)]
)
def test_shapes_that_do_not_fit_are_refused(logits, number):
    with pytest.raises(InputError, match=r"logits are floating|targets are one class index"):
        check_shapes(torch.zeros(logits), torch.zeros(number, dtype=torch.long))


def test_targets_that_are_no_indices_are_refused(model, pairs):
    images, _ = pairs[0]
    with pytest.raises(InputError, match="a batch of 4 images has targets of shape"):
        predict(model, [(images, torch.rand(4, 5))])
    with pytest.raises(
        InputError, match=r"a batch is \(images, targets\), got Tensor; metrics"
    ):
        predict(model, [images])
    with pytest.raises(InputError, match="wanted floating-point images"):
        predict(model, [(images.byte(), torch.zeros(4, dtype=torch.long))])


def test_a_model_that_cannot_be_asked_is_refused(model, pairs):
    with pytest.raises(InputError, match=r"in training mode; call model.eval\(\) first"):
        predict(model.train(), pairs)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(48, 5), nn.Dropout(0.0)).eval()
    with pytest.raises(InputError, match=r"has no dropout .* ask for samples=1"):
        predict(plain, pairs, samples=3)
    with pytest.raises(InputError, match="samples is 0; wants at least 1"):
        predict(plain, pairs, samples=0)
    with pytest.raises(
        InputError, match="wanted a model, or several for an ensemble; got none"
    ):
        predict([], pairs)
    with pytest.raises(InputError, match="no images were seen"):
        predict(plain, [])
    maps = nn.Sequential(nn.Conv2d(3, 5, 1)).eval()
    with pytest.raises(InputError, match=r"gives \(4, 5, 4, 4\) for 4 images; wants logits"):
        predict(maps, pairs)
