"""A disk that is full while a network is trained: one sentence, and the run can be resumed."""

import errno
import resource
from functools import partialmethod
from pathlib import Path

import pytest
import torch

from visprism import InputError, fit, save_checkpoint
from visprism.core.errors import OutputError
from visprism.models.state_dicts import read_state_dict

NEEDED = (
    "last.ckpt", "history.csv", "history.npz", "best.safetensors", "model.safetensors",
    "recipe.yaml",
)  # fmt: skip


@pytest.fixture
def trained(model, make_feed, recipe, test_batches):
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def train(folder):
        model.load_state_dict(start)
        return fit(model, make_feed(recipe), recipe, test=test_batches, folder=folder)

    return train


def test_a_file_of_a_run_that_does_not_fit_is_named_and_the_run_resumes(
    trained, tmp_path, monkeypatch
):
    trained(tmp_path / "undisturbed")
    touch = Path.touch

    def full(path, name, *arguments, **options):
        if path.name.startswith(f".{name}."):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        touch(path, *arguments, **options)

    for name in NEEDED:
        error, sentence = OutputError, f"{name} could not be written"
        if name == "last.ckpt":
            error, sentence = InputError, "checkpoint of step 6 could not be written"
        run = tmp_path / f"without {name}"
        with monkeypatch.context() as patched:
            patched.setattr(Path, "touch", partialmethod(full, name))
            with pytest.raises(error, match=rf"{sentence}.* \(No space left .*Free some"):
                trained(run)
        assert not list(run.glob(".*"))
        trained(run)
        for weights in ("best.safetensors", "model.safetensors"):
            expected, resumed = (
                read_state_dict(folder / weights) for folder in (tmp_path / "undisturbed", run)
            )
            torch.testing.assert_close(resumed, expected, rtol=0, atol=0)


def test_weights_that_do_not_fit_are_refused_with_the_reason_of_the_system(tmp_path):
    """The library that writes them reports the reason as a text, without its number."""
    path = tmp_path / "model.safetensors"
    save_checkpoint(torch.nn.Linear(2, 2), path)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(
            OutputError, match=r"could not be written \(File too large\)\. Free"
        ):
            save_checkpoint(torch.nn.Linear(99, 99), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
