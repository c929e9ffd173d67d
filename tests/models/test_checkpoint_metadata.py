"""Laws of metadata in checkpoints (src/visprism/models/checkpoints.py)."""

import json

import pytest
import torch
from safetensors.torch import save_file
from small_models import small_convnet as network

import visprism as vp
from visprism.models.checkpoints import Metadata


def test_what_is_known_of_a_model_comes_back_with_it(tmp_path):
    path = tmp_path / "a.safetensors"
    metadata = Metadata(
        preprocessing=vp.Preprocessing((32, 48), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "bilinear"),
        class_names=("cat", "Dogge \N{LATIN SMALL LETTER A WITH DIAERESIS}"),
        metrics={"accuracy": 0.75, "nll": 1.5},
        provenance=vp.Provenance(data="shapes", image_shape=(3, 32, 48), seed=4),
    )
    vp.save_checkpoint(
        network(),
        path,
        preprocessing=metadata.preprocessing,
        class_names=metadata.class_names,
        metrics=metadata.metrics,
        provenance=metadata.provenance,
    )
    assert vp.read_metadata(path) == metadata


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt"])
def test_a_file_of_others_says_nothing_of_itself(tmp_path, name):
    state = network().state_dict()
    (save_file if name.endswith("safetensors") else torch.save)(state, tmp_path / name)
    assert vp.read_metadata(tmp_path / name) == Metadata()


INVALID = (
    "{nope",
    "[" * 100_000,
    [],
    {"recipe": 3},
    {"metrics": {"accuracy": "good"}},
    {"preprocessing": {"mean": [0.5]}},
    {"preprocessing": {"size": [32, 32], "mean": [0.5], "std": [0.0]}},
)


@pytest.mark.parametrize("content", INVALID)
def test_metadata_of_other_types_are_refused_by_the_name_of_the_file(tmp_path, content):
    text = content if isinstance(content, str) else json.dumps(content)
    path = tmp_path / "a.safetensors"
    save_file(network().state_dict(), path, metadata={"visprism": text})
    for named in (path, f"resnet20@{path}"):
        with pytest.raises(vp.InputError, match=r"a\.safetensors was refused: its visprism"):
            vp.load_model(str(named))
