"""Checkpoints of other libraries load (src/visprism/models/checkpoints.py).

Tensors that are dropped or missing are logged.
"""

import warnings
from argparse import Namespace

import numpy as np
import pytest
import timm
import torch
from small_models import assert_same_weights
from torch import nn

from visprism import InputError, load_checkpoint, load_model


def network(seed=0, classes=5):
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        return nn.Sequential(body, nn.Flatten(), nn.Linear(4, classes))


def prefixed(state, prefix):
    return {f"{prefix}{k}": v for k, v in state.items()}


def without_counters(state):
    return {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])
def test_a_resnet20_of_2018_is_loaded(tmp_path, caplog, zipped):
    """As published in 2018: DataParallel's names, no counters, the accuracy beside them."""
    trained = load_model("resnet20", seed=1).model
    state = prefixed(without_counters(trained.state_dict()), "module.")
    path = tmp_path / "resnet20-12fca82f.th"
    torch.save(
        {"state_dict": state, "best_prec1": 91.78}, path, _use_new_zipfile_serialization=zipped
    )
    assert_same_weights(load_model(f"resnet20@{path}").model, trained)
    assert "differ in 21 of BatchNorm's num_batches_tracked" in caplog.text


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: {"state_dict": prefixed(s, "model."), "pytorch-lightning_version": "2.5.0"},
        lambda s: {"state_dict": prefixed(s, "model.") | {"loss.weight": torch.ones(5)}},
        lambda s: {"state_dict": prefixed(s, "net._orig_mod.")},
        lambda s: prefixed(s, "module._orig_mod.module."),
        lambda s: {"state_dict_ema": prefixed(s, "module."), "arch": "resnet", "metric": 76.5},
        lambda s: {"epoch": 3, "state_dict": {k: v.half() for k, v in s.items()}},
        lambda s: prefixed({k: v.bfloat16() for k, v in s.items()}, "module."),
        lambda s: {"model": s, "best": np.float64(0.9), "rate": np.float32(0.5)},
        lambda s: {"module": s, "ds_version": "0.17", "optimizer": None},
        lambda s: {k.replace(".", "._checkpoint_wrapped_module.", 1): v for k, v in s.items()},
        lambda s: prefixed(s, "module._fsdp_wrapped_module."),
        lambda s: {"model": None, "model_ema": s, "args": Namespace(lr=0.1)},
        lambda s: {"ema": {"state_dict": s}},
        lambda s: {"n_averaged": torch.tensor(5)} | prefixed(s, "module."),
    ],
    ids=[
        *("Lightning", "Lightning with a loss", "attribute, compiled"),
        *("DDP, compiled, DDP", "timm, EMA", "half", "bfloat16"),
        *("NumPy numbers beside", "DeepSpeed", "activation checkpointing", "FSDP"),
        *("model_ema", "ema", "AveragedModel"),
    ],
)
def test_the_weights_are_the_same_whatever_wraps_them(tmp_path, wrap):
    trained = network()
    with torch.no_grad():  # numbers that every precision holds
        for tensor in trained.state_dict().values():
            tensor.copy_((tensor * 8).round() / 8)
    torch.save(wrap(trained.state_dict()), tmp_path / "a.ckpt")
    fresh = network(1)
    load_checkpoint(fresh, tmp_path / "a.ckpt")
    assert_same_weights(fresh, trained)
    assert {t.dtype for t in fresh.parameters()} == {torch.float32}


def test_two_sets_of_weights_are_refused_by_their_prefixes(tmp_path):
    student, teacher = network().state_dict(), network(1).state_dict()
    both = prefixed(student, "student.") | prefixed(teacher, "teacher.")
    torch.save({"state_dict": both}, tmp_path / "a.ckpt")
    with pytest.raises(InputError, match=r"one set of weights, .* \(student\., teacher\.\)"):
        load_checkpoint(network(1), tmp_path / "a.ckpt")


