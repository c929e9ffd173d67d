"""The notebook examples/examine_your_model.py: a module and a loader to a study, and back."""

import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import visprism as vp

NOTEBOOK = Path(__file__).parents[1] / "examples" / "examine_your_model.py"
ANALYSES = {"fourier", "variance", "cka", "hessian", "landscape", "calibration"}


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The folder that the notebook ran in, and its names."""
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        names = runpy.run_path(str(NOTEBOOK), run_name="__main__")
    plt.close("all")
    return folder, names


def test_every_analysis_gives_a_result_of_each_model(ran):
    _, names = ran
    study = names["study"]
    assert not [f for f in study.failures if f.kind == "failed"]
    for model in ("shallow", "deep"):
        assert set(study[model]) >= ANALYSES


def test_the_models_are_compared_by_cka(ran):
    _, names = ran
    entries = names["study"].between("shallow", "deep")
    (similarity,) = [
        r
        for e in entries
        if e.analysis == "cka"
        for r in e.results
        if isinstance(r, vp.results.Similarity)
    ]
    assert len(set(similarity.block)) != len(set(similarity.other))


def test_a_reloaded_study_holds_the_same_results(ran):
    folder, names = ran
    reloaded = vp.Study.load(folder / "study")
    for model in ("shallow", "deep"):
        for analysis in ANALYSES:
            assert reloaded[model][analysis] == names["study"][model][analysis]


def test_a_new_process_reads_it(ran):
    folder, names = ran
    assert "accuracy (%)" in names["answer"].stdout
    assert "<CalibrationMetrics of deep: " in names["answer"].stdout
    assert (folder / "report.html").stat().st_size > 10_000


def test_studies_and_results_have_a_notebook_form(ran):
    _, names = ran
    assert "accuracy (%)" in names["study"]._repr_html_()
    for analysis in ANALYSES:
        result = names["study"]["deep"][analysis]
        assert "<table>" in result._repr_html_()
        frame = result.to_pandas()
        assert len(frame) == len(result)
        assert set(frame.attrs["units"]) == set(result.infos())
    fourier = names["study"]["deep"]["fourier"]
    np.testing.assert_array_equal(fourier.to_pandas()["log_amplitude"], fourier.log_amplitude)
