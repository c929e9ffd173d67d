"""Small models that several test files use."""

import torch
from internals import stream
from torch import nn

SMALL = {"img_size": 16, "patch_size": 2, "num_classes": 5}  # of transformers


def small_convnet(seed=0, width=4):
    """A convolution and BatchNorm with random weights that depend on the seed alone."""
    with torch.random.fork_rng():
        torch.random.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Flatten())


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
