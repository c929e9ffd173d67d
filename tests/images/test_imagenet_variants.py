"""Laws of ImageNet-R, -A and -Sketch (src/visprism/images/imagenet.py)."""

import pytest

from visprism import InputError, load_data


@pytest.fixture
def renditions(tmp_path, photo):
    for number, identifier in enumerate(("n01443537", "n01484850", "n07873807")):
        (tmp_path / identifier).mkdir()
        for i in range(2):
            photo(40, 40, seed=10 * number + i).save(tmp_path / identifier / f"{i}.png")
    return tmp_path


@pytest.mark.parametrize("name", ["imagenet_r", "imagenet_a", "imagenet_sketch"])
def test_classes_have_their_index_in_imagenet(renditions, name):
    images = load_data(f"{name}:{renditions}")
    assert images.class_subset == (1, 2, 963)  # goldfish, white shark, pizza
    assert images.targets.tolist() == [1, 1, 2, 2, 963, 963]
    assert images.num_classes == 1000
    assert "goldfish" in images.class_names[1]
    assert load_data(f"{name}:{renditions}", limit=3).class_subset == (1, 2, 963)


def test_other_folders_are_refused(tmp_path, photo):
    (tmp_path / "fish").mkdir()
    photo(40, 40, seed=0).save(tmp_path / "fish" / "a.png")
    with pytest.raises(InputError, match=r"WordNet identifiers of ImageNet-1k.*got fish"):
        load_data(f"imagenet_r:{tmp_path}")