def test_a_module_under_two_names_is_one_set_of_weights(tmp_path, caplog):
    """As in a module of Lightning that also holds its compiled network."""
    state = network(1).state_dict()
    both = prefixed(state, "net.") | prefixed(state, "compiled._orig_mod.")
    torch.save({"state_dict": both}, tmp_path / "a.ckpt")
    model = network()
    load_checkpoint(model, tmp_path / "a.ckpt")
    assert_same_weights(model, network(1))
    assert not caplog.messages


def test_a_prefix_of_the_model_itself_stays(tmp_path):
    """A model may itself have an attribute ``model``."""
    outer = nn.Sequential()
    outer.add_module("model", network())
    torch.save(outer.state_dict(), tmp_path / "a.pt")
    fresh = nn.Sequential()
    fresh.add_module("model", network(1))
    load_checkpoint(fresh, tmp_path / "a.pt")
    assert_same_weights(fresh, outer)


def test_another_number_of_classes_is_named_and_loads_when_it_is_given(tmp_path):
    trained = timm.create_model("resnet10t", num_classes=7)
    path = tmp_path / "a@b.pth"
    torch.save(trained.state_dict(), path)
    said = r"the file has 7 rows, the model's 1000\. .*\?num_classes=7 in its name$"
    with pytest.raises(InputError, match=said):
        load_model(f"timm:resnet10t@{path}")
    assert_same_weights(load_model(f"timm:resnet10t?num_classes=7@{path}").model, trained)


def test_a_file_without_classifier_loads_without_one(tmp_path):
    trained = timm.create_model("resnet10t", num_classes=0)
    path = tmp_path / "a.pth"
    torch.save(trained.state_dict(), path)
    with pytest.raises(InputError, match=r"without fc, name the model with \?num_classes=0$"):
        load_model(f"timm:resnet10t@{path}")
    assert_same_weights(load_model(f"timm:resnet10t?num_classes=0@{path}").model, trained)
    whole = timm.create_model("resnet10t").state_dict()
    del whole["layer1.0.conv1.weight"]
    torch.save({"net": whole}, path)
    with pytest.raises(InputError, match=r"missing from the file \(layer1\.0\.conv1\.weight\)"):
        load_model(f"timm:resnet10t@{path}")


def test_the_classifier_of_a_file_is_left_out_if_the_model_is_to_have_none(tmp_path, caplog):
    trained = timm.create_model("resnet10t", num_classes=7)
    path = tmp_path / "a.pth"
    torch.save(trained.state_dict(), path)
    loaded = load_model(f"timm:resnet10t?num_classes=0@{path}").model
    torch.testing.assert_close(loaded.conv1.state_dict(), trained.conv1.state_dict())
    assert "(fc.bias, fc.weight) is left out" in caplog.text


def test_a_name_in_a_file_does_not_change_the_terminal(tmp_path):
    torch.save(network().state_dict() | {"a\x1b[31m\u202eb": torch.ones(1)}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"not in the model \(a\\x1b\[31m\\u202eb\)"):
        load_checkpoint(network(1), tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("layer1.", "layer1._orig_mod."),
        ("layer2.0.conv1", "layer2.0.module.conv1"),
        ("fc.", "_orig_mod.fc._orig_mod."),
    ],
)
def test_wrappers_of_single_modules_are_left_out_of_names(tmp_path, old, new):
    stored = timm.create_model("resnet18", num_classes=10)
    torch.save({k.replace(old, new): v for k, v in stored.state_dict().items()}, tmp_path / "w")
    model = timm.create_model("resnet18", num_classes=10)
    load_checkpoint(model, tmp_path / "w")
    assert all(map(torch.equal, model.state_dict().values(), stored.state_dict().values()))


def test_the_old_weight_norm_is_loaded_into_the_new_one(tmp_path):
    with warnings.catch_warnings(action="ignore"):
        old = nn.Sequential(nn.utils.weight_norm(nn.Conv2d(3, 8, 3)), nn.BatchNorm2d(8)).eval()
    new = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3)), old[1])
    torch.save({"ema_state_dict": old.state_dict()}, tmp_path / "w")
    load_checkpoint(new, tmp_path / "w")
    images = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(new.eval()(images), old(images))
