import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def photo():
    """A random RGB image of a given size."""

    def make(width=12, height=8, seed=0):
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
        return Image.fromarray(pixels)

    return make


@pytest.fixture
def folder(tmp_path, photo):
    """Two classes: five images of cats, three of dogs; and what is not an image."""
    for name, count in (("dogs", 3), ("cats", 5)):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(count):
            photo(seed=10 * count + i).save(tmp_path / "pets" / name / f"{i}.PNG")
    (tmp_path / "pets" / "cats" / "notes.txt").write_text("not an image")
    (tmp_path / "pets" / ".cache").mkdir()
    return tmp_path / "pets"
