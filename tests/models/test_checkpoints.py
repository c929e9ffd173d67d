"""Laws of checkpoints (src/visprism/models/checkpoints.py, state_dicts.py).

What is read gives back the same weights, whatever wrapped them; what does not fit changes
nothing.
"""

import pytest
import torch
from small_models import assert_same_weights
from small_models import small_convnet as network
from torch import nn

from visprism import InputError, load_checkpoint, save_checkpoint


def test_tensors_that_share_memory_are_saved(tmp_path):
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    save_checkpoint(tied, tmp_path / "a.safetensors")
    other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    load_checkpoint(other, tmp_path / "a.safetensors")
    assert_same_weights(other, tied)


def misfit(change):
    state = network().state_dict()
    change(state)
    return state


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s.pop("0.bias"), r"7 tensors: 1 missing from the file \(0\.bias\)"),
        (lambda s: s.update(head=torch.zeros(1)), r"1 not in the model \(head\)"),
        (lambda s: s.update({"0.bias": torch.zeros(7)}), r"1 of another shape \(0\.bias \(7,"),
        (
            lambda s: s.clear() or s.update(a=torch.zeros(1)),
            r"6 missing from the file \(0\.weight, 0\.bias, 1\.weight, \.\.\.\); 1 not in",
        ),
    ],
    ids=["missing", "unexpected", "shape", "many"],
)
def test_a_checkpoint_that_does_not_fit_names_the_keys_and_changes_nothing(
    tmp_path, change, sentence
):
    torch.save(misfit(change), tmp_path / "a.pt")
    model = network(1)
    with pytest.raises(ValueError, match=sentence):
        load_checkpoint(model, tmp_path / "a.pt")
    assert_same_weights(model, network(1))


@pytest.mark.parametrize(
    ("plain", "average"),
    [("state_dict", "state_dict_ema"), ("model", "model_ema"), ("model", "state_dict")],
)
def test_of_several_sets_of_weights_the_average_or_the_first_is_loaded_with_a_warning(
    tmp_path, caplog, plain, average
):
    of_average = network(1).state_dict()
    for stored in (of_average, {"module": of_average, "decay": 0.9}):
        caplog.clear()
        torch.save({plain: network(0).state_dict(), average: stored}, tmp_path / "a.pt")
        model = network(2)
        load_checkpoint(model, tmp_path / "a.pt")
        assert_same_weights(model, network(1))
        words = f"several sets of weights ({average}, {plain}); {average} is loaded"
        assert words in caplog.text


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda w: w.mul(100).to(torch.int8), r"1 of integers .* \(0\.weight torch\.int8\)"),
        (lambda w: w.index_fill(0, torch.tensor([1]), torch.nan), r"1 of its 7 .*\(0\.weight"),
        (lambda w: w / 0, r"hold NaN or infinite values, as after a diverged training"),
    ],
    ids=["integers", "NaN", "infinity"],
)
def test_numbers_that_are_no_weights_are_refused(tmp_path, change, sentence):
    state = network().state_dict()
    torch.save({**state, "0.weight": change(state["0.weight"])}, tmp_path / "a.pt")
    model = network(1)
    with pytest.raises(InputError, match=sentence):
        load_checkpoint(model, tmp_path / "a.pt")
    assert_same_weights(model, network(1))


def test_infinities_that_the_model_has_too_are_loaded(tmp_path):
    masked = network()
    masked.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    save_checkpoint(masked, tmp_path / "a.safetensors")
    load_checkpoint(masked, tmp_path / "a.safetensors")


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
@pytest.mark.parametrize(
    "content", [b"", b"neither one nor the other", b"PK\x03\x04" + b"0" * 99]
)
def test_a_file_that_is_no_checkpoint(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(
        ValueError, match=r"refused: it is not (a checkpoint|an archive|a safetensors file)"
    ):
        load_checkpoint(network(), tmp_path / name)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ([1, 2], "must hold a state dict, got a list"),
        ({}, "must hold a state dict, got nothing"),
        ({"lr": 0.1, "epoch": 3}, r"2 of its 2 entries \(lr, epoch\) are not dense tensors"),
    ],
)
def test_a_file_that_holds_something_else(tmp_path, content, sentence):
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=sentence):
        load_checkpoint(network(), tmp_path / "a.pt")
