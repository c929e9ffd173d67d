"""Laws of resuming (src/visprism/training/checkpointer.py)."""

import logging
import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from stopped import StopError, stopping
from two_processes import SHARED

import visprism as vp
from visprism.models.state_dicts import read_state_dict
from visprism.training.checkpointer import read_checkpoint, valid_checkpoint

SCRIPT = Path(__file__).with_name("fit_and_be_killed.py")
script = runpy.run_path(str(SCRIPT))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, script["trained"](folder)


def same_run(folder, undisturbed):
    complete, history = undisturbed
    for name in ("model", "ema", "best"):
        expected = read_state_dict(complete / f"{name}.safetensors")
        weights = read_state_dict(folder / f"{name}.safetensors")
        torch.testing.assert_close(weights, expected, rtol=0, atol=0)
    files = [sorted(p.name for p in (f / "snapshots").iterdir()) for f in (folder, complete)]
    assert files[0] == files[1]
    lines = (folder / "history.csv").read_text().splitlines()
    assert len(lines) == 1 + len(history)
    losses = [float(line.split(",")[4]) for line in lines[1:]]
    assert losses == history.train_loss.tolist()
    assert not list(folder.rglob("*.tmp*"))


# A training checkpoint after every step, or every epoch.
@pytest.mark.parametrize(
    ("at", "checkpoint_minutes"),
    [(0, 10.0), (7, 0.0), (12, 10.0), (27, 0.0)],
)
def test_a_run_that_was_stopped_ends_as_if_it_had_not(
    tmp_path, undisturbed, at, checkpoint_minutes
):
    with pytest.raises(StopError):
        script["trained"](tmp_path, stopping(at), checkpoint_minutes)
    history = script["trained"](tmp_path, None, checkpoint_minutes)
    same_run(tmp_path, undisturbed)
    np.testing.assert_array_equal(history.test_nll, undisturbed[1].test_nll)


def kills(folder, checkpoint_minutes, moments):
    """How many of the kills found the run under way; then it is let go on to its end."""
    program = [sys.executable, *map(str, (SCRIPT, folder, checkpoint_minutes, *moments))]
    done = subprocess.run(program, capture_output=True, text=True, env=os.environ | SHARED)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("checkpoint_minutes", "seed"), [(0.0, 0), (10.0, 1)]
)  # 0: after every step
def test_twenty_random_kills_change_nothing(tmp_path, undisturbed, checkpoint_minutes, seed):
    generator = torch.Generator().manual_seed(seed)
    moments = torch.randint(script["STEPS"] - 1, (20,), generator=generator).tolist()
    # Sorted, or a run that is past a moment would be killed at its first step each time.
    assert kills(tmp_path, checkpoint_minutes, sorted(moments)) == 20
    same_run(tmp_path, undisturbed)


def test_a_run_that_has_ended_is_read_and_not_repeated(tmp_path, model, make_feed, recipe):
    first = vp.fit(model, make_feed(recipe), recipe, folder=tmp_path)
    with torch.no_grad():
        model[1].weight.zero_()
    again = vp.fit(model, make_feed(recipe), recipe, folder=tmp_path)
    assert again.seconds.tolist() == first.seconds.tolist()
    assert model[1].weight.abs().sum() > 0


def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_used(
    tmp_path, undisturbed, caplog
):
    """Within a tensor torch reads such a file without a word, and gives other weights."""
    with pytest.raises(StopError):
        script["trained"](tmp_path, stopping(12))
    last = tmp_path / "last.ckpt"
    content = bytearray(last.read_bytes())
    middle = slice(len(content) // 2, len(content) // 2 + 64)
    content[middle] = bytes(byte ^ 0xFF for byte in content[middle])
    last.write_bytes(content)
    assert valid_checkpoint(tmp_path) == tmp_path / "previous.ckpt"
    with caplog.at_level(logging.WARNING):
        script["trained"](tmp_path)
    assert "last.ckpt is damaged (its checksum does not match)" in caplog.text
    assert "resuming from previous.ckpt" in caplog.text
    same_run(tmp_path, undisturbed)


def test_a_loss_that_is_not_finite_leaves_the_last_valid_state(
    tmp_path, model, make_feed, recipe
):
    def progress(steps, _label):
        for step in steps:
            if step == 8:
                with torch.no_grad():
                    model[1].weight[0, 0] = torch.nan
            yield step

    said = r"finite, got nan at step 9 of 18 \(epoch 2, batch 3\), learning rate 0\.038.*"
    said += r" The last training checkpoint is .*last\.ckpt"
    with pytest.raises(ValueError, match=said):
        vp.fit(model, make_feed(recipe), recipe, folder=tmp_path, run=vp.Run(progress=progress))
    state = read_checkpoint(tmp_path)
    assert state["step"] == 6
    assert all(torch.isfinite(t).all() for t in state["engine"]["model"].values())


@pytest.fixture(scope="module")
def fit_again(tmp_path_factory, make_model, make_feed, make_images, recipe):
    """Fit in a folder with a finished run of the defaults."""
    folder = tmp_path_factory.mktemp("finished")
    images, targets = make_images()

    def fit(*, inner=(), data="one", pixels=images, labels=targets, teacher=(), **other):
        options = {"resume": other.pop("resume", True), "names": {"data": data}}
        changed = replace(recipe, distillation="hard", **({"epochs": 1, "warmup": 0.0} | other))
        feed = make_feed(changed, pixels, labels)
        models = make_model(*inner), make_model(*teacher)
        vp.fit(models[0], feed, changed, folder=folder, teacher=models[1], **options)

    fit()
    fit(pixels=images.clone(), labels=targets.clone())
    return fit


DIFFERENT = r" \w+ there and \w+ now\. Resume it with"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"lr": 0.01, "batch_size": 4},
            r"another run: recipe batch_size 8 there and 4 now; recipe lr 0\.05 there and 0",
        ),
        ({"inner": [torch.nn.Linear(8, 8)]}, r"model 2\.weight none there and \[8, 8\] now"),
        ({"teacher": [torch.nn.Linear(8, 8)]}, "teacher weights" + DIFFERENT),
        ({"data": "two"}, "run data one there and two now"),
        ({"labels": torch.arange(44) // 2 % 2}, "data classes" + DIFFERENT),
        ({"pixels": torch.zeros(44, 3, 4, 4).byte()}, "data sampled images" + DIFFERENT),
        ({"resume": False}, r"holds a run after 6 steps\. Set resume=True"),
    ],
)
def test_another_run_is_refused_by_what_is_different(fit_again, other, message):
    with pytest.raises(vp.InputError, match=message):
        fit_again(**other)


def test_a_folder_that_another_run_writes_to_is_refused(tmp_path, model, make_feed, recipe):
    fcntl = pytest.importorskip("fcntl")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(vp.InputError, match="folder must not be in use, and another run"):
        vp.fit(model, make_feed(recipe), recipe, folder=tmp_path)
    os.close(descriptor)
    vp.fit(model, make_feed(recipe), recipe, folder=tmp_path)
