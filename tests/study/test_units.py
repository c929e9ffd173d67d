"""A unit beside a number is that of the number, in ``results.json`` and in CSV files."""

import csv
import json

import numpy as np
import pytest
from internals import json_of

import visprism as vp


@pytest.fixture
def study(net, loader):
    data = [(images, targets % 3) for images, targets in 2 * loader]
    return vp.examine({"a": net(0), "b": net(1)}, data, analyses=["calibration", "variance"])


def test_what_tables_show_in_percent_is_a_fraction_with_that_unit(study):
    content = json.loads(json_of(study))
    by_quantity = {q["quantity"]: q for q in content["questions"]}
    accuracy = study["a"]["calibration"].of("accuracy")
    assert by_quantity["accuracy"]["unit"] == "fraction"
    assert by_quantity["accuracy"]["answers"]["a"]["value"] == float(accuracy)
    assert by_quantity["NLL"]["unit"] == "nats"
    for question in content["questions"]:
        assert "%" not in question["unit"]
        assert "points" not in question["unit"]
        if question["unit"] == "fraction":
            assert all(abs(a["value"]) <= 1 for a in question["answers"].values())
            assert all(abs(d["value"]) <= 1 for d in question["differences"])


def test_heads_of_csv_files_have_the_units_of_the_numbers(study, tmp_path):
    study.save(tmp_path)
    files = sorted(tmp_path.glob("results/*.csv"))
    assert len(files) > 8
    for path in files:
        result = vp.Result.load(path.with_suffix(".npz"))
        with path.open(newline="") as file:
            head, *rows = csv.reader(file)
        columns = result.columns()
        assert len(head) == len(columns)
        cells_of = np.array(rows, dtype=object).reshape(len(rows), len(head)).T
        for name, cells, (plain, values) in zip(head, cells_of, columns.items(), strict=True):
            unit = result.infos()[plain].unit if plain in result.infos() else ""
            assert name.startswith(f"{plain} ({unit})" if unit else plain)
            assert "%" not in name
            if values.dtype.kind == "f":
                assert [float(c) for c in cells] == pytest.approx(values, nan_ok=True)
