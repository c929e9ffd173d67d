"""Laws of the curvature that a training run measures (src/visprism/loss/monitor.py)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from internals import read_state_dict

from visprism import Objective, Run, fit, top_eigenvalues
from visprism.results import CurvatureDuringTraining


@pytest.fixture
def recipe(recipe, mixed):
    return replace(
        recipe, augmentation=mixed, curvature_every=4, curvature_images=20, curvature_k=2
    )


class StopError(Exception):
    """As good as a kill, without a process."""


def stopping(at):
    def progress(steps, label):
        for step in steps:
            if step == at and label == "training":
                raise StopError
            yield step

    return progress


def curvature_of(folder):
    return CurvatureDuringTraining.load(folder / "curvature.npz")


def test_the_last_measurement_is_that_of_the_weights_at_the_end(
    tmp_path, recipe, make_model, make_feed
):
    model, feed = make_model(torch.nn.BatchNorm1d(8)), make_feed(recipe)
    fit(model, feed, recipe, folder=tmp_path)  # 18 steps
    result = curvature_of(tmp_path)
    assert result.step.tolist() == [step for step in (4, 8, 12, 16) for _ in range(4)]
    assert set(result.matrix) == {"hessian", "preconditioned"}
    recipe = replace(recipe, epochs=2, curvature_every=12)
    model = make_model(torch.nn.BatchNorm1d(8))
    fit(model, feed, recipe, folder=tmp_path / "other")
    batches = [(i[: 20 - 8 * n], t[: 20 - 8 * n]) for n, (i, t) in enumerate(feed.epoch(0))][:3]
    objective = Objective(model, batches, batch_norm="batch")
    expected = top_eigenvalues(objective, k=2, which="LA", tol=1e-6)
    result = curvature_of(tmp_path / "other")
    np.testing.assert_allclose(result.eigenvalue[:2], expected.value, rtol=1e-3)
    assert result.provenance.images == 20


def test_measuring_leaves_the_weights_as_they_are(tmp_path, recipe, make_model, make_feed):
    recipe = replace(recipe, sam_rho=0.05)
    folders = {4: tmp_path / "with", 0: tmp_path / "without"}
    for every, folder in folders.items():
        changed = recipe.replace(curvature_every=every)
        fit(make_model(torch.nn.Dropout(0.3)), make_feed(changed), changed, folder=folder)
    weights = [read_state_dict(folder / "model.safetensors") for folder in folders.values()]
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    assert not (folders[0] / "curvature.npz").exists()


@pytest.mark.parametrize("at", [5, 12])
def test_a_resumed_run_measures_the_same_bits(tmp_path, recipe, make_model, make_feed, at):
    complete, stopped = tmp_path / "complete", tmp_path / "stopped"
    fit(make_model(), make_feed(recipe), recipe, folder=complete)

    def again(progress):
        fit(
            make_model(),
            make_feed(recipe),
            recipe,
            folder=stopped,
            checkpoint_minutes=0.0,
            run=Run(progress=progress),
        )

    with pytest.raises(StopError):
        again(stopping(at))
    again(None)
    assert curvature_of(stopped) == curvature_of(complete)
    assert (stopped / "curvature.csv").read_text() == (complete / "curvature.csv").read_text()
