"""Laws of data sets of the Hugging Face hub (src/visprism/images/hub.py).

The library `datasets` reads them; here a stand-in takes its place that has as much of its
interface as we use, so that nothing is fetched.
"""

import sys
from dataclasses import dataclass
from io import BytesIO
from types import SimpleNamespace

import pytest

from visprism import load_data


@dataclass
class Picture:
    decode: bool = True


@dataclass
class Label:
    names: tuple[str, ...]


class Table:
    """Columns of equal length, as a ``datasets.Dataset``."""

    def __init__(self, columns, features):
        self.columns, self.features = columns, features

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.columns[key]
        assert not self.features["photo"].decode, "a row would be decoded by the library"
        return {name: column[key] for name, column in self.columns.items()}

    def select_columns(self, names):
        return Table({n: self.columns[n] for n in names}, {n: self.features[n] for n in names})

    def cast_column(self, name, feature):
        return Table(self.columns, self.features | {name: feature})


@pytest.fixture
def hub(photo, monkeypatch):
    """A hub that holds ``pets``, with three images to test on."""
    cells = []
    for seed in range(3):
        buffer = BytesIO()
        photo(seed=seed).save(buffer, "PNG")
        cells.append({"bytes": buffer.getvalue(), "path": None})
    features = {"photo": Picture(), "animal": Label(("cat", "dog"))}
    table = Table({"photo": cells, "animal": [1, 0, 1]}, features)

    def split_names(path, _config):
        if path != "pets":
            raise FileNotFoundError(f"no data set {path} on the hub")
        return ["train", "test"]

    def load(path, _config, *, split):
        assert (path, split) == ("pets", "test")
        return table

    library = SimpleNamespace(
        Image=Picture, ClassLabel=Label, get_dataset_split_names=split_names, load_dataset=load
    )
    monkeypatch.setitem(sys.modules, "datasets", library)
    return table


@pytest.mark.usefixtures("hub")
def test_images_classes_and_names_come_out_as_they_went_in(photo):
    images = load_data("hf:pets")
    assert images.class_names == ("cat", "dog")
    assert images.name == "hf:pets (test)"
    assert [target for _, target in images] == [1, 0, 1]
    assert [image.tobytes() for image, _ in images] == [
        photo(seed=seed).tobytes() for seed in range(3)
    ]


def test_an_unreadable_row_is_named(hub):
    hub.columns["photo"][1] = {"bytes": b"no image", "path": None}
    with pytest.raises(ValueError, match=r"1 of 3 images of hf:pets \(test\) .*: row 1 \("):
        load_data("hf:pets")


# Contracts and errors.


@pytest.mark.usefixtures("hub")
def test_an_unknown_set_split_or_column():
    with pytest.raises(ValueError, match="hf:cars cannot be loaded: no data set cars"):
        load_data("hf:cars")
    with pytest.raises(
        ValueError, match="split of hf:pets must be one of train, test, got 'val'"
    ):
        load_data("hf:pets", split="val")
    with pytest.raises(ValueError, match=r"class column of hf:pets \(animal\), got 'breed'"):
        load_data("hf:pets?label=breed")


def test_without_the_library_the_user_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"needs the package datasets\. .* 'visprism\[hf\]'"):
        load_data("hf:pets")
