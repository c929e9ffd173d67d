"""Laws of the shapes data set."""

import numpy as np
import pytest
import torch

from visprism import Preprocessing, in_memory, load_data
from visprism.images.shapes import SILHOUETTES, TEXTURES


def pixels(images, positions):
    return np.stack([np.asarray(image) for image in images.read(positions)])


def test_an_image_depends_on_its_position_alone():
    images = load_data("shapes", split="train")
    positions = [40_017, 3, 512, 1]
    together = pixels(images, positions)
    alone = [np.asarray(images[i][0]) for i in positions]
    limited = images.subset(np.array(positions[::-1]))
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(together[::-1], pixels(limited, range(4)))


def test_splits_and_seeds_share_no_image():
    sets = [
        load_data("shapes", split="train"),
        load_data("shapes", split="test"),
        load_data("shapes?seed=1", split="test"),
    ]
    seen = {image.tobytes() for images in sets for image in images.read(range(300))}
    assert len(seen) == 900


def test_shape_and_texture_are_balanced_and_independent():
    shape = load_data("shapes")
    texture = load_data("shapes?target=texture")
    assert shape.class_names == tuple(SILHOUETTES)
    assert texture.class_names == tuple(TEXTURES)
    pairs = np.unique(shape.targets * 10 + texture.targets, return_counts=True)
    assert pairs[0].tolist() == list(range(100))
    assert set(pairs[1]) == {100}
    np.testing.assert_array_equal(pixels(shape, [5, 77]), pixels(texture, [5, 77]))


@pytest.mark.parametrize("name", SILHOUETTES)
def test_every_silhouette_covers_the_same_area(name):
    at = np.linspace(-1.2, 1.2, 600)
    inside = SILHOUETTES[name](*np.meshgrid(at, at)) < 0
    assert inside.mean() * 2.4**2 == pytest.approx(1, rel=0.02)
    assert not inside[[0, -1]].any()
    assert not inside[:, [0, -1]].any()


def test_no_silhouette_can_be_turned_into_another():
    at = np.linspace(-1.1, 1.1, 150)
    x, y = np.meshgrid(at, at)
    turns = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    masks = {
        name: [
            outline(np.cos(t) * x + np.sin(t) * y, np.cos(t) * y - np.sin(t) * x) < 0
            for t in turns
        ]
        for name, outline in SILHOUETTES.items()
    }
    for one, (still, *_) in masks.items():
        for other, turned in masks.items():
            if one < other:
                overlap = max((still & m).sum() / (still | m).sum() for m in turned)
                assert overlap < 0.9, f"{one} and {other}"


def test_a_linear_classifier_cannot_tell_the_shapes():
    # At 16x16 it has few weights for the images it sees, and does better than at 32x32.
    images = load_data("shapes?size=16", split="train", limit=4000)
    preprocessing = Preprocessing((16, 16))
    train, targets = in_memory(images, preprocessing)
    test, truth = in_memory(load_data("shapes?size=16", limit=1000), preprocessing)
    x, y = (part.flatten(1).float() / 255 - 0.5 for part in (train, test))
    # Ridge regression on one-hot targets, at the best of several strengths.
    gram, cross = x.T @ x, x.T @ torch.eye(10)[targets]
    accuracies = []
    for strength in (1e1, 1e2, 1e3):
        weights = torch.linalg.solve(gram + strength * torch.eye(len(gram)), cross)
        accuracies.append(((y @ weights).argmax(1) == truth).float().mean().item())
    assert 0.08 < max(accuracies) < 0.4
