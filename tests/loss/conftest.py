"""Small networks in double precision, whose Hessians fit into memory."""

import pytest
import torch
from landscape_cases import Small, random_images, trained
from torch import nn
from torch.nn import functional

from visprism.core.run import stream


class Attention(nn.Module):
    """A patch embedding, one fused attention with a GELU behind it, a class for each image."""

    def __init__(self, classes):
        super().__init__()
        self.embed = nn.Conv2d(2, 6, 3, 3)
        self.norm = nn.LayerNorm(6)
        self.qkv = nn.Linear(6, 18)
        self.out = nn.Linear(6, 6)
        self.head = nn.Linear(6, classes)

    def forward(self, images):
        x = self.embed(images).flatten(2).mT
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 3)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.head(functional.gelu(x + self.out(y)).mean(1))


def convolutions(classes):
    """With BatchNorms that fold, one that does not, and an activation in place."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.Softplus(),
        nn.Conv2d(4, 5, 3, stride=2),
        nn.BatchNorm2d(5, affine=False),
        nn.SiLU(inplace=True),
        nn.AvgPool2d(2),
        nn.BatchNorm2d(5),
        nn.Flatten(),
        nn.Linear(5, classes),
    )


def drawn(model, seed=0):
    """The model in evaluation mode with every tensor drawn at random, in double precision."""
    generator = stream(seed, "weights")
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))
            elif name.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape, generator=generator))
    return model


@pytest.fixture
def convolutional():
    return drawn(convolutions(3))


@pytest.fixture(params=["convolutional", "attention"])
def network(request):
    return drawn({"convolutional": convolutions, "attention": Attention}[request.param](3))


@pytest.fixture
def images():
    return torch.randn(10, 2, 6, 6, generator=stream(0, "images")).double()


@pytest.fixture
def classes():
    return torch.randint(3, (10,), generator=stream(0, "classes"))


@pytest.fixture
def soft():
    """Targets as mixup and label smoothing give them."""
    return torch.rand(10, 3, generator=stream(0, "soft")).double().softmax(1)


@pytest.fixture
def regression():
    """Softmax regression from 72 pixels to 3 classes."""
    return drawn(nn.Sequential(nn.Flatten(), nn.Linear(72, 3)))


@pytest.fixture
def small():
    """A trained convolutional network with BatchNorm."""
    return trained(Small(), random_images(16)[0])


@pytest.fixture
def batches():
    images, targets = random_images(12)
    return list(zip(images.split(5), targets.split(5), strict=True))
