"""Laws of Parquet files as Hugging Face lays them out, and of data sets of its hub.

The library `datasets` reads the hub; here a stand-in takes its place that has as much of its
interface as we use, so that nothing is fetched.
"""

import json
import sys
import threading
import time
from dataclasses import dataclass
from io import BytesIO
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import parquet

from visprism import InputError, load_data
from visprism.images.images import ordered

LABELS, PETS = (0, 1, 1, 0, 1), ("cat", "dog")


@pytest.fixture
def encoded(photo):
    def encode(seed):
        buffer = BytesIO()
        photo(seed=seed).save(buffer, "PNG")
        return buffer.getvalue()

    return encode


@pytest.fixture
def write(tmp_path, encoded):
    """Write a file of images of the given labels; returns its path."""

    def write(
        name="pets.parquet", labels=LABELS, *, names=PETS, notes=None, cells=None, **more
    ):
        cells = cells or [{"bytes": encoded(i), "path": None} for i in range(len(labels))]
        table = pa.table({"img": cells, "label": pa.array(labels), **more})
        if names:
            features = {
                "img": {"_type": "Image"},
                "label": {"_type": "ClassLabel", "names": list(names)},
            }
            notes = notes or json.dumps({"info": {"features": features}})
            table = table.replace_schema_metadata({"huggingface": notes})
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, path, row_group_size=2)
        return path

    return write


def seeds(images, photo):
    """Which random photographs these are."""
    seed_of = {photo(seed=seed).tobytes(): seed for seed in range(20)}
    return [seed_of[image.tobytes()] for image, _ in images]


def test_images_classes_and_names_come_out_as_they_went_in(write, photo):
    images = load_data(f"parquet:{write()}")
    assert images.class_names == ("cat", "dog")
    assert [target for _, target in images] == [0, 1, 1, 0, 1]
    assert seeds(images, photo) == [0, 1, 2, 3, 4]


def test_rows_come_in_any_order_across_row_groups_and_files(write, photo, encoded, tmp_path):
    for part in range(2):
        cells = [{"bytes": encoded(5 * part + i), "path": None} for i in range(5)]
        write(f"set/data/train-0000{part}-of-00002.parquet", cells=cells)
    images = load_data(f"parquet:{tmp_path / 'set'}")
    assert images.split == "train"
    assert load_data(str(tmp_path / "set")).source == images.source
    wanted = [9, 0, 5, 4, 2, 7, 1]
    assert [seeds([(image, 0)], photo)[0] for image in images.read(wanted)] == wanted


@pytest.mark.parametrize("layout", ["{}-00000-of-00001.parquet", "{}.parquet", "{}/0.parquet"])
def test_the_split_stands_in_the_name_of_the_file_or_its_folder(write, tmp_path, layout):
    write("set/" + layout.format("train"))
    write("set/" + layout.format("test"), labels=(0, 1))
    spec = f"parquet:{tmp_path / 'set'}"
    assert (len(load_data(spec)), len(load_data(spec, split="train"))) == (2, 5)
    assert load_data(spec).name == f"{spec} (test)"
    with pytest.raises(ValueError, match="must be one of test, train, got 'val'"):
        load_data(spec, split="val")


