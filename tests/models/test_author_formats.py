"""Laws of the authors' checkpoints (src/visprism/models/author_checkpoints.py).

The files are made here, with the names and shapes that the authors' have.
"""

import re

import pytest
import torch
from internals import stream

from visprism import MODELS, InputError, Preprocessing, load_model, save_checkpoint

CLASSES = 100
NAMES = [
    "resnet50_32",
    "vit_tiny_patch2_32",
    "pit_tiny_patch2_32",
    "swin_tiny_patch1_window4_32",
]


def linear(name, rows, columns, *, bias=True):
    return {f"{name}.weight": (rows, columns)} | ({f"{name}.bias": (rows,)} if bias else {})


def norm(name, width):
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def batch_norm(name, width):
    counted = {f"{name}.{of}": (width,) for of in ("running_mean", "running_var")}
    return norm(name, width) | counted | {f"{name}.num_batches_tracked": ()}


def block(name, width, *, qkv_bias):
    return {
        **norm(f"{name}.norm1", width),
        **linear(f"{name}.attn.qkv", 3 * width, width, bias=qkv_bias),
        **linear(f"{name}.attn.proj", width, width),
        **norm(f"{name}.norm2", width),
        **linear(f"{name}.mlp.fc1", 4 * width, width),
        **linear(f"{name}.mlp.fc2", width, 4 * width),
    }


def resnet50():
    """The authors' ResNet(Bottleneck, [3, 4, 6, 3], num_classes=100, stem=False)."""
    shapes = {"layer0.0.weight": (64, 3, 3, 3), **batch_norm("layer0.1", 64)}
    width = 64
    for stage, (depth, inner) in enumerate(
        zip((3, 4, 6, 3), (64, 128, 256, 512), strict=True), 1
    ):
        for i in range(depth):
            name = f"layer{stage}.{i}"
            if i == 0:
                shapes[f"{name}.shortcut.0.weight"] = (4 * inner, width, 1, 1)
                shapes |= batch_norm(f"{name}.shortcut.1", 4 * inner)
            convolutions = ((inner, width, 1), (inner, inner, 3), (4 * inner, inner, 1))
            for number, (out, into, side) in enumerate(convolutions, 1):
                shapes[f"{name}.conv{number}.0.weight"] = (out, into, side, side)
                shapes |= batch_norm(f"{name}.conv{number}.1", out)
            width = 4 * inner
    return shapes | linear("classifier.0.dense", CLASSES, width)


def vit_tiny():
    """timm 0.5's VisionTransformer(img_size=32, patch_size=2, embed_dim=192, ...)."""
    shapes = {"cls_token": (1, 1, 192), "pos_embed": (1, 257, 192)}
    shapes |= {"patch_embed.proj.weight": (192, 3, 2, 2), "patch_embed.proj.bias": (192,)}
    for i in range(12):
        shapes |= block(f"blocks.{i}", 192, qkv_bias=False)
    return shapes | norm("norm", 192) | linear("head", CLASSES, 192)


def pit_tiny():
    """timm 0.5's PoolingVisionTransformer(img_size=32, patch_size=2, stride=1, ...)."""
    shapes = {"pos_embed": (1, 64, 31, 31), "cls_token": (1, 1, 64)}
    shapes |= {"patch_embed.conv.weight": (64, 3, 2, 2), "patch_embed.conv.bias": (64,)}
    for stage, (depth, width) in enumerate(zip((2, 6, 4), (64, 128, 256), strict=True)):
        name = f"transformers.{stage}"
        for i in range(depth):
            shapes |= block(f"{name}.blocks.{i}", width, qkv_bias=True)
        if stage < 2:  # at its end
            shapes[f"{name}.pool.conv.weight"] = (2 * width, 1, 3, 3)
            shapes[f"{name}.pool.conv.bias"] = (2 * width,)
            shapes |= linear(f"{name}.pool.fc", 2 * width, width)
    return shapes | norm("norm", 256) | linear("head", CLASSES, 256)


