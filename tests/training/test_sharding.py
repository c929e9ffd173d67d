"""Laws of sharded training (src/visprism/training/sharding.py, epoch_metrics.py).

Two processes make all runs at once; what they have is compared with runs of one.
"""

import os
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from two_processes import in_two_processes

from visprism import fit
from visprism.models.state_dicts import read_state_dict
from visprism.training.checkpointer import read_checkpoint

SCRIPT = Path(__file__).with_name("fit_sharded.py")
script = runpy.run_path(str(SCRIPT))
RECIPE, trained, made = script["RECIPE"], script["trained"], script["made"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sharded")


@pytest.fixture(scope="module")
def alone(folder):
    """Runs of one process."""
    trained(RECIPE, folder / "half", at=5)
    runs = {"whole": trained(RECIPE, folder / "unsharded")}
    for name, (recipe, inner) in script["OTHERS"].items():
        runs[name] = trained(recipe, inner=inner)
    return runs


@pytest.fixture(scope="module")
def both(folder, alone):
    """What the two processes have."""
    runs = in_two_processes(SCRIPT, folder, lambda: script["everything"](folder))
    return runs, torch.load(folder / "other.pt", weights_only=False)


def same(run, other, atol=1e-5):
    torch.testing.assert_close(run[0], other[0], rtol=0, atol=atol)
    for name, values in run[1].items():
        np.testing.assert_allclose(values, other[1][name], rtol=100 * atol)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parameters", "average", "moments", "gradients"])
def test_each_process_has_half_of_the_numbers(both, kind):
    (one, total), (other, _) = (runs["shares"][kind] for runs in both)
    assert one + other == total
    assert max(one, other) < 0.51 * total


@pytest.mark.slow
@pytest.mark.parametrize("name", ["whole", "sgd", "spare"])
def test_a_run_of_two_processes_is_that_of_one(alone, both, name):
    """With clipping, mixing, parts, averages, SAM and an uneven number of test batches."""
    same(both[0][name], alone[name])
    if name != "sgd":
        same(both[0][f"{name}, not sharded"], alone[name])


@pytest.mark.slow
def test_processes_that_see_different_folders_are_refused(both):
    for runs in both:
        assert "got step 7 in process 0 and step 0 in process 1" in runs["refusal"]


@pytest.mark.slow
def test_with_bf16_the_runs_differ_by_its_rounding(alone, both):
    same(both[0]["bf16"], alone["bf16"], atol=2e-3)
    assert both[0]["bf16"][0]["2.weight"].dtype == torch.float32
    assert not torch.equal(both[0]["bf16"][0]["2.weight"], alone["sgd"][0]["2.weight"])


@pytest.mark.slow
def test_norms_and_dropout_are_those_of_processes_that_are_not_sharded(both):
    same(both[0]["norm"], both[0]["norm, not sharded"])


@pytest.mark.slow
def test_both_processes_have_the_whole_model_in_the_end(both):
    for name in ("whole", "whole, not sharded", "resumed", "norm"):
        torch.testing.assert_close(both[0][name][0], both[1][name][0], rtol=0, atol=0)
        assert all(type(t) is torch.Tensor for t in both[1][name][0].values())


@pytest.mark.slow
def test_files_are_those_of_one_process(both, folder):
    files = [
        sorted(p.relative_to(folder / run) for p in (folder / run).rglob("*"))
        for run in ("whole", "unsharded")
    ]
    assert files[0] == files[1]
    for name in files[0]:
        if name.suffix == ".safetensors":
            states = [read_state_dict(folder / run / name) for run in ("whole", "unsharded")]
            torch.testing.assert_close(*states, rtol=0, atol=1e-5)
    sharded, other = (read_checkpoint(folder / run)["engine"] for run in ("whole", "unsharded"))
    assert sharded.keys() == other.keys()
    assert list(sharded["model"]) == list(other["model"])
    torch.testing.assert_close(sharded["average"], other["average"], rtol=0, atol=1e-5)
    torch.testing.assert_close(
        sharded["optimizers"][0]["state"], other["optimizers"][0]["state"], rtol=1e-3, atol=1e-5
    )


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_sharded_or_not(alone, both, folder):
    same(both[0]["resumed"], both[0]["whole"], atol=0)
    same(trained(RECIPE, folder / "alone"), both[0]["whole"])  # a sharded run, in one process
    same(both[0]["from one"], alone["whole"])


def test_one_process_cannot_be_sharded(model, recipe, make_feed):
    with pytest.raises(ValueError, match="sharded must be false in a single process"):
        fit(model, make_feed(recipe), recipe, sharded=True)
    assert "MASTER_ADDR" not in os.environ  # nothing was launched
