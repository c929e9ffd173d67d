"""Laws of Parquet files as Hugging Face lays them out (src/visprism/images/parquet.py)."""

import json
import sys
import threading
import time
from io import BytesIO

import pyarrow as pa
import pytest
from pyarrow import parquet

from visprism import load_data


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
        name="pets.parquet", labels=(0, 1, 1, 0, 1), *, names=("cat", "dog"), cells=None, **more
    ):
        cells = cells or [{"bytes": encoded(i), "path": None} for i in range(len(labels))]
        table = pa.table({"img": cells, "label": pa.array(labels), **more})
        if names:
            features = {
                "img": {"_type": "Image"},
                "label": {"_type": "ClassLabel", "names": list(names)},
            }
            notes = json.dumps({"info": {"features": features}})
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


# What is read.


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


def test_without_notes_columns_are_known_by_type_and_classes_by_number(write, encoded):
    plain = write(names=(), labels=(0, 2), cells=[encoded(0), encoded(1)])
    images = load_data(f"parquet:{plain}")
    assert images.class_names == ("0", "1", "2")
    assert images.targets.tolist() == [0, 2]


def test_the_columns_can_be_chosen(write):
    path = write(names=(), fine=pa.array([7, 8, 9, 7, 8]))
    with pytest.raises(
        ValueError, match=r"class columns \(label, fine\)\. Select one, such as \?label=label"
    ):
        load_data(f"parquet:{path}")
    assert load_data(f"parquet:{path}?label=fine").targets.tolist() == [7, 8, 9, 7, 8]


def test_reads_real_images(real_images):
    images = load_data(f"parquet:{real_images}/cifar10", limit=50)
    assert images.class_names[:3] == ("airplane", "automobile", "bird")
    assert (images.split, len(images)) == ("test", 50)
    assert images[3][0].size == (32, 32)


# Contracts and errors.


def test_an_unreadable_row_is_named(write, encoded):
    cells = [encoded(0), b"", None, encoded(1)[:-60]]
    path = write(names=(), labels=(0, 0, 0, 0), cells=cells)
    with pytest.raises(ValueError, match=r"3 of 4 images .*row 1 \(.*row 2 \(.*row 3 \("):
        load_data(f"parquet:{path}")
    assert len(load_data(f"parquet:{path}", skip_bad=True)) == 1


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ((0, -1, 1, 0, -1), "must be in 0 .*, got -1 and 1 more"),
        ((0, 1, 5, 0, 1), r"must be in 0 \.\.\. 1, got 5 and 0 more"),
    ],
)
def test_labels_that_are_no_class_are_counted(write, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        load_data(f"parquet:{write(labels=labels)}")


def test_missing_labels_are_counted(write):
    with pytest.raises(ValueError, match=r"must be in 0 .*, got -1 and 0 more"):
        load_data(f"parquet:{write(labels=(0, None, 1))}")


def test_missing_columns(write, tmp_path):
    with pytest.raises(ValueError, match=r"class column of .* \(label\), got 'breed'"):
        load_data(f"parquet:{write()}?label=breed")
    parquet.write_table(pa.table({"text": ["a"]}), tmp_path / "text.parquet")
    with pytest.raises(
        ValueError, match=r"text\.parquet must have a column of type image, got none"
    ):
        load_data(f"parquet:{tmp_path}/text.parquet")


def test_a_missing_file_an_empty_folder_and_a_file_of_another_kind(tmp_path):
    with pytest.raises(
        ValueError, match=r"must be an existing file or folder, got nowhere\.parquet"
    ):
        load_data("parquet:nowhere.parquet")
    with pytest.raises(ValueError, match=r"must hold a \.parquet file"):
        load_data(f"parquet:{tmp_path}")
    (tmp_path / "a.parquet").write_text("not one at all")
    with pytest.raises(ValueError, match=r"a\.parquet is not a Parquet file"):
        load_data(f"parquet:{tmp_path / 'a.parquet'}")


def test_a_table_without_rows(tmp_path):
    columns = {"img": pa.array([], pa.binary()), "label": pa.array([], pa.int64())}
    parquet.write_table(pa.table(columns), tmp_path / "none.parquet")
    with pytest.raises(ValueError, match=r"none\.parquet must have at least one image"):
        load_data(f"parquet:{tmp_path}/none.parquet")


def test_without_pyarrow_the_user_is_told_what_to_install(write, monkeypatch):
    path = write()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        ValueError, match=r"needs the package pyarrow\. .* 'visprism\[parquet\]'"
    ):
        load_data(f"parquet:{path}")


def test_row_groups_are_read_once_in_any_order(write, monkeypatch):
    groups = []
    read = parquet.ParquetFile.read_row_group

    def counted(file, group, **options):
        groups.append(group)
        return read(file, group, **options)

    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", counted)
    images = load_data(f"parquet:{write(labels=(0, 1) * 10)}")
    for order in (range(20), range(19, -1, -1), [0, 19] * 5):
        images.read(order)
    assert sorted(groups) == list(range(10))


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

    monkeypatch.setattr("visprism.images.parquet._MOST_BYTES", 0)  # groups are read repeatedly
    images = load_data(f"parquet:{write(labels=(0, 1) * 10)}")
    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", watched)
    threads = [threading.Thread(target=images.read, args=[range(20)]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(at_once) >= 10
    assert not any(at_once)
