"""Laws of the authors' own classes (src/visprism/models/author_networks.py).

The networks of `author_modules` have the names and the computation of the authors' classes.
"""

import logging
from pathlib import Path

import author_modules as theirs
import pytest
import torch
from torch import nn

from visprism import MODELS, InputError, load_model
from visprism.core.run import stream

CLASSES = 10
BOTTLENECKS = (3, 4, 6, 3)
slow = pytest.mark.slow
NETWORKS = {
    "resnet18_32": lambda: theirs.resnet((2, 2, 2, 2), 1, CLASSES),
    "resnext50_32x4d_32": lambda: theirs.resnet(
        BOTTLENECKS, 4, CLASSES, groups=32, group_width=4
    ),
    "wide_resnet50_2_32": lambda: theirs.resnet(BOTTLENECKS, 4, CLASSES, group_width=128),
    "se_resnet50_32": lambda: theirs.resnet(BOTTLENECKS, 4, CLASSES, gate=theirs.squeeze),
    "cbam_resnet50_32": lambda: theirs.resnet(BOTTLENECKS, 4, CLASSES, gate=theirs.cbam),
    "preact_resnet18_32": lambda: theirs.preresnet((2, 2, 2, 2), 1, CLASSES),
    "preact_resnet50_32": lambda: theirs.preresnet(BOTTLENECKS, 4, CLASSES),
    "alter_resnet18_32": lambda: theirs.preresnet((2, 2, 2, 2), 1, CLASSES, (0, 1, 1, 1)),
    "alter_resnet50_32": lambda: theirs.preresnet((3, 4, 6, 4), 4, CLASSES, (0, 1, 1, 2), 2),
    "vgg11_bn_32": lambda: theirs.vgg((1, 1, 2, 2, 2), "after", CLASSES),
    "preact_vgg11_32": lambda: theirs.vgg((1, 1, 2, 2, 2), "before", CLASSES),
    "alexnet_32": lambda: theirs.alexnet(CLASSES),
    "mobilenetv2_32": lambda: theirs.MobileNet(CLASSES),
    "vit_tiny_patch2_32": lambda: theirs.vit(CLASSES),
    "pit_tiny_patch2_32": lambda: theirs.pit(CLASSES),
    "mixer_tiny_patch2_32": lambda: theirs.Mixer(CLASSES),
}
# Of many weights, or of a family that a smaller one stands for.
LARGE = {
    "vgg11_bn_32",
    "preact_vgg11_32",
    "wide_resnet50_2_32",
    "resnext50_32x4d_32",
    "preact_resnet50_32",
    "alter_resnet50_32",
}


def randomized(network):
    """The network in evaluation mode, with weights as of a trained one."""
    for name, tensor in network.state_dict().items():
        noise = torch.randn(tensor.shape, generator=stream(0, name))
        if name.endswith("running_var"):
            tensor.copy_(noise.abs() + 0.5)
        elif tensor.ndim < 2 and tensor.is_floating_point():
            tensor.copy_(0.1 * noise + (name.endswith("weight")))
        elif tensor.is_floating_point():
            tensor.copy_(noise * (2 / max(tensor[0].numel(), 4)) ** 0.5)
    return network.eval()


def written(network, path, name="network"):
    torch.save({"name": name, "state_dict": network.state_dict()}, path)
    return path


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=slow) if n in LARGE else n for n in NETWORKS]
)
@torch.no_grad()
def test_the_logits_are_those_of_the_authors_class(tmp_path, name):
    network = randomized(NETWORKS[name]())
    loaded = load_model(f"{name}@{written(network, tmp_path / 'a.pth.tar')}")
    images = torch.randn(2, 3, 32, 32, generator=stream(0, "images"), dtype=torch.float64)
    expected = network.double()(images)
    tolerance = 1e-12 * expected.abs().max().item()
    logits = loaded.model.double()(images)
    torch.testing.assert_close(logits, expected, rtol=0, atol=tolerance)
    assert loaded.preprocessing.std == (0.2023, 0.1994, 0.201)