def swin_tiny():
    """timm 0.5's SwinTransformer(img_size=32, patch_size=1, window_size=4, ...)."""
    shapes = {"patch_embed.proj.weight": (96, 3, 1, 1), "patch_embed.proj.bias": (96,)}
    shapes |= norm("patch_embed.norm", 96)
    for stage, depth in enumerate((2, 2, 6, 2)):
        width, heads, windows = 96 * 2**stage, 3 * 2**stage, (8 // 2**stage) ** 2
        for i in range(depth):
            name = f"layers.{stage}.blocks.{i}"
            shapes |= block(name, width, qkv_bias=False)
            shapes[f"{name}.attn.relative_position_bias_table"] = (49, heads)
            shapes[f"{name}.attn.relative_position_index"] = (16, 16)
            if i % 2 and windows > 1:
                shapes[f"{name}.attn_mask"] = (windows, 16, 16)
        if stage < 3:  # at its end
            merge = f"layers.{stage}.downsample"
            shapes[f"{merge}.reduction.weight"] = (2 * width, 4 * width)
            shapes |= norm(f"{merge}.norm", 4 * width)
    return shapes | norm("norm", 768) | linear("head", CLASSES, 768)


MAKERS = dict(zip(NAMES, (resnet50, vit_tiny, pit_tiny, swin_tiny), strict=True))


def value(name, shape):
    """What a trained network might hold under this name."""
    if name.endswith("num_batches_tracked"):
        return torch.tensor(7)
    if name.endswith("relative_position_index"):
        return offsets_of_swin()
    if name.endswith("attn_mask"):
        return masks_of_swin(round(shape[0] ** 0.5))
    noise = torch.randn(shape, generator=stream(0, name))
    if name.endswith("running_var"):
        return noise.abs() + 0.5
    if len(shape) < 2:
        return 0.1 * noise + (1.0 if name.endswith("weight") else 0.0)
    return noise * (2 / noise[0].numel()) ** 0.5


def offsets_of_swin():
    """7 (row_query - row_key + 3) + column_query - column_key + 3, for windows of 4x4."""
    index = torch.empty(16, 16, dtype=torch.long)
    for i in range(16):
        for j in range(16):
            index[i, j] = 7 * (i // 4 - j // 4 + 3) + i % 4 - j % 4 + 3
    return index


def masks_of_swin(across):
    """-100 between tokens of a rolled window that come from two sides of the image."""
    masks = torch.zeros(across**2, 16, 16)
    for window in range(across**2):
        last = window // across == across - 1, window % across == across - 1
        for i in range(16):
            for j in range(16):
                rows = last[0] and (i // 4 < 2) != (j // 4 < 2)
                columns = last[1] and (i % 4 < 2) != (j % 4 < 2)
                masks[window, i, j] = -100.0 * (rows or columns)
    return masks


@pytest.fixture(scope="module")
def states():
    return {
        name: {key: value(key, shape) for key, shape in make().items()}
        for name, make in MAKERS.items()
    }


def written(state, path):
    torch.save({"state_dict": state, "epoch": 299, "arch": "network"}, path)
    return path


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet50_32", 23_705_252),
        ("vit_tiny_patch2_32", 5_403_172),
        ("pit_tiny_patch2_32", 4_582_436),
        ("swin_tiny_patch1_window4_32", 27_562_126),
    ],
)
def test_the_files_made_here_have_as_many_weights_as_the_authors_networks(states, name, size):
    stored = re.compile("running|tracked|attn_mask|relative_position_index")
    assert sum(v.numel() for k, v in states[name].items() if not stored.search(k)) == size


@pytest.mark.parametrize("name", NAMES[1:])  # the logits of the first show it
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
    # timm 0.5 merges and pools at the end of a stage; the tensors are those of the next.
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


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        (
            "pit_tiny_patch2_32",
            lambda s: s.update({"transformers.0.norm.weight": torch.zeros(64)}),
            r"like a checkpoint of the authors.*1 of its 161 tensors \(transformers\.0\.norm",
        ),
        (
            "vit_tiny_patch2_32",
            lambda s: s.pop("blocks.3.norm1.bias"),
            r"1 missing from the file \(blocks\.3\.norm1\.bias\)",
        ),
        (
            "swin_tiny_patch1_window4_32",
            lambda s: s.update({"layers.0.blocks.1.attn_mask": torch.zeros(64, 16, 16)}),
            r"its layers\.0\.blocks\.1\.attn_mask must be for windows of 4x4 tokens",
        ),
        (
            "resnet50_32",
            lambda s: s.update({"classifier.0.dense.weight": torch.tensor(0.0)}),
            r"classifier\.0\.dense\.weight must have one row per class, got shape \(\)",
        ),
    ],
)
def test_a_file_with_other_names_is_refused(tmp_path, states, name, change, sentence):
    state = dict(states[name])
    change(state)
    with pytest.raises(InputError, match=sentence):
        load_model(f"{name}@{written(state, tmp_path / 'a.pth.tar')}")
