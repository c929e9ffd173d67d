"""Laws of resuming (src/visprism/training/checkpoint_files.py, checkpointer.py)."""

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
from internals import read_checkpoint, read_state_dict, valid_checkpoint
from PIL import Image
from stopped import StopError, stopping
from two_processes import SHARED

import visprism as vp

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


@pytest.mark.parametrize("within", [False, True])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_used(
    tmp_path, undisturbed, caplog, within
):
    """Within a tensor torch reads such a file without a word, and gives other weights."""
    with pytest.raises(StopError):
        script["trained"](tmp_path, stopping(12))
    last = tmp_path / "last.ckpt"
    content = bytearray(last.read_bytes())
    middle = slice(len(content) // 2, len(content) // 2 + 64)
    if within:
        content[middle] = bytes(byte ^ 0xFF for byte in content[middle])
    last.write_bytes(content if within else content[:-1000])
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


def test_another_recipe_or_model_is_refused_by_name(tmp_path, make_model, make_feed, recipe):
    vp.fit(make_model(), make_feed(recipe), recipe, folder=tmp_path)
    other = replace(recipe, lr=0.01, batch_size=4)
    with pytest.raises(
        ValueError,
        match=r"another run: recipe batch_size 8 there and 4 now; recipe lr 0\.05 there and "
        r"0\.01 now\. Resume it with",
    ):
        vp.fit(make_model(), make_feed(other), other, folder=tmp_path)
    wider = make_model(torch.nn.Linear(8, 8))
    with pytest.raises(ValueError, match=r"model 2\.weight none there and \[8, 8\] now"):
        vp.fit(wider, make_feed(recipe), recipe, folder=tmp_path)


def test_other_data_are_refused_by_name(tmp_path, make_model, make_feed, make_images, recipe):
    vp.fit(make_model(), make_feed(recipe), recipe, folder=tmp_path, names={"data": "one"})
    images, targets = make_images()
    same = make_feed(recipe, images.clone(), targets.clone())
    vp.fit(make_model(), same, recipe, folder=tmp_path, names={"data": "one"})
    with pytest.raises(ValueError, match="run data one there and two now"):
        vp.fit(make_model(), same, recipe, folder=tmp_path, names={"data": "two"})
    names = {"data": "one"}
    others = make_feed(recipe, images, 1 - targets)
    with pytest.raises(ValueError, match=r"data classes \w+ there and \w+ now\. Resume"):
        vp.fit(make_model(), others, recipe, folder=tmp_path, names=names)
    others = make_feed(recipe, 255 - images, targets)
    with pytest.raises(ValueError, match=r"data sampled images \w+ there and \w+ now\. Resume"):
        vp.fit(make_model(), others, recipe, folder=tmp_path, names=names)


@pytest.mark.parametrize("other", ["an image", "a class"])
def test_other_files_under_the_same_name_are_refused(tmp_path, make_model, recipe, other):
    names = [f"{target}/{i}.png" for target in "ab" for i in range(6)]
    for number, name in enumerate(names):
        pixels = np.random.default_rng(number).integers(0, 256, (4, 4, 3), np.uint8)
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "own" / name)

    def feed():
        images = vp.load_data(f"folder:{tmp_path}/own")
        way = vp.Preprocessing((4, 4), crop=1.0)
        return vp.loader_feed(images, way, recipe.batch_size, seed=recipe.seed)

    vp.fit(make_model(), feed(), recipe, folder=tmp_path / "run")
    vp.fit(make_model(), feed(), recipe, folder=tmp_path / "run")  # the same: nothing to say
    if other == "an image":
        Image.new("RGB", (4, 4)).save(tmp_path / "own" / names[3])
        said = r"data sampled images \w+ there and \w+ now\. Resume"
    else:
        (tmp_path / "own" / names[5]).rename(tmp_path / "own" / "b" / "00.png")
        said = r"data classes \w+ there and \w+ now; data sampled images"
    with pytest.raises(ValueError, match=said):
        vp.fit(make_model(), feed(), recipe, folder=tmp_path / "run")


def test_another_teacher_is_refused(tmp_path, make_model, make_feed, recipe):
    taught = replace(recipe, distillation="hard", epochs=1, warmup=0.0)
    feed = make_feed(taught)
    vp.fit(make_model(), feed, taught, folder=tmp_path, teacher=make_model())
    with pytest.raises(ValueError, match=r"teacher weights \w+ there and \w+ now\. Resume"):
        vp.fit(
            make_model(),
            feed,
            taught,
            folder=tmp_path,
            teacher=make_model(torch.nn.Linear(8, 8)),
        )


def test_a_folder_that_another_run_writes_to_is_refused(tmp_path, model, make_feed, recipe):
    fcntl = pytest.importorskip("fcntl")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(vp.InputError, match="folder must not be in use, and another run"):
        vp.fit(model, make_feed(recipe), recipe, folder=tmp_path)
    os.close(descriptor)
    vp.fit(model, make_feed(recipe), recipe, folder=tmp_path)


def test_a_run_is_resumed_only_with_resume(tmp_path, model, make_feed, recipe):
    vp.fit(model, make_feed(recipe), recipe, folder=tmp_path)
    with pytest.raises(ValueError, match=r"holds a run after 18 steps\. Set resume=True"):
        vp.fit(model, make_feed(recipe), recipe, folder=tmp_path, resume=False)


def test_the_recipe_and_the_history_are_there_after_an_epoch(
    tmp_path, model, make_feed, recipe
):
    with pytest.raises(StopError):
        vp.fit(
            model, make_feed(recipe), recipe, folder=tmp_path, run=vp.Run(progress=stopping(7))
        )
    assert vp.load_recipe(str(tmp_path / "recipe.yaml")) == recipe
    history = vp.Result.load(tmp_path / "history.npz")
    assert history.epoch.tolist() == [1]
    assert history.provenance.batch_size == recipe.batch_size
