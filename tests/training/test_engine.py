"""Laws of updates (src/visprism/training/engine.py): parts, processes and averages."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from visprism import InputError, fit
from visprism.models.state_dicts import read_state_dict


@pytest.mark.parametrize("steps", [3, 8])  # 8 images, and 4 of the last batch
def test_accumulated_gradients_make_the_update_of_the_full_batch(
    make_model, make_feed, recipe, steps
):
    uncut, cut = make_model(), make_model()
    one = fit(uncut, make_feed(recipe), recipe)
    other = fit(cut, make_feed(recipe), replace(recipe, grad_accum_steps=steps))
    torch.testing.assert_close(uncut.state_dict(), cut.state_dict(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(one.train_loss, other.train_loss, rtol=1e-5)


def test_one_image_is_too_few_for_batchnorm(make_model, make_feed, recipe):
    model, alone = make_model(nn.BatchNorm1d(8)), replace(recipe, grad_accum_steps=8)
    with pytest.raises(InputError, match="at least 2 images for BatchNorm: Expected more than"):
        fit(model, make_feed(alone), alone)


def test_the_moving_average_is_that_of_its_definition(make_model, make_feed, recipe, tmp_path):
    """With snapshots after every epoch of one step, the weights that it averages are known."""
    recipe = replace(recipe, batch_size=44, epochs=4, ema=0.7, snapshot_every=1)
    model = make_model(nn.BatchNorm1d(8))
    fit(model, make_feed(recipe), recipe, folder=tmp_path)
    files = sorted((tmp_path / "snapshots").iterdir())[1:]  # the first is before any update
    first, *later = (read_state_dict(file) for file in files)
    average = first
    for state in later:
        average = {name: 0.7 * average[name] + 0.3 * state[name] for name in state}
        average["2.num_batches_tracked"] = state["2.num_batches_tracked"]
    averaged = read_state_dict(tmp_path / "ema.safetensors")
    torch.testing.assert_close(averaged, average)
    torch.testing.assert_close(dict(model.state_dict()), later[-1], rtol=0, atol=0)
