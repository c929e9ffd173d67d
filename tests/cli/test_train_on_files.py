"""``visprism train`` on images from files: damaged in the middle; and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from visprism.training.checkpointer import read_checkpoint, valid_checkpoint

IMAGES, BATCH = 24, 4
STEPS = IMAGES // BATCH
OPTIONS = ["--model", "resnet20", "--size", "72", "--epochs", "2"]
OPTIONS += ["--set", f"batch_size={BATCH}", "--set", "precision=fp32"]

pytestmark = pytest.mark.slow  # runs of training, as a user starts them


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two classes of noise, more than 64 pixels a side, so that they are read in each epoch."""
    root = tmp_path_factory.mktemp("photos")
    for split, count in (("train", IMAGES // 2), ("val", 5)):
        for target in ("cats", "dogs"):
            (root / split / target).mkdir(parents=True)
            for i in range(count):
                draws = np.random.default_rng([len(split), len(target), ord(target[0]), i])
                pixels = draws.integers(0, 256, (72, 72, 3), np.uint8)
                Image.fromarray(pixels).save(root / split / target / f"{i:02}.png")
    return root


def arguments(photos, out, workers, *more):
    data = ["--data", f"folder:{photos}", "--workers", str(workers)]
    model = ["--model", "resnet20?num_classes=2"]
    return ["train", "quick", *OPTIONS, *data, *model, *more, "--out", str(out)]


SEARCH = "harmonize resnet20 --search quick --data shapes --limit 40 --epochs 1 --repeats 2"
SEARCH += " --head-dim 8 --set batch_size=12 --set warmup=0 --set precision=fp32 --out"

PROGRAM = """
import json, sys
from visprism.cli import main
print([main(command) for command in json.loads(sys.argv[1])])
"""


def test_ctrl_c_keeps_what_there_is_and_says_how_to_go_on(photos, tmp_path):
    """As a terminal sends it: to the command and to the processes that read for it."""
    run, searched = tmp_path / "run", tmp_path / "found"
    training = [*arguments(photos, run, 2), "--epochs", "50"]
    said = []
    # The state of the first epoch, and the accuracy of the first seed, are kept by then.
    moments = iter(["epoch 2 of 50", "training the CNN, seed 1", "never"])
    moment = next(moments)
    with subprocess.Popen(  # one interpreter for both: it takes longer than they do
        [
            sys.executable,
            "-c",
            PROGRAM,
            json.dumps([training, [*SEARCH.split(), str(searched)]]),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        for line in process.stderr:
            said.append(line)
            if line.startswith(moment):
                os.killpg(process.pid, signal.SIGINT)
                moment = next(moments)
        assert process.wait(timeout=60) == 0, "".join(said)
        assert process.stdout.read() == "[130, 130]\n"
    state, log = run / "last.ckpt", searched / "search.json"
    messages = [line for line in said if "interrupted" in line]
    assert messages == [
        f"visprism: interrupted; saved {state}; the same command with --resume resumes\n",
        f"visprism: interrupted; {log} is kept; the same command resumes\n",
    ]
    assert "Traceback" not in "".join(said)
    assert valid_checkpoint(run) == state
    assert read_checkpoint(run)["step"] % STEPS == 0
    assert len(json.loads(log.read_text())["values"]) == 1  # of the first seed
