"""Curvature of models as their libraries make them, with no further argument.

The evidence is the gradient of a gradient by torch.autograd, in double precision, of the model
as it is: nothing folded, nothing kept.
"""

import numpy as np
import pytest
import timm
import torch
from internals import Products, stream
from small_models import hugging_face_config
from torch.nn import functional
from torchvision.models import VisionTransformer
from transformers import ViTForImageClassification

from visprism import Objective


def of_timm(name, **arguments):
    return lambda: timm.create_model(name, num_classes=5, **arguments)


MODELS = {
    "Swin": of_timm("swin_tiny_patch4_window7_224", img_size=56, embed_dim=12, depths=(2, 1)),
    "torchvision's ViT": lambda: VisionTransformer(32, 8, 2, 2, 24, 48, num_classes=5),
    "Hugging Face's ViT": lambda: ViTForImageClassification(hugging_face_config()),
}


@pytest.fixture(params=MODELS)
def model(request):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MODELS[request.param]().double().eval()


@pytest.fixture
def batch(model):
    size = 56 if "Swin" in type(model).__name__ else 32
    images = torch.randn(4, 3, size, size, generator=stream(0, "images")).double()
    return images, torch.tensor([0, 1, 3, 2])


def test_a_product_is_that_of_autograd_on_the_model_as_it_is(model, batch):
    images, targets = batch
    parameters = dict(model.named_parameters())
    objective = Objective(model, [batch])
    V = torch.randn(2, len(objective), generator=stream(0, "v")).double()
    products = Products(objective)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        output = model(images)
        loss = functional.cross_entropy(getattr(output, "logits", output), targets)
        gradient = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    for v, product, again in zip(V, products(V), products(V), strict=True):
        parts = list(objective.unflatten(v).values())
        exact = torch.autograd.grad(
            gradient, list(parameters.values()), parts, retain_graph=True
        )
        flat = torch.cat([part.flatten() for part in exact])
        np.testing.assert_allclose(product, flat, atol=1e-9 * float(flat.abs().max()))
        assert torch.equal(product, again)
