"""Laws of results (src/visprism/table/result.py): tables that know where they come from."""

import csv
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from visprism import InputError, Provenance, Result, column, estimate, result_type, scalar
from visprism.analyses.features.receptive_field import ReceptiveMaps
from visprism.core.files import atomic_write
from visprism.estimates.estimated import Estimated, Number, mean
from visprism.table.result import result_types


@result_type("test-temperatures")
class Temperatures(Result):
    """One row per town."""

    town: np.ndarray = column("Town", "", "name of the town")
    celsius: np.ndarray = column("Temperature", "°C", "at noon")
    warm: np.ndarray = column("Warm", "", "whether it is above 20 °C")
    season: str = scalar("Season", "", "of the measurement", default="summer")


@result_type("test-elsewhere")
class Elsewhere(Result):
    """Another type."""

    count: np.ndarray = column("Count")


@result_type("test-rainfall")
class Rainfall(Result):
    """One row per town, and the mean of all."""

    rain: Estimated = estimate("Rain", "mm", "in a day", keep=True)
    total: Number = estimate("Rain of all towns", "mm", "in a day")


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
    with pytest.raises(ValueError, match="columns of Temperatures must have one length"):
        Temperatures(town=np.array(["Ulm"]), celsius=np.zeros(2), warm=np.zeros(2))


def test_columns_have_one_axis():
    with pytest.raises(ValueError, match=r"must have one axis, got count of shape \(2, 2\)"):
        Elsewhere(count=np.zeros((2, 2)))


def test_columns_declare_label_unit_and_meaning():
    info = Temperatures.infos()["celsius"]
    assert (info.label, info.unit, info.meaning) == ("Temperature", "°C", "at noon")
    assert info.heading == "Temperature (°C)"
    assert list(Temperatures.infos()) == ["town", "celsius", "warm", "season"]


# Compared and shown.


def test_equal_tables_are_equal_wherever_they_come_from(result):
    again = result.with_provenance(model="another")
    assert result == again
    assert hash(result) == hash(again)
    assert result != replace(result, celsius=np.array([21.5, 0.0]))
    assert result != replace(result, season="winter")
    assert result != Elsewhere(count=np.zeros(2))
    assert len({result, again}) == 1


def test_the_repr_is_one_line(result):
    assert repr(result) == "<Temperatures of almanac: 2 rows>"


def test_the_notebook_form_is_bounded_and_escaped(result):
    many = Elsewhere(count=np.arange(100)).with_provenance(model="<script>alert(1)</script>")
    html = many._repr_html_()
    assert html.count("<tr>") == 13
    assert "88 more rows in <code>to_pandas()</code>" in html
    assert "<script>" not in html
    assert "Temperature (°C)" in result._repr_html_()


def test_a_data_frame_has_units_and_provenance(result):
    frame = result.to_pandas()
    assert list(frame.columns) == ["town", "celsius", "warm", "season"]
    assert frame["celsius"][0] == 21.5
    assert frame.attrs["units"]["celsius"] == "°C"
    assert frame.attrs["provenance"]["model"] == "almanac"


def test_without_pandas_there_is_one_sentence(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="to_pandas needs pandas, which is not installed"):
        result.to_pandas()


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


def test_estimates_survive_with_their_intervals_and_values_by_unit(tmp_path):
    days = np.random.default_rng(0).gamma(2.0, size=(30, 3))
    made = Rainfall(rain=mean(days), total=mean(days.sum(1)))
    made.save(tmp_path / "rain.npz")
    read = Result.load(tmp_path / "rain.npz")
    assert read == made
    np.testing.assert_array_equal(read.rain.by_unit, days)
    assert read.total.by_unit is None  # no question is answered by it
    assert (read.total.low, read.total.high) == (made.total.low, made.total.high)
    assert read != replace(made, rain=Estimated(made.rain, made.rain.low))
    columns = read.columns()
    assert list(columns) == [
        f"{n}{e}" for n in ("rain", "total") for e in ("", "_low", "_high")
    ]
    np.testing.assert_array_equal(columns["rain_high"], made.rain.high)
    chosen = read.select(np.array([2]))
    np.testing.assert_array_equal(chosen.rain.by_unit, days[:, [2]])
    assert chosen.rain.low == made.rain.low[[2]]


def test_is_written_to_the_very_path_that_was_named(tmp_path, result):
    result.save(tmp_path / "towns")
    assert [file.name for file in tmp_path.iterdir()] == ["towns"]
    assert len(Result.load(tmp_path / "towns")) == 2


def test_one_row_stays_a_table(result, tmp_path):
    result.select(result.warm).save(tmp_path / "towns.npz")
    assert Result.load(tmp_path / "towns.npz").town.tolist() == ["Ulm"]


def test_a_result_of_another_type_is_refused(result, tmp_path):
    result.save(tmp_path / "towns.npz")
    refused = r"towns\.npz must hold a Elsewhere, got a test-temperatures"
    with pytest.raises(ValueError, match=refused):
        Elsewhere.load(tmp_path / "towns.npz")


def rewritten(path, **changes):
    """The file with some entries changed, or removed where the value is None."""
    with np.load(path) as stored:
        values = {name: stored[name] for name in stored.files} | changes
    np.savez(path, **{k: v for k, v in values.items() if v is not None})


@pytest.mark.parametrize("reader", [Temperatures, Result])
def test_a_file_that_does_not_exist_or_is_a_folder_is_refused_in_a_sentence(tmp_path, reader):
    refused = r"path must be a file .*, got .*nope\.npz, which does not exist"
    with pytest.raises(InputError, match=refused):
        reader.load(tmp_path / "nope.npz")
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\)"):
        reader.load(tmp_path)


def test_a_file_that_lacks_a_column_is_refused(result, tmp_path):
    path = tmp_path / "towns.npz"
    result.save(path)
    rewritten(path, warm=None)
    with pytest.raises(InputError, match="lacks columns of a test-temperatures: warm"):
        Result.load(path)


def test_every_built_in_type_loads_in_a_fresh_process(tmp_path):
    """A process that has imported nothing else reads any type."""
    path = tmp_path / "values.npz"
    zeros = np.zeros(3)
    ReceptiveMaps(
        block=np.array(["stem"] * 3),
        **dict.fromkeys(["depth", "row", "column", "share", "relative"], zeros),
    ).save(path)
    code = f"from visprism.table.result import Result\nprint(Result.load({str(path)!r}))"
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert out.stdout == "<ReceptiveMaps: 3 rows>\n"


def test_no_two_types_share_an_identifier():
    with pytest.raises(InputError, match="identifier must be new, got 'test-elsewhere'"):
        result_type("test-elsewhere")(Elsewhere)
    assert all(kind.identifier == name for name, kind in result_types().items())


def test_cells_that_a_spreadsheet_would_evaluate_are_text(tmp_path):
    names = np.array(["=1+1", "@x", "+a", "-b", "plain"])
    Temperatures(town=names, celsius=-np.ones(5), warm=np.zeros(5)).save_csv(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert [row[0] for row in rows] == ["'=1+1", "'@x", "'+a", "'-b", "plain"]
    assert rows[0][1] == "-1.0"


def test_csv_has_a_header_and_a_line_per_row(result, tmp_path):
    result.save_csv(tmp_path / "towns.csv")
    with (tmp_path / "towns.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["town", "celsius (°C)", "warm", "season"]
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
