"""What dissection does not depend on: the images, their number and shape, the weights."""

import pytest
import torch

from visprism import dissect, forward


def parts(anatomy):
    return [(b.name, b.kind, b.layout.grid if b.layout else None) for b in anatomy]


@pytest.mark.parametrize(("name", "wrap"), [("takes dict", True), ("gives tuple", False)])
def test_how_images_come_in_and_logits_go_out_does_not_matter(built, images, name, wrap):
    inputs = {"image": images} if wrap else images
    plain, other = built("functional"), built(name)
    assert parts(dissect(other, inputs)) == parts(dissect(plain, images))
    torch.testing.assert_close(forward(other, inputs), plain(images), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["only parameters", "in place", "tokens"])
def test_neither_the_number_of_images_nor_their_pixels_matter(built, images, name):
    model = built(name)
    wanted = list(dissect(model, images))
    for other in (images[:1], torch.zeros_like(images), torch.full_like(images, torch.nan)):
        assert list(dissect(model, other)) == wanted


def test_the_shape_of_the_images_only_changes_the_grids(built):
    square = dissect(built("tokens"), torch.zeros(2, 3, 16, 16))
    oblong = dissect(built("tokens"), torch.zeros(2, 3, 32, 12))
    assert [b.layout.grid for b in oblong[:-1]] == [(8, 3)] * (len(oblong) - 1)
    assert [b.name for b in oblong] == [b.name for b in square]
    assert [b.kind for b in oblong] == [b.kind for b in square]
