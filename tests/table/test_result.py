"""Laws of results (src/visprism/table/result.py): tables that know where they come from."""

import csv
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from results_by_hand.feature_maps import variances

from visprism import Provenance, Result, Texts, column, estimate, result_type, scalar
from visprism.estimates.estimated import Estimated, Number, mean
from visprism.results import ReceptiveMaps


@result_type("test-temperatures")
class Temperatures(Result):
    """One row per town."""

    town: Texts = column("Town", "", "name of the town")
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


def test_columns_have_one_length_and_declare_label_unit_and_meaning(result):
    assert len(result) == 2
    assert result.columns()["season"].tolist() == ["summer", "summer"]
    with pytest.raises(ValueError, match="columns of Temperatures must have one length"):
        Temperatures(town=np.array(["Ulm"]), celsius=np.zeros(2), warm=np.zeros(2))
    info = Temperatures.infos()["celsius"]
    assert (info.label, info.unit, info.meaning) == ("Temperature", "°C", "at noon")
    assert list(result.columns()) == list(Temperatures.infos())


def test_equal_tables_are_equal_wherever_they_come_from(result):
    again = result.with_provenance(model="another")
    assert result == again
    assert hash(result) == hash(again)
    assert result != replace(result, celsius=np.array([21.5, 0.0]))
    assert result != replace(result, season="winter")
    assert result != Elsewhere(count=np.zeros(2))
    assert len({result, again}) == 1


def test_the_notebook_form_is_bounded_and_escaped(result):
    many = Elsewhere(count=np.arange(100)).with_provenance(model="<script>alert(1)</script>")
    html = many._repr_html_()
    assert html.count("<tr>") == 13
    assert "88 more rows in <code>to_pandas()</code>" in html
    assert "<script>" not in html
    assert "Temperature (°C)" in result._repr_html_()
    pixels = replace(result, town=np.array(["0f" * 10_000, "f0"]))  # as those of pictures
    assert len(pixels._repr_html_()) < 1000
    wide = variances()
    assert wide._repr_html_().count("<th>") == len(wide.columns())
    assert set(wide.to_pandas().columns) == set(wide.columns())


def test_rows_are_selected_by_mask_or_index(result):
    assert result.select(result.warm).town.tolist() == ["Ulm"]
    assert result.select(np.array([1])).town.tolist() == ["Øvre, Årdal"]
    assert result.select(result.warm).season == "summer"
    assert result.select(result.warm).provenance == result.provenance


def test_survives_being_written_and_read(result, tmp_path):
    for name in ("a.npz", "b.npz"):
        result.save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    for read in (Temperatures.load(tmp_path / "a.npz"), Result.load(tmp_path / "a.npz")):
        assert read == result
        assert type(read) is Temperatures
        assert read.provenance == result.provenance
        for name in ("town", "celsius", "warm"):
            assert getattr(read, name).dtype == getattr(result, name).dtype
    refused = r"a\.npz must hold a Elsewhere, got a test-temperatures"
    with pytest.raises(ValueError, match=refused):
        Elsewhere.load(tmp_path / "a.npz")


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


@pytest.mark.slow
def test_a_type_that_nothing_has_imported_is_read(tmp_path):
    path = tmp_path / "values.npz"
    zeros = dict.fromkeys(["row", "column", "relative"], np.zeros(3))
    ReceptiveMaps(picture=np.array(["stem"] * 3), **zeros).save(path)
    code = f"from visprism import Result; print(Result.load({str(path)!r}))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout == "<ReceptiveMaps: 3 rows>\n", out.stderr


def test_csv_has_a_header_and_a_line_per_row(result, tmp_path):
    result.save_csv(tmp_path / "towns.csv")
    with (tmp_path / "towns.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["town", "celsius (°C)", "warm", "season"]
    assert rows == [
        ["Ulm", "21.5", "True", "summer"],
        ["Øvre, Årdal", "nan", "False", "summer"],
    ]
