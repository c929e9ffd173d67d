"""Commands under ``torchrun``: what is said is said once."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from visprism.cli import main


@pytest.mark.slow
def test_training_in_two_processes_says_once_how_it_went(tmp_path):
    for number in range(16):
        folder = tmp_path / "images" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number}.png")
    data = f"folder:{tmp_path / 'images'}"
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("-m", "visprism", "train", "quick", "--model", "resnet20?num_classes=2"),
            *("--data", data, "--test-data", data, "--epochs", "2"),
            *("--set", "batch_size=8", "--out", str(tmp_path / "run")),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(f"Wrote {tmp_path / 'run'}\n") == 1
    assert ran.stderr.count("epoch 2 of 2") == 1
    # The training data and the test data, each reported by the first process alone.
    assert ran.stderr.count("checking images: 16 done") == 2
    assert (tmp_path / "run" / "curves-loss.png").exists()


def test_harmonize_works_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    out = tmp_path / "out"
    assert main(["harmonize", "resnet20", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error == (
        "visprism: the number of processes of visprism harmonize must be 1, got 2. Run it "
        "without torchrun.\n"
    )
    assert not out.exists()
