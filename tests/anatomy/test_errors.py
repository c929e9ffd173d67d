"""What cannot be dissected is refused with one clear sentence."""

import warnings

import pytest
import timm
import torch
from torch import nn

from visprism import InputError, dissect, forward, watch


class Gives(nn.Module):
    """Returns what it is told to, whatever comes in."""

    def __init__(self, output):
        super().__init__()
        self.output = output
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        self.fc(x.mean((2, 3)))
        return self.output


def test_a_model_in_training_mode_is_refused(images):
    with pytest.raises(InputError, match=r"must be in evaluation mode"):
        dissect(nn.Conv2d(3, 4, 3).train(), images)


@pytest.mark.parametrize("output", [None, {"loss": 1.0}, (1, 2)])
def test_an_output_without_a_tensor_is_refused(images, output):
    wanted = (
        rf"the output of Gives must be logits, .* got {type(output).__name__} without a tensor"
    )
    with pytest.raises(InputError, match=wanted):
        dissect(Gives(output).eval(), images)
    with pytest.raises(InputError, match=wanted):
        forward(Gives(output), images)


def test_a_new_tensor_of_the_shape_of_the_images_does_not_depend_on_them(images):
    class Created(nn.Module):
        def forward(self, x):
            return (torch.zeros_like(x) + x.new_ones(x.shape)).mean((2, 3))

    with pytest.raises(InputError, match="the output of Created does not depend on the images"):
        dissect(Created().eval(), images)


def test_a_scripted_model_is_refused(images):
    with warnings.catch_warnings(action="ignore"):  # of some versions: scripting is old
        model = torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()).eval())
    with pytest.raises(InputError, match=r"the model must be an nn\.Module, got a scripted"):
        dissect(model, images)
    mixed = nn.Sequential(nn.Conv2d(3, 3, 1), model).eval()
    with pytest.raises(InputError, match=r"1 must be an nn\.Module, got a scripted"):
        dissect(mixed, images)


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ({}, "nothing"),
        (torch.zeros(3, 8, 8), r"float32 of shape \(3, 8, 8\)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), r"uint8 of shape \(2, 3, 8, 8\)"),
        (torch.zeros(0, 3, 8, 8), r"float32 of shape \(0, 3, 8, 8\)"),
    ],
    ids=["nothing", "one image", "bytes", "empty"],
)
def test_what_is_not_images_is_refused(given, got):
    wanted = r"images must be floating-point tensors of shape \(B, C, H, W\), or .*, got "
    with pytest.raises(InputError, match=f"{wanted}{got}$"):
        dissect(nn.Conv2d(3, 4, 3).eval(), given)


def test_a_model_that_does_nothing_has_no_blocks(images):
    with pytest.raises(InputError, match="the model must have blocks, and Identity returns"):
        dissect(nn.Identity().eval(), images)


def test_a_mapping_goes_by_keyword_where_the_model_names_its_arguments():
    class Named(nn.Module):
        def forward(self, pixel_values, scale=1.0):
            return scale * pixel_values

    class Wrapper(nn.Module):
        def forward(self, *args, **kwargs):
            return Named()(*args, **kwargs)

    x, scale = torch.ones(2, 3), torch.tensor(2.0)
    for model in (Named(), Wrapper(), nn.DataParallel(Named())):
        assert torch.equal(forward(model, {"pixel_values": x, "scale": scale}), 2 * x)


def test_tokens_of_images_of_another_size_are_refused():
    model = timm.create_model("vit_tiny_patch16_224", depth=1, dynamic_img_size=True).eval()
    anatomy = dissect(model, torch.randn(2, 3, 32, 64))
    expected = (
        "images must be 32x64, as the model was dissected with, got 64x32. Resize the images"
    )
    with watch(anatomy), pytest.raises(InputError, match=expected):
        model(torch.randn(2, 3, 64, 32))
    assert model(torch.randn(2, 3, 64, 32)).shape == (2, 1000)  # outside it may
