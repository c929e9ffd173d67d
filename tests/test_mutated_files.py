"""Every file that is read back, damaged: it is read, or refused in one sentence."""

import json
import random
from copy import deepcopy

import pytest
import torch
from torch import nn

import visprism as vp
from visprism.training.checkpointer import read_checkpoint, write_checkpoint

ODD = (None, 3, -1, 1.5, 10**30, True, "x", "\ud800", "\x1b[31m", [], {}, [None], {"a": None})
NUMBER = 100  # of random changes of bytes

pytestmark = pytest.mark.slow


def places(value, above=()):
    """The keys that lead to each part of a JSON value but the whole."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*above, key)
        if isinstance(part, dict | list):
            yield from places(part, (*above, key))


def with_odd_values(content):
    """The value with each of its parts replaced by each odd value."""
    for place in list(places(content)):
        for odd in ODD:
            changed = parent = deepcopy(content)
            for key in place[:-1]:
                parent = parent[key]
            parent[place[-1]] = odd
            yield json.dumps(changed).encode()


def with_random_bytes(content):
    """The bytes with parts flipped, cut out, doubled or cut off."""
    draw = random.Random(0)
    for _ in range(NUMBER):
        changed = bytearray(content)
        start = draw.randrange(len(changed))
        end = start + draw.choice((1, 1, 4, 64, len(changed)))
        part = changed[start:end]
        flipped = bytes(byte ^ draw.choice((1, 32, 128, 255)) for byte in part[:64])
        changed[start:end] = draw.choice((flipped, b"", part + part, b"[" * 5000))
        yield bytes(changed)


def network():
    torch.manual_seed(0)
    return nn.Linear(2, 2)


def calibration():
    logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    return vp.calibration(vp.Predictions(logits, logits.argmax(1).roll(1)))


def result(folder):
    calibration().save(folder / "a.npz")
    return folder / "a.npz"


def use_result(path):
    loaded = vp.Result.load(path)
    return loaded.findings(), loaded.columns(), loaded.answers()


def study(folder):
    entry = vp.Entry(models=("net",), analysis="calibration", results=(calibration(),))
    failure = vp.Failure("net", "fourier", "no grid", "skipped")
    header = {"seed": 0, "positions": [1, 0], "untrained": ["net"], "outputs": {"net": [[0.5]]}}
    vp.Study(("net",), (entry,), (failure,), header).save(folder)
    return folder / "study.json"


def use_study(path):
    loaded = vp.Study.load(path.parent)
    return loaded.lines(), loaded.to_markdown()


def weights(folder):
    recipe = {"epochs": 1, "batch_size": 2, "lr": 0.1}
    vp.save_checkpoint(network(), folder / "a.safetensors", recipe=recipe, metrics={"a": 1.0},
                       provenance=vp.Provenance(model="resnet20"))  # fmt: skip
    return folder / "a.safetensors"


def use_weights(path):
    vp.read_metadata(path)
    vp.load_checkpoint(network(), path)


def training(folder):
    write_checkpoint(folder, {"step": 1, "engine": network().state_dict()})
    return folder / "last.ckpt"


# Other files of JSON are read by the same function: see app/test_hostile_requests.py for forms,
# recipes in test_untrusted_files.py and study files in cli/test_study_file.py.
FILES = {
    "result": (result, use_result),
    "index of a study": (study, use_study),
    "weights": (weights, use_weights),
    "training": (training, lambda path: read_checkpoint(path.parent)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_read_or_refused_in_one_sentence(tmp_path, name):
    write, use = FILES[name]
    path = write(tmp_path)
    content = path.read_bytes()
    use(path)
    damaged = [*with_random_bytes(content)]
    if path.suffix == ".json":
        damaged += with_odd_values(json.loads(content))
    refused = []
    for changed in damaged:
        path.write_bytes(changed)
        try:
            use(path)
        except vp.InputError as error:
            refused.append(str(error))
    assert len(refused) > NUMBER / 4
    assert [text for text in refused if not text.isprintable()] == []
