"""Layers (src/visprism/anatomy/blocks/layers.py): each call of an innermost module."""

import pytest
import torch
from torch import nn

from visprism import dissect, layers, load_model, watch


class Branch(nn.Module):
    """Two convolutions with one activation, in place, beside a shortcut."""

    def __init__(self, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, stride, padding=1)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(width, width, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.conv2(self.drop(self.act(self.conv1(x))))
        return self.act(y.add_(self.shortcut(x)))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.blocks = nn.Sequential(Branch(4, 1), Branch(4, 2))
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


@pytest.fixture
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Network().eval()


def by_hand(network, x):
    """The output of every layer, with nothing done in place."""
    conv = nn.functional.conv2d
    maps = {"stem": network.stem(x)}
    x = maps["stem"]
    for i, block in enumerate(network.blocks):
        name = f"blocks.{i}"
        y = maps[f"{name}.conv1"] = block.conv1(x)
        y = maps[f"{name}.act"] = y.clamp(min=0)
        y = maps[f"{name}.conv2"] = block.conv2(y)
        if i:
            x = conv(x, block.shortcut.weight, block.shortcut.bias, stride=2)
            maps[f"{name}.shortcut"] = x
        x = maps[f"{name}.act#2"] = (y + x).clamp(min=0)
    return maps


def test_each_call_of_an_innermost_module_is_a_layer_in_the_order_of_calls(network, images):
    blocks = layers(dissect(network, images))
    assert [(b.name, b.stage, b.subsampling, b.shape) for b in blocks] == [
        ("stem", 0, False, (4, 16, 16)),
        ("blocks.0.conv1", 1, False, (4, 16, 16)),
        ("blocks.0.act", 1, False, (4, 16, 16)),
        ("blocks.0.conv2", 1, False, (4, 16, 16)),
        ("blocks.0.act#2", 1, False, (4, 16, 16)),
        ("blocks.1.conv1", 2, True, (4, 8, 8)),
        ("blocks.1.act", 2, False, (4, 8, 8)),
        ("blocks.1.conv2", 2, False, (4, 8, 8)),
        ("blocks.1.shortcut", 2, False, (4, 8, 8)),
        ("blocks.1.act#2", 2, False, (4, 8, 8)),
    ]
    assert [b.depth for b in blocks] == [i / 9 for i in range(10)]
    assert {b.kind for b in blocks} == {"stem", "conv"}
    assert blocks["blocks.1.shortcut"].parameters == (
        "blocks.1.shortcut.bias",
        "blocks.1.shortcut.weight",
    )


def test_each_is_read_before_a_later_layer_changes_it_in_place(network, images):
    expected = by_hand(network, images)
    with torch.no_grad(), watch(layers(dissect(network, images))) as maps:
        network(images)
    assert set(maps) == set(expected)
    for name, x in expected.items():
        torch.testing.assert_close(maps[name], x)
    assert (maps["blocks.0.conv1"] < 0).any()
    assert not (maps["blocks.0.act"] < 0).any()


def test_resnet20_has_61_layers_on_the_grid():
    network = load_model("resnet20").model
    blocks = layers(dissect(network, torch.zeros(2, 3, 32, 32)))
    assert len(blocks) == 61
    innermost = {
        name
        for name, module in network.named_modules()
        if not list(module.children()) and not isinstance(module, nn.Identity)
    }
    assert {b.name for b in blocks} == innermost - {"global_pool", "fc"}


def test_tokens_lie_on_their_grid_and_attention_counts_as_it_is_called(dissected):
    anatomy = dissected("torchvision_vit")
    by_name = {block.name: block for block in layers(anatomy)}
    assert by_name["encoder.layers.encoder_layer_0.ln_1"].layout.num_prefix_tokens == 1
    attention = by_name["encoder.layers.encoder_layer_0.self_attention"]
    assert (attention.kind, attention.shape) == ("attention", (32, 4, 4))
    assert not any(name.endswith("dropout") for name in by_name)