def test_the_columns_can_be_chosen(write):
    path = write(names=(), fine=pa.array([7, 8, 9, 7, 8]))
    with pytest.raises(
        ValueError, match=r"\(label, fine\), got ''\. Select one, such as \?label=label"
    ):
        load_data(f"parquet:{path}")
    assert load_data(f"parquet:{path}?label=fine").targets.tolist() == [7, 8, 9, 7, 8]


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ((0, None, 1, 0, -1), r"got a missing label \(null or -1\) and 1 more"),
        ((0, 1, 5, 0, 1), r"must be in 0 \.\.\. 1, got 5 and 0 more"),
    ],
)
def test_labels_that_are_no_class_are_counted(write, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_data(f"parquet:{write(labels=labels)}")


@pytest.mark.parametrize("names", [PETS, ()])
def test_a_split_without_any_label_is_data_without_labels(write, names):
    images = ordered(load_data(f"parquet:{write(labels=(-1, None), names=names)}"))
    assert (len(images), images.targets, images.class_names) == (2, None, names)


def test_two_threads_never_read_a_file_at_once(write, monkeypatch):
    # pyarrow's reader crashes the process then, as when two models go through one image set.
    at_once = []
    inside = threading.Semaphore(1)
    read = parquet.ParquetFile.read_row_group

    def watched(file, group, **options):
        at_once.append(not inside.acquire(blocking=False))
        time.sleep(0.002)
        inside.release()
        return read(file, group, **options)

    monkeypatch.setattr("visprism.images.tables._MOST_BYTES", 0)  # groups are read repeatedly
    images = load_data(f"parquet:{write(labels=(0, 1) * 10)}")
    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", watched)
    threads = [threading.Thread(target=images.read, args=[range(20)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(at_once) >= 10
    assert not any(at_once)


NOTHING = [
    "{", "[" * 100_000, '{"info": 3}', '{"info": {"features": {"img": 3}}}',
]  # fmt: skip


@pytest.mark.parametrize("notes", NOTHING)
def test_notes_that_say_nothing_are_passed_over(write, notes):
    assert len(load_data(f"parquet:{write(notes=notes)}")) == 5


def test_a_file_damaged_anywhere_ends_in_a_sentence(write, tmp_path):
    content = write(labels=(0, 1)).read_bytes()
    path = tmp_path / "b.parquet"
    ends = []
    for at in range(4, len(content), 37):
        path.write_bytes(content[:at] + b"\xff" * 3 + content[at + 3 :])
        try:
            ends.append(len(load_data(f"parquet:{path}")))
        except InputError as error:
            ends.append(str(error))
    assert set(map(type, ends)) == {int, str}  # some damage is seen, some is in padding


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
def hub(encoded, monkeypatch):
    """A hub that holds ``pets``, with three images to test on."""
    cells = [{"bytes": encoded(seed), "path": None} for seed in range(3)]
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
def test_a_data_set_of_the_hub_is_read_in_its_order(photo):
    images = load_data("hf:pets")
    assert images.class_names == ("cat", "dog")
    assert images.name == "hf:pets (test)"
    assert [target for _, target in images] == [1, 0, 1]
    assert seeds(images, photo) == [0, 1, 2]


@pytest.mark.usefixtures("hub")
def test_what_cannot_be_read_is_explained(write, tmp_path, monkeypatch):
    path = write()
    (tmp_path / "empty").mkdir()
    (tmp_path / "other.parquet").write_text("not one at all")
    parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "text.parquet")
    columns = {"img": pa.array([], pa.binary()), "label": pa.array([], pa.int64())}
    parquet.write_table(pa.table(columns), tmp_path / "none.parquet")
    cases = {
        f"parquet:{path}?label=breed": r"class columns of .* \(label\), got 'breed'",
        f"parquet:{tmp_path}/text.parquet": r"image columns of .* \(none\)",
        f"parquet:{tmp_path}/none.parquet": "must have at least one image",
        f"parquet:{tmp_path}/other.parquet": "is not a Parquet file",
        f"parquet:{tmp_path}/empty": r"must hold a \.parquet file",
        "parquet:nowhere.parquet": "an existing file or folder, got nowhere.parquet",
        "hf:cars": "hf:cars cannot be loaded: no data set cars",
        "hf:pets?label=breed": r"class columns of hf:pets \(animal\), got 'breed'",
    }
    for spec, message in cases.items():
        with pytest.raises(InputError, match=message):
            load_data(spec)
    for package, spec in (("pyarrow", f"parquet:{path}"), ("datasets", "hf:pets")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(InputError, match=rf"needs the package {package}\. .* 'visprism\["):
            load_data(spec)
