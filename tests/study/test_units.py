"""A unit beside a number is that of the number, in ``results.json`` and in CSV files."""

import csv
import json

import numpy as np
import pytest
import torch
from internals import json_of
from torch import nn

import visprism as vp


def network():
    layers = (nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    return nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def study():
    torch.manual_seed(0)
    nets = {name: network() for name in "ab"}
    data = [(torch.rand(16, 3, 8, 8), torch.arange(16) % 3) for _ in range(4)]
    return vp.examine(nets, data, analyses=["calibration", "variance"])


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
