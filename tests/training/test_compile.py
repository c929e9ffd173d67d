"""Laws of compiled training, by torch's own compiler."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from stopped import StopError, stopping
from torch import nn

from visprism import Run, fit
from visprism.models.state_dicts import read_state_dict
from visprism.training.checkpointer import read_checkpoint


@pytest.mark.slow
def test_a_compiled_run_is_the_run_to_rounding_also_when_it_was_stopped(
    tmp_path, recipe, make_model, make_feed, test_batches
):
    """With averages, SAM, BatchNorm, a last batch of another size, and evaluation."""
    recipe = replace(recipe, ema=0.5, sam_rho=0.05, epochs=2, optimizer="sgd", snapshot_every=1)
    plain = make_model(nn.BatchNorm1d(8))
    eager = {"test": test_batches, "folder": tmp_path / "plain"}
    expected = fit(plain, make_feed(recipe), recipe, **eager)
    recipe = replace(recipe, compile=True)
    model = make_model(nn.BatchNorm1d(8))
    history = fit(
        model, make_feed(recipe), recipe, test=test_batches, folder=tmp_path / "whole"
    )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 2  # one for each size
    torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(history.test_nll, expected.test_nll, rtol=1e-4)
    assert (
        read_checkpoint(tmp_path / "whole")["engine"]["model"].keys()
        == plain.state_dict().keys()
    )
    for path in (tmp_path / "whole").rglob("*.safetensors"):
        assert read_state_dict(path).keys() == plain.state_dict().keys()

    torch.compiler.reset()
    folder = tmp_path / "stopped"
    options = {"test": test_batches, "folder": folder, "checkpoint_minutes": 0.0}
    run = Run(progress=stopping(9))
    with pytest.raises(StopError):
        fit(make_model(nn.BatchNorm1d(8)), make_feed(recipe), recipe, run=run, **options)
    torch.compiler.reset()  # what another process would not have
    again = make_model(nn.BatchNorm1d(8))
    fit(again, make_feed(recipe), recipe, **options)
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0)
