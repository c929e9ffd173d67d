"""Laws of results (src/visprism/result.py): tables that know where they come from."""

import csv
from dataclasses import dataclass

import numpy as np
import pytest

from visprism.core.files import atomic_write
from visprism.core.provenance import Provenance
from visprism.results.base import Result


@dataclass(frozen=True)
class Temperatures(Result):
    """One row per town."""

    town: np.ndarray
    celsius: np.ndarray
    warm: np.ndarray
    season: str = "summer"


@dataclass(frozen=True)
class Elsewhere(Result):
    """Another type."""

    count: np.ndarray


@pytest.fixture
def result():
    return Temperatures(
        town=np.array(["Ulm", "Øvre, Årdal"]),
        celsius=np.array([21.5, np.nan]),
        warm=np.array([True, False]),
        provenance=Provenance(model="almanac", image_shape=(3, 8, 8), images=2, seed=7),
    )


# Tables.


def test_columns_have_one_length(result):
    assert len(result) == 2
    assert {len(column) for column in result.columns().values()} == {2}
    assert result.columns()["season"].tolist() == ["summer", "summer"]
    with pytest.raises(ValueError, match="columns of Temperatures differ in length"):
        Temperatures(np.array(["Ulm"]), np.zeros(2), np.zeros(2))


def test_rows_are_selected_by_mask_or_index(result):
    assert result.select(result.warm).town.tolist() == ["Ulm"]
    assert result.select(np.array([1])).town.tolist() == ["Øvre, Årdal"]
    assert result.select(result.warm).season == "summer"
    assert result.select(result.warm).provenance == result.provenance


def test_facts_are_added_to_the_provenance(result):
    named = result.with_provenance(data="towns", images=3)
    assert (named.provenance.model, named.provenance.data) == ("almanac", "towns")
    assert named.provenance.images == 3
    assert result.provenance.data == ""


def test_the_provenance_is_one_line(result):
    line = result.provenance.sentence()
    assert line.startswith("almanac · 2 images of unnamed data · 3x8x8 · protocol: default")
    assert "fp32 on cpu" in line
    assert f"torch {result.provenance.torch}" in line


# Written and read.


@pytest.mark.parametrize("reader", [Temperatures, Result])
def test_survives_being_written_and_read(result, tmp_path, reader):
    result.save(tmp_path / "towns.npz")
    read = reader.load(tmp_path / "towns.npz")
    assert type(read) is Temperatures
    assert read.provenance == result.provenance
    assert read.season == "summer"
    for name in ("town", "celsius", "warm"):
        np.testing.assert_array_equal(getattr(read, name), getattr(result, name))
        assert getattr(read, name).dtype == getattr(result, name).dtype


def test_is_written_to_the_very_path_that_was_named(tmp_path, result):
    result.save(tmp_path / "towns")
    assert [file.name for file in tmp_path.iterdir()] == ["towns"]
    assert len(Result.load(tmp_path / "towns")) == 2


def test_one_row_stays_a_table(result, tmp_path):
    result.select(result.warm).save(tmp_path / "towns.npz")
    assert Result.load(tmp_path / "towns.npz").town.tolist() == ["Ulm"]


def test_a_result_of_another_type_is_refused(result, tmp_path):
    result.save(tmp_path / "towns.npz")
    with pytest.raises(ValueError, match=r"towns\.npz holds a Temperatures, not a Elsewhere"):
        Elsewhere.load(tmp_path / "towns.npz")


def test_csv_has_a_header_and_a_line_per_row(result, tmp_path):
    result.save_csv(tmp_path / "towns.csv")
    with (tmp_path / "towns.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["town", "celsius", "warm", "season"]
    assert rows == [
        ["Ulm", "21.5", "True", "summer"],
        ["Øvre, Årdal", "nan", "False", "summer"],
    ]


def test_the_same_result_gives_the_same_bytes(result, tmp_path):
    for name in ("a.npz", "b.npz"):
        result.save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")

    def interrupted():
        with atomic_write(path) as scratch:
            scratch.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    with atomic_write(path) as scratch:
        scratch.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_written_has_the_mode_of_any_new_file(tmp_path):
    """Some writers, as that of safetensors, make files that only their owner may read."""
    plain = tmp_path / "plain"
    plain.touch()
    with atomic_write(tmp_path / "file") as scratch:
        scratch.unlink()
        scratch.touch(mode=0o600)
    assert (tmp_path / "file").stat().st_mode == plain.stat().st_mode
