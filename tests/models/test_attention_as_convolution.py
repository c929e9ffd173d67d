"""Laws of attention as convolution (src/visprism/models/attention_as_convolution.py)."""

from math import ceil

import pytest
import torch
from torch import nn

from visprism import InputError, attention_from_convolution
from visprism.core.run import stream
from visprism.models.attention_as_convolution import largest_difference


def noise(*shape):
    return torch.randn(shape, generator=stream(0, "noise"), dtype=torch.float64)


def convolution(kernel, *, into=3, out=4, **options):
    conv = nn.Conv2d(into, out, kernel, **{"padding": "same", **options}).double()
    for name, parameter in conv.named_parameters():
        nn.init.normal_(parameter, generator=stream(0, name))
    return conv


@pytest.mark.parametrize("kernel", [1, 3, 7])
@pytest.mark.parametrize("patch", [1, 2, 4])
def test_is_the_convolution_with_as_many_heads_as_the_theorem_says(kernel, patch):
    conv = convolution(kernel)
    attention = attention_from_convolution(conv, patch_size=patch)
    assert attention.num_heads == (2 * ceil((kernel - 1) / (2 * patch)) + 1) ** 2
    assert largest_difference(conv, attention, noise(2, 3, 12, 8)) < 1e-10


@pytest.mark.parametrize(
    "options",
    [
        {"bias": False, "dilation": (3, 1)},
        {"groups": 2},
        {"padding": (1, 2), "kernel": (3, 5)},
        {"padding_mode": "reflect", "kernel": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("patch", [1, 2])
def test_dilated_grouped_and_oblong_convolutions_are_exact_too(options, patch):
    options = dict(options)
    conv = convolution(options.pop("kernel", 3), into=4, out=8, **options)
    attention = attention_from_convolution(conv, patch_size=patch)
    assert largest_difference(conv, attention, noise(1, 4, 8, 6)) < 1e-10


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kernel": 2}, r"conv must have an odd kernel.*, got a kernel of 2x2"),
        ({"stride": 2, "padding": 1}, r"stride 1 and .*got a stride of 2x2"),
        ({"padding": 0}, r"half the kernel \(1x1\), .*got padding of \(0, 0\) \(zeros\)"),
        ({"padding_mode": "circular"}, r"got padding of same \(circular\)"),
    ],
)
def test_a_convolution_that_is_no_attention_is_refused(options, sentence):
    options = dict(options)
    conv = convolution(options.pop("kernel", 3), **options)
    with pytest.raises(InputError, match=sentence):
        attention_from_convolution(conv)
