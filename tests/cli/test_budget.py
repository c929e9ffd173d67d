"""Laws of the time of an examination (src/visprism/examine/{budget,efforts}.py)."""

import re

import numpy as np
import pytest

from visprism.cli import main
from visprism.examine import Inquiry, examine, load_models
from visprism.examine.budget import SHARES, seconds_each
from visprism.examine.efforts import affordable
from visprism.results.ablation import Ablations
from visprism.results.base import Result
from visprism.results.loss import SpectralDensity
from visprism.results.perturbations import Adversarial, FrequencyRobustness
from visprism.results.robustness import Robustness
from visprism.results.shape_bias import ShapeBias

TRIALS = ("robustness", "lesion", "noise", "attack", "shape-bias")


def unseen(items, **_):
    return items


def examined(**options):
    inquiry = Inquiry(data="shapes", limit=20, batch_size=8, **options)
    (found,) = examine(load_models(["vit_pico_patch4_32"]), inquiry, progress=unseen)
    return found, {type(result): result for result in found.results}


def test_all_of_the_time_is_shared_out_among_what_is_asked_for():
    assert sum(SHARES.values()) == pytest.approx(1)
    for asked in (Inquiry.analyses, ("lesion", "hessian", "fourier"), ("attack",)):
        given = seconds_each(Inquiry(data="shapes", analyses=asked, minutes=0.5))
        assert sum(given.values()) == pytest.approx(30)
        assert set(given) == set(asked) & set(SHARES)
    assert seconds_each(Inquiry(data="shapes", minutes=0.0)) == {}


def test_the_density_is_of_as_many_images_as_there_is_time_for():
    found, by_type = examined(analyses=("density",), minutes=5.0)
    assert by_type[SpectralDensity].provenance.images == 20
    assert not found.notes
    found, by_type = examined(analyses=("density",), minutes=1e-4)
    assert SpectralDensity not in by_type
    (note,) = found.notes
    assert "Without density: 60 Hessian products of 32 images take more" in note


def test_a_trial_is_made_coarser_before_it_has_few_images():
    assert affordable([1e6, 1e6], there=50) == (0, 50)  # all there are,
    assert affordable([1e6, 1e6], there=5000) == (0, 500)  # as many as are enough
    assert affordable([130.0, 300.0], there=5000) == (0, 130)
    assert affordable([120.0, 300.0], there=5000) == (1, 300)
    assert affordable([20.0, 60.0], there=5000) == (1, 60)
    assert affordable([4.0, 15.9], there=5000) == (1, 0)
    assert affordable([4.0, 9.0], there=6) == (1, 6)  # there are no more


def test_trials_take_longer_with_more_time():
    sizes = []
    for n in np.geomspace(1, 1e5, 40):
        which, images = affordable([n / 4, n], there=5000)
        sizes.append(images * (1 + 3 * (which == 0)))
    assert sizes == sorted(sizes)


def test_an_examination_makes_the_trials_on_a_number_of_images_that_is_told():
    found, results = examined(analyses=("lesion", "noise", "attack", "shape-bias"), minutes=1.0)
    assert set(results) == {Ablations, FrequencyRobustness, Adversarial, ShapeBias}
    assert {result.provenance.images for result in results.values()} == {20}
    assert set(results[Adversarial].attack.tolist()) == {"random", "fgsm", "pgd"}
    assert not any("Without" in note for note in found.notes)


def test_every_corruption_is_tried():
    _, results = examined(analyses=("robustness",), minutes=1.0)
    assert len(set(results[Robustness].corruption.tolist())) == 16  # and clean images
    assert set(results[Robustness].severity.tolist()) >= {0, 3}


def test_what_there_is_no_time_for_is_a_note_that_says_how_much_it_wants():
    found, results = examined(analyses=("fourier", *TRIALS), minutes=1e-6)
    assert not set(results) & {Ablations, FrequencyRobustness, Adversarial, Robustness}
    assert ShapeBias in results  # it takes one pass
    for name in ("robustness", "lesion", "noise", "attack"):
        (note,) = (note for note in found.notes if note.startswith(f"Without {name}: "))
        wanted = r"16 images would take about \S+ s, .* is 0.0 s; give --minutes \d+ or more\."
        assert re.search(wanted, note)


def test_without_time_only_what_takes_one_pass_is_measured():
    found, results = examined(analyses=("uncertainty", *TRIALS), minutes=0.0)
    assert {kind.__name__ for kind in results} >= {"Uncertainty", "ShapeBias"}
    assert not set(results) & {Ablations, FrequencyRobustness, Adversarial, Robustness}
    assert not any("Without" in note and "temperature" not in note for note in found.notes)


DETACHED = """
import torch

class Frozen(torch.nn.Conv2d):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)

def build():
    layers = torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 10)
    body = Frozen(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3, padding=1)
    return torch.nn.Sequential(*body, *layers)
"""


@pytest.mark.usefixtures("without_figures")
def test_one_trial_that_cannot_be_made_does_not_take_the_others_with_it(tmp_path, capsys):
    (tmp_path / "net.py").write_text(DETACHED)
    options = ["--data", "shapes?size=16", "--limit", "16", "--size", "16"]
    out = tmp_path / "out"
    model = f"{tmp_path}/net.py:build"
    assert main(["examine", model, *options, "--minutes", "3", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "Without attack: Sequential passes no gradient back to its image" in said
    kept = {"frequency-noise", "robustness", "corruption-errors", "shape-bias", "lesions"}
    for stem in kept:
        (path,) = (out / "results").glob(f"*-{stem}.npz")
        assert Result.load(path).provenance.images <= 16
