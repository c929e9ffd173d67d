"""Laws of the authors' checkpoints (src/visprism/models/author_checkpoints.py).

The files are made here, with the names and shapes that the authors' have.
"""

import re

import pytest
import torch

from visprism import MODELS, Preprocessing, load_model, save_checkpoint
from visprism.core.run import stream

SIZES = {  # of the authors' networks
    "resnet50_32": 23_705_252,
    "vit_tiny_patch2_32": 5_403_172,
    "pit_tiny_patch2_32": 4_582_436,
    "swin_tiny_patch1_window4_32": 27_562_126,
}
OPTIONS = {
    "pit_tiny_patch2_32": {"qkv_bias": True, "no_embed_class": True},
    "swin_tiny_patch1_window4_32": {"qkv_bias": False},
}


def stage_before(key):
    return f"{key[1]}{int(key[2]) - 1}{key[3]}"


# The authors' names of tensors, for patterns of the zoo's.
RENAMED = (
    (r"^conv1", "layer0.0"),
    (r"^bn1", "layer0.1"),
    (r"\.conv(\d)\.weight", r".conv\1.0.weight"),
    (r"\.bn(\d)\.", r".conv\1.1."),
    (r"downsample\.(\d)", r"shortcut.\1"),
    (r"^fc\.", "classifier.0.dense."),
    (r"head\.fc", "head"),
    # timm 0.5 merges and pools at the end of a stage; the tensors are those of the next.
    (r"^(layers\.)(\d)(\.downsample)", stage_before),
    (r"^(transformers\.)(\d)(\.pool)", stage_before),
)


def value(name, shape):
    """What a trained network might hold under this name."""
    if name.endswith("num_batches_tracked"):
        return torch.tensor(7)
    noise = torch.randn(shape, generator=stream(0, name))
    if name.endswith("running_var"):
        return noise.abs() + 0.5
    if len(shape) < 2:
        return 0.1 * noise + (1.0 if name.endswith("weight") else 0.0)
    return noise * (2 / noise[0].numel()) ** 0.5


def constants_of_swin():
    """Indices and masks that timm 0.5 stores."""
    for stage, depth in enumerate((2, 2, 6, 2)):
        for block in range(depth):
            name = f"layers.{stage}.blocks.{block}"
            yield f"{name}.attn.relative_position_index", torch.zeros(16, 16)
            if block % 2 and stage < 3:
                yield f"{name}.attn_mask", torch.zeros((8 // 2**stage) ** 2, 16, 16)


@pytest.fixture(scope="module")
def states():
    states = {}
    for name in SIZES:
        with torch.device("meta"):
            ours = MODELS[name](num_classes=100, **OPTIONS.get(name, {})).state_dict()
        states[name] = dict(constants_of_swin()) if name.startswith("swin") else {}
        for key, tensor in ours.items():
            for pattern, theirs in RENAMED:
                key = re.sub(pattern, theirs, key)
            states[name][key] = value(key, tensor.shape)
    return states


def written(state, path):
    torch.save({"state_dict": state, "epoch": 299, "arch": "network"}, path)
    return path


@pytest.mark.parametrize(("name", "size"), SIZES.items())
def test_the_files_made_here_have_as_many_weights_as_the_authors_networks(states, name, size):
    stored = re.compile("running|tracked|attn_mask|relative_position_index")
    assert sum(v.numel() for k, v in states[name].items() if not stored.search(k)) == size


@pytest.mark.parametrize("name", OPTIONS)
def test_every_weight_of_the_file_is_in_the_network_once(tmp_path, states, name):
    loaded = load_model(f"{name}@{written(states[name], tmp_path / 'a.pth.tar')}")
    constants = re.compile("attn_mask|relative_position_index")
    theirs = [v for k, v in states[name].items() if not constants.search(k) and v.dim()]
    ours = [v for v in loaded.model.state_dict().values() if v.dim()]
    assert len(theirs) == len(ours)
    # No two tensors drawn at random have equal sums.
    sums = [sorted(float(v.double().sum()) for v in tensors) for tensors in (theirs, ours)]
    assert sums[0] == pytest.approx(sums[1], abs=1e-12)
    assert loaded.preprocessing.mean == (0.5071, 0.4867, 0.4408)
    assert loaded.preprocessing.std == (0.2675, 0.2565, 0.2761)
    if name.startswith("swin"):
        merge = states[name]["layers.1.downsample.reduction.weight"]
        assert torch.equal(loaded.model.layers[2].downsample.reduction.weight, merge)
    if name.startswith("pit"):
        pool = states[name]["transformers.0.pool.conv.weight"]
        assert torch.equal(loaded.model.transformers[1].pool.conv.weight, pool)


def test_the_logits_of_resnet50_are_those_of_the_authors_class(tmp_path, states):
    """Their class written out: branches of conv, norm and relu, and a shortcut."""
    name, state = "resnet50_32", states["resnet50_32"]
    functional = torch.nn.functional

    def step(key, x, stride=1):
        kernel = state[f"{key}.0.weight"]
        x = functional.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        parts = ("running_mean", "running_var", "weight", "bias")
        return functional.batch_norm(x, *(state[f"{key}.1.{part}"] for part in parts))

    x = images = torch.randn(2, 3, 32, 32, generator=stream(0, "images"))
    x = step("layer0", x).relu()
    for stage, depth in enumerate((3, 4, 6, 3), 1):
        for i in range(depth):
            key, stride = f"layer{stage}.{i}", 2 if stage > 1 and i == 0 else 1
            branch = step(f"{key}.conv1", x).relu()
            branch = step(f"{key}.conv2", branch, stride).relu()
            branch = step(f"{key}.conv3", branch)
            x = (branch + (step(f"{key}.shortcut", x, stride) if i == 0 else x)).relu()
    last = state["classifier.0.dense.weight"], state["classifier.0.dense.bias"]
    expected = functional.linear(x.mean((2, 3)), *last)
    model = load_model(f"{name}@{written(state, tmp_path / 'a.pth.tar')}").model
    torch.testing.assert_close(model(images), expected, rtol=1e-4, atol=1e-4)


def test_a_file_of_ours_is_not_taken_for_theirs(tmp_path):
    """One of 100 classes too, if it says itself how it wants its images."""
    path, stated = tmp_path / "own.safetensors", Preprocessing((32, 32), mean=(0.5, 0.5, 0.5))
    model = MODELS["vit_tiny_patch2_32"](num_classes=100)
    save_checkpoint(model, path, preprocessing=stated)
    loaded = load_model(f"vit_tiny_patch2_32?num_classes=100@{path}")
    assert loaded.preprocessing == stated


def test_a_network_of_theirs_for_other_classes_has_no_images_of_theirs(tmp_path):
    state = MODELS["vit_tiny_patch2_32"](num_classes=7).state_dict()
    loaded = load_model(f"vit_tiny_patch2_32@{written(state, tmp_path / 'a.pth.tar')}")
    assert loaded.preprocessing == load_model("vit_tiny_patch2_32").preprocessing
    assert loaded.model.head.out_features == 7
