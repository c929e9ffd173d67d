"""A unit beside a number is that of the number in ``results.json``."""

import json

import visprism as vp
from visprism.study.exports import json_of


def test_what_tables_show_in_percent_is_a_fraction_with_that_unit(net, loader):
    data = [(images, targets % 3) for images, targets in 2 * loader]
    models = {"a": net(0), "b": net(1)}
    study = vp.examine(models, data, analyses=["calibration", "variance"])
    content = json.loads(json_of(study))
    by_quantity = {q["quantity"]: q for q in content["questions"]}
    accuracy = study["a"]["calibration"].accuracy
    assert by_quantity["accuracy"]["unit"] == "fraction"
    assert by_quantity["accuracy"]["answers"]["a"]["value"] == float(accuracy)
    assert by_quantity["NLL"]["unit"] == "nats"
    for question in content["questions"]:
        assert "%" not in question["unit"]
        assert "points" not in question["unit"]
        if question["unit"] == "fraction":
            assert all(abs(a["value"]) <= 1 for a in question["answers"].values())
            assert all(abs(d["value"]) <= 1 for d in question["differences"])
