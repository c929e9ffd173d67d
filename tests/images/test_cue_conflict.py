"""Cue-conflict folders (src/visprism/images/cue_conflict.py)."""

import pytest
from PIL import Image

from visprism import InputError, load_data


@pytest.fixture
def write(tmp_path):
    def write(*names):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            Image.new("RGB", (8, 8), (len(name), 0, 0)).save(path)
        return f"cue_conflict:{tmp_path}"

    return write


def test_shape_and_texture_stand_in_the_name(write):
    images = load_data(write("cat/cat1-car2.png", "cat/cat2-cat1.png", "knife10-bear3.png"))
    assert images.class_names == ("bear", "car", "cat", "knife")
    assert images.targets.tolist() == [2, 2, 3]
    assert images.textures.tolist() == [1, 2, 0]
    picture, target = images[0]
    assert target == 2
    assert picture.getpixel((0, 0)) == (17, 0, 0)


def test_what_a_user_can_get_wrong(write, tmp_path):
    with pytest.raises(InputError, match="must be an existing folder"):
        load_data(f"cue_conflict:{tmp_path}/none")
    with pytest.raises(InputError, match="must hold images such as cat/cat1-car2"):
        load_data(f"cue_conflict:{tmp_path}")
    spec = write("cat/cat1-car2.png", "cat/photo.png")
    with pytest.raises(InputError, match=r"got photo.png and 0 more of 2"):
        load_data(spec)
    with pytest.raises(InputError, match=r"split must be None for .*, got 'val'"):
        load_data(spec, split="val")
    (tmp_path / "cat" / "photo.png").unlink()
    (tmp_path / "cat" / "cat9-dog1.png").write_bytes(b"no image")
    with pytest.raises(InputError, match=r"cat9-dog1.png \(.*Repair them, or set skip_bad"):
        load_data(spec)