def test_mc_dropout_moves_the_layers_and_the_weights_follow(tmp_path, caplog):
    """The layers of a plain network have numbers, which dropout layers change."""
    network = randomized(theirs.alexnet(CLASSES))
    path = written(network, tmp_path / "a.pth.tar", "alexnet_mcdo")
    images = torch.randn(2, 3, 32, 32, generator=stream(0, "images"))
    model = load_model(f"alexnet_32?mc_dropout=0.3@{path}").model
    torch.testing.assert_close(model(images), network(images))
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        load_model(f"alexnet_32@{path}")
    assert "alexnet_mcdo, which keeps dropout active" in caplog.text


@pytest.mark.parametrize("name", ["preact_vgg19_224", "vgg13_bn_32", "resnet152_224"])
def test_every_tensor_of_a_large_network_has_a_name_and_the_shape_of_the_zoo(name):
    from visprism.models.author_networks import author_format

    depths = {"13": (2, 2, 2, 2, 2), "19": (2, 2, 4, 4, 4)}
    with torch.device("meta"):
        model = MODELS[name](num_classes=CLASSES)
        if name.startswith("resnet"):
            network = theirs.resnet((3, 8, 36, 3), 4, CLASSES)
            network.layer0[0] = nn.Conv2d(3, 64, 7, bias=False)
        else:
            norm = "before" if "preact" in name else "after"
            network = theirs.vgg(depths[name.partition("vgg")[2][:2]], norm, CLASSES)
    state = network.state_dict()
    ours = author_format(name, state).translated(state, model, Path("a.pth.tar"))
    expected = {key: tensor.shape for key, tensor in model.state_dict().items()}
    assert {key: tensor.shape for key, tensor in ours.items()} == expected


# Contracts and errors.


@pytest.mark.parametrize(
    ("name", "network", "stored", "sentence"),
    [
        (
            "resnet18_32",
            lambda: theirs.resnet((2, 2, 2, 2), 1, CLASSES),
            "resnet_dnn_smoothing_18",
            r"spatial smoothing enlarges .* by a pixel, .* Its logits would differ\.",
        ),
        (
            "swin_tiny_patch1_window4_32",
            lambda: nn.ModuleDict({"layer1": nn.Sequential(Merge())}),
            "swin_t",
            r"merges patches by convolutions with biases .* Its logits would differ\.",
        ),
        (
            "conv_vit_tiny_patch2_32",
            lambda: nn.ModuleDict(
                {
                    "embedding": nn.Sequential(nn.Conv2d(3, 4, 2)),
                    "transformers": nn.ModuleList(
                        [nn.ModuleDict({"attn": theirs.MapAttention(4, 4, 1)})]
                    ),
                }
            ),
            "convit_ti",
            r"takes zeros for tokens outside of the image.* Its logits would differ\.",
        ),
        (
            "vgg13_bn_32",
            lambda: SmallVgg(),
            "vgg_11",
            r"it has 19 layers with weights, the model 23",
        ),
        (
            "mixer_tiny_patch2_32",
            lambda: Unshaped(),
            "mixer_ti",
            r"a tensor is missing or has another number of axes",
        ),
    ],
)
def test_a_network_that_the_zoo_does_not_have_is_refused(
    tmp_path, name, network, stored, sentence
):
    path = written(network(), tmp_path / "a.pth.tar", stored)
    with pytest.raises(InputError, match=sentence):
        load_model(f"{name}@{path}")


class Merge(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_merge = nn.Conv2d(3, 96, 1)


class SmallVgg(nn.Module):
    """The names of VGG-11; every tensor small."""

    def state_dict(self):
        with torch.device("meta"):
            names = theirs.vgg((1, 1, 2, 2, 2), "after", CLASSES).state_dict()
        return {name: torch.zeros(1, 1) for name in names}


class Unshaped(nn.Module):
    """The names of a Mixer; the kernel of its patches has one axis."""

    def state_dict(self):
        state = theirs.Mixer(CLASSES).state_dict()
        return state | {"embedding.0.patch_embedding.1.weight": torch.zeros(3)}
