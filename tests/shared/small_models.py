"""Small models that several test files use."""

import torch
from torch import nn

from visprism.core.run import stream

SMALL = {"img_size": 16, "patch_size": 2, "num_classes": 5}  # of transformers


def small_convnet(seed=0, width=4):
    """A convolution and BatchNorm with random weights that depend on the seed alone."""
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Flatten())


def assert_same_weights(a, b):
    torch.testing.assert_close(a.state_dict(), b.state_dict(), rtol=0, atol=0)


def hugging_face_config(**changes):
    """Of a ViT of Hugging Face with one block."""
    import transformers

    values = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    values |= {"intermediate_size": 16, "image_size": 32, "patch_size": 8, "num_labels": 4}
    return transformers.ViTConfig(**values | changes)


def noise(*shape):
    """Normally distributed images, the same in each call."""
    return torch.randn(shape, generator=stream(0, "images"))


def seeded(build):
    """A network with weights drawn from a seed, its head too, which timm starts at zero."""
    with torch.random.fork_rng():
        torch.random.manual_seed(0)
        model = build().eval()
        for parameter in model.parameters():
            if not parameter.any():
                torch.nn.init.normal_(parameter, std=0.1)
    return model


class Given(nn.Module):
    """One block, whose features are the means of the channels, and a linear head on them."""

    def __init__(self, width, classes=2):
        super().__init__()
        self.stem = nn.Conv2d(width, width, 1, bias=False)
        self.stem.weight.data = torch.eye(width)[:, :, None, None]
        self.head = nn.Linear(width, classes, bias=False)

    def forward(self, x):
        return self.head(self.stem(x).mean((2, 3)))


class OneBlock(nn.Module):
    """Patches, a convolution that is added to them, and a linear head on the mean."""

    def __init__(self, width=6, patch=4, classes=2):
        super().__init__()
        self.stem = nn.Conv2d(3, width, patch, patch)
        self.block = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        x = x + torch.relu(self.block(x))
        return self.head(x.mean((2, 3)))


class Residual(nn.Module):
    """A residual block of eight channels."""

    def __init__(self, norm=nn.BatchNorm2d):
        super().__init__()
        self.convolve, self.norm = nn.Conv2d(8, 8, 3, padding=1), norm(8)

    def forward(self, x):
        return nn.functional.relu(x + self.norm(self.convolve(x)))


class StemAndHead(nn.Module):
    """Patches of 4x4 pixels and the logits of their mean."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 5, 4, 4), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.stem(x).mean((2, 3)))
